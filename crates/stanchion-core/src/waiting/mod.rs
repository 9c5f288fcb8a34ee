//! Waiting inside one process: one queue for each name, and the messages that wake it.

mod entry;
mod subscriptions;

pub(crate) use entry::{Applicant, Entries, Entry, Rivals, Successor, Ticket, Turn};
pub(crate) use subscriptions::Subscriptions;
