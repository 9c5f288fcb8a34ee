//! Waiting inside one process: one queue for each subject, and the messages that wake it.
//!
//! | file | content |
//! |---|---|
//! | `queue` | the state machine that decides which waiter sends a request, and when; it does no I/O |
//! | `lock_entry` | a queue with its timer and its messages |
//! | `shared`, `sync` | the table of queues and their mutexes; carries out the effects of events |
//! | `shell` | the types that a queue stores for the client |
//! | `request`, `sending` | one request and its reply; the request of a waiter until the server has decided |
//! | `entries`, `ticket` | the table of a client; one waiter's place, as its task has it |
//! | `facts` | passes final events to all waiters |
//! | `successor`, `piggyback` | hands a hold to a waiter; sends a waiter's request with a release |
//! | `relay` | receives Redisson's releases for a queue on the server |
//! | `survey`, `census` | lists the waiters; counts them |
//!
//! # Lock order
//! The blocking mutexes of the core, each with those that may be locked while it is held. None is held across an await.
//!
//! * A shard of the table `Table::entries`: `LockEntry::state`, one at a time (`queued`, `untaken`, `waiters`, `census`). Never the reverse:
//!   `Table::keep_warm` unlocks the queue first.
//! * `Table::warm`: none.
//! * `LockEntry::state`: `HoldState::shared` (a grant by message begins a hold), a debt's `claim`, `Subscriptions::topics`,
//!   `Timetable::table`, `Wire::rng`, and `Releases::recent`: a check of the holder may drop the last reference to a hold that has ended, and
//!   thereby to its debt. In `stanchion-transport` the cluster's map and a server's clock. Never a second queue.
//! * `HoldState::shared`: `Timetable::table`.
//! * `Subscriptions::topics`: none of these; in `stanchion-transport` the cluster's map and a link's phase.
//! * `Timetable::table`, `Wire::rng`, an owner's `seats`, a debt's `claim`: none.
//!
//! Therefore a message's audience is copied out of `topics` before its queues are locked, and a hold is declared lost
//! ([`HoldState::lose`](crate::hold::state::HoldState::lose)) with none of these mutexes held, because that locks its queue.
//!
//! # Foreign code
//! A waker or a guard may own any value, even one that locks the same mutex again. Therefore a waiter's waker is called, cloned and
//! dropped, and a [`Hold`](crate::hold::handle::Hold) is dropped, with none of these mutexes held: `Effects` collects them until the
//! queue is unlocked. The client's own tasks are exempt: under a queue's mutex the bells of `Timetable` and `Subscriptions` may ring,
//! and under `topics` the first use of a link spawns its task. [`Clock`](crate::Clock) and
//! [`Synchronizer`](crate::primitive::Synchronizer) are called under a queue's mutex; neither may call back.

mod census;
mod entries;
mod facts;
mod lock_entry;
mod piggyback;
pub mod queue;
mod relay;
mod request;
mod sending;
mod shared;
mod shell;
mod successor;
mod survey;
mod sync;
mod ticket;

pub(crate) use entries::LockEntries;
pub(crate) use lock_entry::LockEntry;
pub(crate) use queue::{News, Outcome, Stay};
pub(crate) use request::{Attempt, Other, Parameters, ask};
pub(crate) use sending::failed;
pub(crate) use shell::{Answer, Shell};
pub use survey::Waiting;
pub(crate) use ticket::{Quit, Ticket};
