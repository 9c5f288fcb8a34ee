//! Exact tests on the embedded engine: its fault switches and virtual time reach every interleaving.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cancellation;
mod connections;
mod lost_messages;
mod lost_replies;
mod refusals;
mod time;
mod fair;
mod rwlock;
mod semaphore;
mod leased;
mod latch;
mod multilock;
mod redlock;
