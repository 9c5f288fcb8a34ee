//! Exact tests on the embedded engine: its fault switches and virtual time reach every interleaving.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod any;
mod cancellation;
mod connections;
mod ends;
mod fair;
mod forced;
mod holds;
mod identity;
mod latch;
mod leased;
mod line;
mod local_queue;
mod lost_messages;
mod lost_replies;
mod members;
mod multilock;
mod multilock_hand_off;
mod multilock_turns;
mod observer;
mod permit_crowd;
mod permit_line;
mod permit_model;
mod permit_storm;
mod pollers;
mod presence;
mod redlock;
mod refusals;
mod repeated;
mod rwlock;
mod semaphore;
mod sharers;
mod shutdown;
mod time;
mod unfinished;
