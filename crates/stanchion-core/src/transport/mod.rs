//! The way to the server. Nothing outside this folder names the redis crate.
//!
//! * [`Connector`] opens byte streams; [`stream`] has the ones for URLs.
//! * [`link`] sends calls over one connection, which [`supervise`] keeps alive for ever: [`login`] says who we are,
//!   [`exchange`] knows what it owes, [`health`] tells the log.
//! * [`servers`] are what calls go to: one server, the master that [`sentinel`]s name, or the nodes of a [`cluster`].
//! * [`call`] is a script invocation, [`reply`] what comes back, [`verdict`] what an error means.

pub(crate) mod call;
mod cluster;
mod cork;
mod exchange;
pub(crate) mod health;
pub(crate) mod link;
mod login;
pub(crate) mod reply;
mod sentinel;
pub(crate) mod server_clock;
pub(crate) mod servers;
pub(crate) mod stream;
mod supervise;
#[cfg(feature = "tls")]
mod tls;
mod verdict;

use std::fmt;
use std::io;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

pub use call::{Call, Script};
pub use reply::Reply;
pub(crate) use servers::Servers;
pub(crate) use verdict::Failure;

/// A connected byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> ByteStream for S {}

/// Opens byte streams to one server. The seam for simulated networks.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Opens one stream. Called again after every disconnect.
    ///
    /// # Errors
    /// Any; the caller tries again with backoff.
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>>;
}
