//! The machinery under every stanchion synchronizer.
//!
//! Users take the `stanchion` facade or one primitive's crate; both re-export what is needed from here. Those who write
//! a primitive start at [`primitive`].

mod acquire;
mod any;
mod client;
mod clock;
mod config;
mod ended;
mod endpoint;
mod error;
mod guard;
mod hold;
mod holdset;
mod lease;
mod name;
mod observe;
mod options;
mod owner;
pub mod primitive;
mod release;
mod runner;
mod secret;
mod server;
pub mod slot;
mod timetable;
mod token;
mod transport;
mod waiting;
mod watchdog;

pub use any::{Acquire, Acquiring, Guard};
pub use client::{AbandonedHold, Client, ShutdownReport};
pub use clock::{BootClock, Clock, Moment, TokioClock};
pub use config::{Background, ClientConfig, Wake};
pub use ended::Ended;
pub use error::{
    AcquireError, ConfigError, ConnectError, Error, LeaseLost, LostReason, Outage, QueryError,
    Rejection, ReleaseError, RenewError,
};
pub use lease::{InvalidLease, Lease};
pub use name::{InvalidName, MAX_NAME_BYTES, Name, NameRule, Placement};
pub use options::{AcquireOptions, Reentry, Renewal};
pub use owner::{Owner, WireOwner};
pub use primitive::Lockable;
pub use secret::{Credentials, CredentialsProvider, Secret, ServerUrl};
pub use server::ServerInfo;
pub use token::{Fencing, FencingToken};
pub use transport::{ByteStream, Connector};
