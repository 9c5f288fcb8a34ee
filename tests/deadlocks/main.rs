//! Calls that wait for each other across names and processes, on the embedded engine: found and confirmed, and, where they ask for it,
//! given up by one of them.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod found;
mod give_up;
mod own;
mod rights;
