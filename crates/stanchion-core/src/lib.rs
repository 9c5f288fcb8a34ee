//! The common implementation of all stanchion synchronizers.
//!
//! Users depend on the `stanchion` facade or on one primitive's crate; both re-export the parts of this crate that users need. Authors of a
//! primitive start at [`primitive`].

mod about;
mod acquire;
mod actor;
mod agenda;
mod connect;
mod dated;
mod deadlock;
mod description;
mod error;
mod extension;
mod fact;
mod field;
mod free_by;
mod gauges;
mod hint;
mod hold;
mod holders;
mod idle;
mod lease;
mod line;
mod lua;
mod millis;
mod name;
mod notice;
mod observe;
mod options;
mod owner;
pub mod primitive;
mod query;
mod reading;
mod receiver;
mod seat;
mod shared;
mod terms;
mod token;
mod waiting;
mod watchdog;
mod wire;
mod wire_owner;

pub use connect::ShutdownReport;
pub use deadlock::{DeadlockEdge, DeadlockParty, InTheWay, SurveyedName, client_of};
pub use error::{
    AcquireError, AdoptError, Error, InvalidDuration, InvalidTicket, LeaseLost, LostReason,
    QueryError, Rejection, ReleaseError, RenewError,
};
pub use free_by::FreeBy;
pub use hold::ended::Ended;
pub use hold::losses::AbandonedHold;
pub use hold::request::ReleaseRequest;
pub use hold::ticket::HoldTicket;
pub use idle::IdleExpiry;
pub use lease::{InvalidLease, Lease};
pub use name::{InvalidName, MAX_NAME_BYTES, Name, NameRule};
pub use notice::Asked;
pub use options::{AcquireOptions, Reentry};
pub use owner::Owner;
pub use terms::{OnDeadlock, Renewal};
pub use token::{Fencing, FencingToken};
pub use wire_owner::WireOwner;

/// The state machines of the client, for the explorer of interleavings.
#[doc(hidden)]
pub use hold::{claim, life};
#[doc(hidden)]
pub use waiting::queue as local_queue;

#[doc(hidden)]
pub use stanchion_transport::woven;
pub use stanchion_transport::{
    Background, BootClock, ByteStream, ClientConfig, Clock, ConfigError, ConnectError, Connector,
    Credentials, CredentialsProvider, Gauges, Moment, Observer, Outage, Placement, Presence,
    Printable, Reply, Secret, ServerInfo, ServerRejection, ServerUrl, TokioClock, Wake,
};
