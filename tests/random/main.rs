//! Random programs, judged by a model of the promises. They need processors, and nothing else.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking, as tests do, and print what they covered"
)]

mod generator;
