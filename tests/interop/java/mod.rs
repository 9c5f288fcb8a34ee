//! Redisson, driven from Rust.

mod jvm;
mod maven;
mod redisson;

pub(crate) use jvm::{Jvm, Pending, Reply};
pub(crate) use redisson::{Kind, Object, Redisson};
