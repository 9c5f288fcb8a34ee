//! Waiting inside one process: one queue for each subject, and the messages that wake it.
//!
//! `lock_entry` is a queue with its poll timer, `queue` decides which of its waiters send requests, `ticket` is one waiter's place, `facts`
//! passes final events to all waiters, `successor` hands a hold to a waiter, `line` is the entry of this process in a queue on the server,
//! `server_queue` sends heartbeats for queues that the server keeps, `piggyback` sends a waiter's request with a release, `grants`
//! recognises second copies of grants, `subscriptions` turns messages into wake-ups, `survey` lists the waiters, and `census` counts them.
//!
//! # Lock order
//! The blocking mutexes of the core, each with those that may be locked while it is held. None is held across an await.
//!
//! * A shard of the table `LockEntries`: `LockEntry::queue`, one at a time (`places`, `unclaimed`, `waiters`, `census`). Never the reverse:
//!   `LockEntries::keep_warm` unlocks the queue first.
//! * `LockEntries::warm`: none.
//! * `LockEntry::queue`: `HoldState::slot` (a grant by message begins a hold), a debt's `owed`, `Subscriptions::topics`,
//!   `Timetable::table`, `Core::rng`; in `stanchion-transport` the cluster's map and a server's clock. Never a second queue.
//! * `HoldState::slot`: `Timetable::table`.
//! * `Subscriptions::topics`: none of these; in `stanchion-transport` the cluster's map and a link's phase.
//! * `Timetable::table`, `Core::rng`, an owner's `seats`, a debt's `owed`: none.
//!
//! Therefore a message's audience is copied out of `topics` before its queues are locked, and a hold is declared lost
//! ([`HoldState::lose`](crate::hold::state::HoldState::lose)) with none of these mutexes held, because that locks its queue.
//!
//! # Foreign code
//! A waker or a guard may own any value, even one that locks the same mutex again. Therefore a waiter's waker is called, cloned and
//! dropped, and a [`Hold`](crate::hold::handle::Hold) is dropped, with none of these mutexes held: `Wakers` collects the wakers until the
//! queue is unlocked. The client's own tasks are exempt: under a queue's mutex the bells of `Timetable` and `Subscriptions` may ring
//! and `LockEntry::attend` spawns, and under `topics` the first use of a link spawns its task. [`Clock`](crate::Clock) and
//! [`Synchronizer`](crate::primitive::Synchronizer) are called under a queue's mutex; neither may call back.

mod census;
mod facts;
mod grants;
mod line;
mod lock_entry;
mod piggyback;
mod queue;
mod server_queue;
mod subscriptions;
mod successor;
mod survey;
mod ticket;

pub(crate) use lock_entry::{End, LockEntries, LockEntry};
pub(crate) use piggyback::Piggyback;
pub(crate) use queue::Turn;
pub(crate) use subscriptions::Subscriptions;
pub(crate) use successor::Successor;
pub use survey::Waiting;
pub(crate) use ticket::{Applicant, Stay, Ticket};
