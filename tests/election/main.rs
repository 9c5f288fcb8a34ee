//! Elections. The cases are those of `docs/primitives/election.md`, which says what each shows; bugs of other libraries that they
//! stand for are named at the tests.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking, and say what they count"
)]

mod clients;
mod failovers;
mod history;
mod lead;
mod observers;
mod order;
mod servers;
mod support;
mod terms;
mod values;
