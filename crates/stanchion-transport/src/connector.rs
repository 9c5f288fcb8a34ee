//! The interface between a link and the transport of its bytes.

use std::fmt;
use std::io;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connected byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> ByteStream for S {}

/// Opens byte streams to one server. Simulated networks implement it.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Opens one stream. Called again after every disconnect.
    ///
    /// # Errors
    /// Any error. The link retries with backoff.
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>>;
}
