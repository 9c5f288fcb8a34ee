//! Tests of elections. `docs/primitives/election.md` lists the cases, and the bugs of other libraries that the tests cover.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking, and print counts"
)]

mod interop;
mod servers;
mod support;
mod time {
    mod clients;
    mod history;
    mod lead;
    mod observers;
    mod order;
    mod terms;
    mod values;
}
