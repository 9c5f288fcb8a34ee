//! The transport: connections to the servers. Nothing outside this folder names the redis crate.
//!
//! A [`Call`] passes through these layers:
//!
//! 1. [`Servers`] picks the node: the only server, the master that the sentinels name ([`sentinel`]), or the owner of the
//!    key's slot ([`cluster`]).
//! 2. The node picks a link: the one on the caller's runtime or the one on the client's own thread ([`servers`]).
//! 3. The link sends on its current connection and waits for the [`Reply`] ([`link`]). [`exchange`] records that a reply is
//!    owed, and [`cork`] joins the writes of calls that are sent together.
//! 4. [`verdict`] sorts an error: not sent or not executed, refused for good, or ambiguous.
//!
//! Each link has one supervisor task ([`supervise`]). It opens byte streams through a [`Connector`] ([`stream`] has the ones
//! for URLs), logs in and renews the login ([`login`]), drops a connection that stops answering, reads the server's clock
//! ([`server_clock`]), and reports outages to the log ([`health`]). It runs until the client is closed.
//!
//! No lock in this folder is held across an `.await`.

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

/// Opens byte streams to one server. Simulated networks implement it.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Opens one stream. Called again after every disconnect.
    ///
    /// # Errors
    /// Any error; the link tries again with backoff.
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>>;
}
