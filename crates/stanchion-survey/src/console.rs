//! Plain commands to each server of a client, for operators' tools.

use std::fmt;
use std::pin::pin;

use stanchion_core::QueryError;
use stanchion_core::primitive::Handle;
use stanchion_transport::{Failure, Path, Reply, timeout};
use tokio::sync::watch;

use crate::Surveys;

/// One server of a client, for commands that concern the server and not one name: `INFO`, `CLIENT LIST`, `SCAN`.
///
/// For tools of operators. No synchronizer needs it. See [`consoles`].
#[derive(Clone)]
pub struct Console {
    inner: stanchion_transport::Console,
    handle: Handle,
}

/// Returns each server that owns keys: see `Client::consoles`.
#[must_use]
pub fn consoles(handle: &Handle) -> Vec<Console> {
    let all = handle.servers().consoles().into_iter();
    all.map(|inner| Console::new(handle, inner)).collect()
}

/// Returns the server that owns `key`: see `Client::console_of`.
#[must_use]
pub fn console_of(handle: &Handle, key: &[u8]) -> Option<Console> {
    let slot = stanchion_transport::slot_of(key);
    let inner = handle.servers().console(slot)?;
    Some(Console::new(handle, inner))
}

impl Console {
    fn new(handle: &Handle, inner: stanchion_transport::Console) -> Self {
        Self {
            inner,
            handle: handle.clone(),
        }
    }

    /// Returns the server's address without credentials.
    #[must_use]
    pub fn server(&self) -> &str {
        self.inner.server()
    }

    /// Sends a command once and returns the reply. Follows no redirect.
    ///
    /// # Errors
    /// [`QueryError`]: the server refused (its message is in it), the connection ended before the reply
    /// ([`QueryError::Unanswered`]: the command may have run), there is no connection, or the operation timeout has passed.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel a command that was sent.
    pub async fn command<P: AsRef<[u8]>>(&self, parts: &[P]) -> Result<Reply, QueryError> {
        let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
        self.answered(self.inner.command(Path::Direct, &parts))
            .await
    }

    /// Sends commands once, in one write, and returns their replies in order. An error reply fails its own command only.
    ///
    /// # Errors
    /// As [`Console::command`], for all of them: the connection ended, or the operation timeout has passed.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel commands that were sent.
    pub async fn commands<P: AsRef<[u8]>>(
        &self,
        commands: &[Vec<P>],
    ) -> Result<Vec<Result<Reply, QueryError>>, QueryError> {
        let commands: Vec<Vec<&[u8]>> = commands
            .iter()
            .map(|parts| parts.iter().map(AsRef::as_ref).collect())
            .collect();
        let replies = self
            .answered(self.inner.commands(Path::Direct, &commands))
            .await?;
        Ok(replies
            .into_iter()
            .map(|reply| reply.map_err(query_error))
            .collect())
    }

    /// Requests a notification for the next write or expiry of one of `keys`. They need not exist; in a cluster they are in one slot.
    ///
    /// The notification is a hint for tools that watch keys, so that they need not poll. It is lost with the connection, and also sent for
    /// writes that change nothing. Messages of a synchronizer are not used for this, because it counts their subscribers as waiters.
    ///
    /// On the wire: `CLIENT TRACKING ON` and one `EXISTS`, on the connection for messages.
    ///
    /// # Errors
    /// [`QueryError`], also if the server refuses: the user lacks a right (`+client|tracking`, `+exists`), or the server does not
    /// know the command.
    ///
    /// # Cancel safety
    /// Safe. The only change is that the server sends notifications to this client.
    pub async fn track<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Tracked, QueryError> {
        // Subscribe first, so that no notification from here on is missed.
        let surveys = self.handle.extension::<Surveys>();
        let mut told = surveys.map_or_else(|| watch::channel(0).1, |it| it.writes.subscribe());
        told.mark_unchanged();
        let on: [&[u8]; 3] = [b"CLIENT", b"TRACKING", b"ON"];
        let hearing = self.inner.hearing();
        self.answered(hearing.command(Path::Direct, &on)).await?;
        let mut read: Vec<&[u8]> = vec![b"EXISTS"];
        read.extend(keys.iter().map(AsRef::as_ref));
        self.answered(hearing.command(Path::Direct, &read)).await?;
        Ok(Tracked { told })
    }

    async fn answered<T>(
        &self,
        asking: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, QueryError> {
        if self.handle.closed().is_cancelled() {
            return Err(QueryError::Shutdown);
        }
        let limit = self.handle.config().operation_timeout;
        match timeout(limit, pin!(asking)).await {
            Some(answer) => answer.map_err(query_error),
            None => Err(self.handle.unanswered()),
        }
    }
}

/// Returns whether the server did not answer, or refuses for now.
pub(crate) const fn is_outage(error: &QueryError) -> bool {
    matches!(
        error,
        QueryError::Unavailable { .. } | QueryError::Unanswered { .. }
    )
}

fn query_error(failure: Failure) -> QueryError {
    match failure {
        Failure::Rejected(rejection) => QueryError::Rejected {
            rejection: rejection.into(),
        },
        Failure::NotNow(outage) => QueryError::Unavailable { outage },
        Failure::Unanswered(outage) => QueryError::Unanswered { outage },
    }
}

/// Keys for which the server announces the next write. See [`Console::track`].
#[derive(Debug)]
pub struct Tracked {
    told: watch::Receiver<u64>,
}

impl Tracked {
    /// Resolves when the server announces a write to a key of this or another [`Console::track`] of this client. The server announces one
    /// write only; call [`Console::track`] again for the next one.
    ///
    /// # Cancel safety
    /// Safe: an announced write is not lost.
    pub async fn written(&mut self) {
        if self.told.changed().await.is_err() {
            // The client was dropped, so no more writes are announced.
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
