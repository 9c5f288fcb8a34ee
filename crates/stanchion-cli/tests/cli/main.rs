//! The program as its users see it: exit codes, output, signals; against a private server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod home;
mod hostile;
mod interop;
mod operator;
mod serve;
mod support;
#[cfg(target_os = "linux")]
mod terminal;
mod tour;
mod who;
mod work;
