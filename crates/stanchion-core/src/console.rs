//! The operator's door: plain commands to each server of a client.

use std::fmt;

use stanchion_transport::{Failure, Path, Reply};

use crate::client::Client;
use crate::error::QueryError;
use crate::hold::renew::unanswered_in;

/// One server of a client, for commands that concern the server and not one name: `INFO`, `CLIENT LIST`, `SCAN`.
///
/// For tools of operators. No synchronizer needs it. See [`Client::consoles`].
#[derive(Clone)]
pub struct Console {
    inner: stanchion_transport::Console,
    client: Client,
}

impl Client {
    /// Returns each server that owns keys: one, or the masters of a cluster as they are known now.
    #[must_use]
    pub fn consoles(&self) -> Vec<Console> {
        let all = self.core().servers.consoles().into_iter();
        all.map(|inner| self.console(inner)).collect()
    }

    /// Returns the server that owns `key`; `None` if no server is known to own it.
    #[must_use]
    pub fn console_of(&self, key: &[u8]) -> Option<Console> {
        let slot = stanchion_transport::slot_of(key);
        let inner = self.core().servers.console(slot)?;
        Some(self.console(inner))
    }

    fn console(&self, inner: stanchion_transport::Console) -> Console {
        Console {
            inner,
            client: self.clone(),
        }
    }
}

impl Console {
    /// Returns the server's address without credentials.
    #[must_use]
    pub fn server(&self) -> &str {
        self.inner.server()
    }

    /// Sends a command, once, and returns the reply. It follows no redirect.
    ///
    /// # Errors
    /// [`QueryError`]: the server refused (its message is in it), the connection ended before the reply
    /// ([`QueryError::Unanswered`]: the command may have run), there is no connection, or the operation timeout has passed.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel a command that was sent.
    pub async fn command<P: AsRef<[u8]>>(&self, parts: &[P]) -> Result<Reply, QueryError> {
        let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
        let timeout = self.client.core().config.operation_timeout;
        let asking = self.inner.command(Path::Direct, &parts);
        match tokio::time::timeout(timeout, asking).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(Failure::Rejected(rejection))) => Err(QueryError::Rejected {
                rejection: rejection.into(),
            }),
            Ok(Err(Failure::NotNow(outage))) => Err(QueryError::Unavailable { outage }),
            Ok(Err(Failure::Unanswered(outage))) => Err(QueryError::Unanswered { outage }),
            Err(_) => Err(QueryError::Unanswered {
                outage: unanswered_in(timeout),
            }),
        }
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
