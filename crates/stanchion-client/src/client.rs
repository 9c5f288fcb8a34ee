//! The client: connects, and gives users the parts that live in other crates.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stanchion_core::primitive::Handle;
use stanchion_core::{InvalidName, Name, Owner, QueryError, ShutdownReport};
use stanchion_events::Lookouts;
use stanchion_survey::{Actor, Console, Deadlock, Processes, Survey, SurveyedClient, Surveys};
use stanchion_transport::{ClientConfig, ConnectError, Moment, Observer, ServerInfo, ServerUrl};
use uuid::Uuid;

/// A connection to one Redis or Valkey, shared by all synchronizers made from it. Cheap to clone.
///
/// # What it runs
/// Two connections for commands (one on the runtime that connects, one in the background), one for messages, and a
/// thread for renewals, messages and the releases of dropped guards. Needs a tokio runtime with time enabled.
///
/// # When it ends
/// The connections close when the last clone, guard or synchronizer is dropped. Guards dropped just before the process exits
/// may not be released in time, and then end with their leases: call [`Client::shutdown`] first.
#[derive(Clone)]
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Connects to the server of a URL, see [`ClientConfig::url`](crate::ClientConfig#structfield.url).
    ///
    /// # Errors
    /// [`ConnectError`], within the connect timeout (2 s).
    pub async fn connect(url: impl Into<ServerUrl>) -> Result<Self, ConnectError> {
        Self::connect_with(ClientConfig::new(url)).await
    }

    /// Connects as `config` says, and checks the server's version, placement and eviction policy.
    ///
    /// # Errors
    /// [`ConnectError`]: a bad configuration before anything is sent, an unreachable or refusing server within
    /// [`ClientConfig::connect_timeout`](crate::ClientConfig#structfield.connect_timeout).
    pub async fn connect_with(config: ClientConfig) -> Result<Self, ConnectError> {
        Self::start(config, false).await
    }

    /// As [`Client::connect_lazy_with`], with the defaults for a URL.
    ///
    /// ```
    /// # use stanchion_client::Client;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::connect_lazy("redis://127.0.0.1:1").await?; // no server there
    /// assert!(!client.is_connected());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ConnectError::Config`], before anything is sent.
    pub async fn connect_lazy(url: impl Into<ServerUrl>) -> Result<Self, ConnectError> {
        Self::connect_lazy_with(ClientConfig::new(url)).await
    }

    /// Returns a client that connects in the background and does not wait for the server: for a program that may start before its server, and for a
    /// RedLock that starts while a minority of its servers is down.
    ///
    /// Until the server is reached the client is in an outage, as after a lost connection: calls fail as unavailable within their deadlines, and
    /// waits continue. The client retries to connect without a limit. The checks of [`Client::connect_with`] are made before the first call; a
    /// server that fails a check stays unavailable, with the reason in the error.
    ///
    /// # Limits
    /// Names follow the placement of the URL: for a cluster the URL must be `redis+cluster://`. Until the server is reached, [`Client::server`] has
    /// no information. An [owner](Client::owner) that is used with this client and with another client of the same server counts as two owners.
    ///
    /// # Errors
    /// [`ConnectError::Config`], before anything is sent. A missing server or a wrong password is no error of this call.
    pub async fn connect_lazy_with(config: ClientConfig) -> Result<Self, ConnectError> {
        Self::start(config, true).await
    }

    async fn start(config: ClientConfig, later: bool) -> Result<Self, ConnectError> {
        let surveys = Arc::new(Surveys::new(&config));
        let parts = vec![Arc::clone(&surveys) as _, Arc::<Lookouts>::default() as _];
        let handle = Handle::connect(config, later, parts, observers()).await?;
        surveys.start(&handle);
        Ok(Self { handle })
    }

    /// The client's identity: the first part of every owner it makes.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.handle.id()
    }

    /// The current moment on the client's clock, which `valid_until` of guards refers to.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.handle.now()
    }

    /// A new owner, for acquires that re-enter each other.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.handle.owner()
    }

    /// The server's properties, as found during the connect. For a client that [connects later](Client::connect_lazy_with) they are unknown until
    /// then.
    #[must_use]
    pub fn server(&self) -> &ServerInfo {
        self.handle.server()
    }

    /// Returns whether a request would find a connection now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.handle.is_connected()
    }

    /// The number of calls that wait in this client's queues now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.handle.waiters()
    }

    /// `name` with the client's key prefix, checked for the server's placement of keys.
    ///
    /// # Errors
    /// [`InvalidName`]; nothing is sent.
    pub fn name(&self, name: impl AsRef<[u8]>) -> Result<Name, InvalidName> {
        self.handle.name(name)
    }

    /// Stops acquiring, waits up to `grace` for the operations in flight and for the work of each `run`, and closes.
    ///
    /// Waiting calls end with [`AcquireError::Shutdown`](crate::AcquireError::Shutdown). A call that is granted during the shutdown ends with it,
    /// too, and its hold is released. The shutdown waits for releases, awaited ones and those of dropped guards. It also waits for the work of
    /// [`run`](crate::Held::run) under a guard, and of a job, until its hold is released; during this time all holds are renewed and may be
    /// released. Guards that are still alive afterwards are lost ([`LostReason::Shutdown`](crate::LostReason::Shutdown)) and reported. Their holds are not released, because the work under them may still run: they end with their
    /// leases.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the start: nothing new is acquired. The client is closed only if the call runs to its end.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        self.handle.shutdown(grace).await
    }
}

