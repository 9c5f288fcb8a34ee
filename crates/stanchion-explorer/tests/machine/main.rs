//! The queue of a client, claims and lives on their own: one event after the other, in milliseconds.
//!
//! The explorer visits what follows from several events. These tests name the rules of a single one.

mod claims;
mod desk;
mod entry;
mod holders;
mod messages;
mod parts;
mod waiters;
#[path = "../shared/wish.rs"]
mod wish;
