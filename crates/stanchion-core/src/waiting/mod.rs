//! Waiting inside one process: one queue for each name, and the messages that wake it.

mod beat;
mod entry;
mod queue;
mod subscriptions;
mod ticket;

pub(crate) use entry::{Entries, Entry, Rivals, Successor};
pub(crate) use queue::Turn;
pub(crate) use subscriptions::Subscriptions;
pub(crate) use ticket::{Applicant, Ticket};
