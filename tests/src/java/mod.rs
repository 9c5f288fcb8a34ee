//! Redisson, driven from Rust.
//!
//! `tests/redisson` is a Maven project whose program runs commands from its standard input with Redisson. This module builds and drives it.
//! Without a JDK and Maven the tests are skipped with a message; with `STANCHION_REQUIRE_REDISSON=1` they fail.

mod jvm;
mod maven;
mod redisson;

pub use jvm::{Jvm, Pending, Reply};
pub use redisson::{Kind, Object, Redisson};
