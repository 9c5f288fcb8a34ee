//! The program as its users see it: exit codes, output, signals; against a private server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arguments;
mod ask;
mod at_least;
mod barrier;
mod home;
mod hostile;
mod inspect;
mod interop;
mod kinds;
mod lead;
mod limit;
mod log;
mod names;
mod operator;
mod outage;
mod run;
mod serve;
mod signals;
mod support;
#[cfg(target_os = "linux")]
mod terminal;
mod tickets;
mod ticks;
mod url_file;
mod who;
mod work;
