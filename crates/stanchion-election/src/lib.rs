//! Leader election among processes, on Redis and Valkey.
//!
//! ```no_run
//! use std::time::Duration;
//! use stanchion_election::{Client, Election, FencingToken, Stop, WorkError};
//!
//! # async fn index(token: Option<FencingToken>, stop: Stop) -> Result<(), WorkError> { Ok(()) }
//! # async fn example() -> Result<(), stanchion_election::Error> {
//! # let sigterm = std::future::pending();
//! let client = Client::connect("redis://127.0.0.1/").await?;
//! let indexer = Election::new(&client, "indexer")?;
//! let end = indexer
//!     .lead("10.0.0.7:9000", |term, stop| index(term.fencing_token(), stop))
//!     .until(sigterm) // stops the work, waits for it, and steps down
//!     .await?;
//! println!("led {} times", end.terms);
//! # Ok(())
//! # }
//! ```
//!
//! A lease cannot exclude a leader that is paused between its check and its write. Send [`Leadership::fencing_token`] with each
//! write, and let the store reject smaller tokens.

mod danger;
mod election;
mod lead;
mod leader;
mod leadership;
mod observe;
mod options;
mod scripts;
mod term;

pub use danger::ElectionDanger;
pub use election::Election;
pub use lead::{Lead, LeadEnd, TermEnd, WorkError};
pub use leader::{Candidate, Leader};
pub use leadership::{Challenge, Leadership};
pub use observe::{Leaders, Observed};
pub use options::CampaignOptions;
pub use stanchion_client::{
    AbandonedHold, AcquireError, AcquireOptions, Asked, Background, Client, ClientConfig,
    ConfigError, ConnectError, Ended, Error, Fencing, FencingToken, FreeBy, Guard, InvalidLease,
    InvalidName, Lease, LeaseLost, LostReason, Moment, Name, NameRule, Outage, Owner, QueryError,
    Rejection, ReleaseError, ReleaseRequest, RenewError, Renewal, Secret, ServerInfo,
    ServerRejection, ServerUrl, ShutdownReport, WireOwner,
};
pub use term::{Stop, Term};

/// The README's program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
