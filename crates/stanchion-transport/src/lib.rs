//! Sends scripts to Redis servers and returns their replies.
//!
//! This crate handles scripts, servers and connections. Holds, owners and waiters belong to `stanchion-core`. Only this
//! crate names the redis crate.
//!
//! A [`Call`] passes through these layers:
//!
//! 1. [`Servers`] picks the node: the only server, the master that the sentinels name (`sentinel.rs`), or the owner of the
//!    key's slot (`cluster.rs`).
//! 2. The node picks a link: the one on the caller's runtime or the one on the client's own thread (`node.rs`).
//! 3. The [`Link`] sends on its current connection and waits for the [`Reply`]. `exchange.rs` records that a reply is owed,
//!    and `pace.rs` reads the replies in portions.
//! 4. `failure.rs` classifies an error: not sent or not executed, refused permanently, or ambiguous.
//!
//! Each link has one supervisor task (`supervise.rs`), which runs until the client is closed. The supervisor opens byte
//! streams through a [`Connector`] (`stream.rs` has those for URLs), logs in and renews the login (`login.rs`), drops a
//! connection that stops answering, reads the server's clock ([`ServerClock`]), and logs outages (`health.rs`).
//!
//! No blocking lock of this crate is held across an `.await`.

mod clock;
mod cluster;
mod config;
mod connector;
mod console;
mod counts;
mod error;
mod failure;
#[cfg(test)]
mod fake;
mod host;
mod link;
mod mask;
mod node;
mod observer;
mod observers;
mod printable;
mod reply;
mod runner;
mod script;
mod secret;
mod sentinel;
mod server_clock;
mod server_info;
mod servers;
mod slot;
mod stream;
mod subscriptions;
mod timer;
mod timetable;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod woven;

pub use clock::{BootClock, Clock, Moment, TokioClock, micros};
pub use config::{Background, ClientConfig, Presence, Seams, Wake};
pub use connector::{ByteStream, Connector};
pub use console::Console;
pub use counts::Counts;
pub use error::{ConfigError, ConnectError, Outage, ServerRejection};
pub use failure::Failure;
pub use host::host;
pub use link::{ConnectionId, Link, Messages, OnPush, Subscribe, WRITTEN};
pub use node::Path;
pub use observer::{Gauges, Observer};
pub use printable::Printable;
pub use reply::Reply;
pub use runner::{Busy, Persistent, Runner};
pub use script::{Arg, Call, Item, Script};
pub use secret::{Credentials, CredentialsProvider, Secret, ServerUrl};
pub use server_clock::{Reached, ServerClock};
pub use server_info::{Facts, Placement, ServerInfo};
pub use servers::{Destination, Realm, Servers};
pub use slot::{slot_of, tag_of};
pub use subscriptions::{Listen, OnNotice, Subscriptions};
pub use timer::{Sleep, sleep, timeout};
pub use timetable::{Scheduled, Slot, Timetable};
pub use woven::{Part, length_with, with};
