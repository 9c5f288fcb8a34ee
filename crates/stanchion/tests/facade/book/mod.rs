//! The book is right: its links lead somewhere, its statements and programs run.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod bridge;
mod connection;
mod fencing;
mod links;
mod pages;
mod s3;
mod sharding;
mod sql;
mod testing;