/// What the client reports, and what it finds out about other clients.
impl Client {
    /// Returns the reported holds and waits of the clients on these servers. A client reports while it has a hold that is at least 5 s old
    /// or a call that has waited for at least 1 s, and refreshes its report every 10 s. This client is included with its current state.
    ///
    /// Not included: clients with [`Presence::Off`](crate::Presence::Off) or without the right to write their records, older versions, Redisson's,
    /// and clients with another key prefix. The reports are not verified: a user that may write the records can write anything.
    ///
    /// On the wire: `ZRANGEBYSCORE` and one `GET` for each client, up to 64 KiB each. Needs the rights to read
    /// `stanchion_client*`; with the right to write, expired processes are removed from the list. A server of a cluster that does not answer is
    /// in [`Survey::unreached`]. If it has the list, the clients are found by their connections to the others, as
    /// [`processes`](Client::processes) finds them.
    ///
    /// # Errors
    /// [`QueryError`], if no server answers.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn survey(&self) -> Result<Survey, QueryError> {
        stanchion_survey::survey(&self.handle).await
    }

    /// Returns the current holds and waits of this client, without network requests: for a debug page, a health check, or a log line when
    /// something hangs.
    ///
    /// Locks each queue for a short time, one after the other, so this is not a snapshot of one moment. The cost grows with the number of holds
    /// and waits.
    ///
    /// ```
    /// # use stanchion_client::Client;
    /// # async fn example(client: &Client) {
    /// for hold in client.local_survey().holds {
    ///     println!("{} for {:?}, {} wait here", hold.name, hold.held, hold.waiters);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn local_survey(&self) -> SurveyedClient {
        stanchion_survey::local_survey(&self.handle)
    }

    /// Finds deadlocks: calls in one or several processes that wait for each other indefinitely.
    ///
    /// Takes two [surveys](Client::survey), some 12 s apart, and each time reads the holders of the awaited names from the names themselves.
    /// Returns the deadlocks that are in both: the same calls wait for the same holds, and every process has written its record in between.
    /// Therefore each of them existed at the time of the first survey. No call is made to give up: see [`OnDeadlock`](crate::OnDeadlock).
    ///
    /// Redisson's holders are found, and Redisson's waiters in the queues of fair locks.
    ///
    /// Not found: waits of less than a second, and deadlocks through a lock outside of this library (a row in a database), through Redisson's
    /// waiters for anything else than fair locks, or through clients that report nothing. For names that this user may not read, the holders
    /// are the reported ones.
    ///
    /// On the wire: a survey, and one script for each awaited name and each held fair lock. All of this twice, if the first pass finds
    /// a deadlock. Servers of a cluster that do not answer are skipped, as in a survey.
    ///
    /// # Errors
    /// [`QueryError`], if no server answers.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn deadlocks(&self) -> Result<Vec<Deadlock>, QueryError> {
        stanchion_survey::deadlocks(&self.handle).await
    }

    /// Returns a new actor. Its label is shown to people, in a [survey](Client::survey) and in the error of a deadlock. Control characters
    /// in the label become spaces, and it is cut after 64 characters. Sends nothing.
    ///
    /// ```
    /// # use stanchion_client::Client;
    /// # async fn example(client: &Client) {
    /// let transfer = client.actor("transfer 4711");
    /// transfer.scope(async { /* acquire, wait, release */ }).await;
    /// tokio::spawn(transfer.scope(async { /* the same, in another task */ }));
    /// # }
    /// ```
    #[must_use]
    pub fn actor(&self, label: impl AsRef<str>) -> Actor {
        stanchion_survey::actor(&self.handle, label)
    }

    /// Returns the clients of this library that are connected to the servers now, ordered by id. This client is one of them.
    ///
    /// In a cluster each master gets the command. A master that refuses is skipped, and one that does not answer is in
    /// [`Processes::unreached`]. Not listed: Redisson's clients, and clients without the right to name connections (`+client|setname`).
    ///
    /// On the wire: one `CLIENT LIST` for each server; the reply is one line for each of its connections. For operators' tools.
    ///
    /// # Errors
    /// [`QueryError`], if no server answers.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn processes(&self) -> Result<Processes, QueryError> {
        stanchion_survey::processes(&self.handle).await
    }

    /// Returns each server that owns keys: one, or the masters of a cluster as they are known now.
    #[must_use]
    pub fn consoles(&self) -> Vec<Console> {
        stanchion_survey::consoles(&self.handle)
    }

    /// Returns the server that owns `key`; `None` if no server is known to own it.
    #[must_use]
    pub fn console_of(&self, key: &[u8]) -> Option<Console> {
        stanchion_survey::console_of(&self.handle, key)
    }
}

/// The observers that each client has, next to the one of its configuration.
fn observers() -> Vec<Arc<dyn Observer>> {
    #[cfg(feature = "metrics")]
    return vec![Arc::new(stanchion_metrics::Recorder::new())];
    #[cfg(not(feature = "metrics"))]
    Vec::new()
}

impl AsRef<Handle> for Client {
    fn as_ref(&self) -> &Handle {
        &self.handle
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.handle.id())
            .field("server", &self.handle.servers().name())
            .finish_non_exhaustive()
    }
}
