//! Deadlock detection and `OnDeadlock::Fail`, on the embedded engine. One test checks the needed rights on a real server.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod found;
mod give_up;
mod own;
mod rights;
