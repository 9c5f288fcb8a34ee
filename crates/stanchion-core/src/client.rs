//! The client: the public face of what the holds and waiters of one process share. What that is stands in [`Core`].

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::acquire;
use crate::agenda;
use crate::description::Synchronizer;
use crate::error::{AcquireError, LostReason, QueryError};
use crate::hold::handle::Hold;
use crate::lease::Lease;
use crate::name::{InvalidName, Name, NameRule};
use crate::observe::{self, span};
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::shared::Core;
use crate::waiting::{LockEntries, Subscriptions};
use crate::wire_owner::WireOwner;
use stanchion_transport::{
    BootClock, Call, ClientConfig, Clock, ConnectError, Destination, Failure, Messages, Moment,
    Outage, Path, Placement, Reply, Runner, ServerInfo, ServerUrl, Wake,
};

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
    core: Arc<Core>,
}

/// The rule for sending a request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resend {
    /// Send it until it is answered. It may run more than once.
    UntilAnswered,
    /// Send it again only when it is known not to have run.
    Never,
}

/// The identity and the end of an operation that must happen once: see [`Client::operation`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// Its unique identity.
    pub id: WireOwner,
    /// Server time in µs after which its script must refuse. By then nobody waits for it, and nobody sends it again.
    pub not_after: u64,
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
        let destination = Destination::of(&config).await?;
        let clock = config
            .seams()
            .clock
            .clone()
            .unwrap_or_else(|| Arc::new(BootClock));
        let closed = CancellationToken::new();
        // A failure from here on ends the parts that were started.
        let guard = closed.clone().drop_guard();
        let unreachable = |detail| destination.unreachable(detail);
        let runner = Runner::start(config.background, closed.clone())
            .await
            .map_err(|e| unreachable(format!("cannot start the background thread: {e}")))?;
        let runner = Arc::new(runner);
        let subscriptions =
            Subscriptions::new(Arc::clone(&clock), config.subscription_linger, config.wake);
        let connecting = destination.connect(
            &config,
            Arc::clone(&clock),
            Arc::clone(&runner),
            subscriptions.on_push(),
            closed.clone(),
        );
        // P9: one bound on everything, not one for each step.
        let (servers, server) = tokio::time::timeout(config.connect_timeout, connecting)
            .await
            .unwrap_or_else(|_| {
                let limit = humantime::format_duration(config.connect_timeout);
                Err(unreachable(format!("no answer within {limit}")))
            })?;
        let servers = Arc::new(servers);
        if config.wake == Wake::Messages {
            runner.serve(Arc::clone(&subscriptions).serve(
                Arc::clone(&servers),
                messages(server.placement),
                closed.clone(),
            ));
        }
        let rng = config
            .seams()
            .seed
            .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let id = identity(config.seams().identity);
        let core = Arc::new(Core {
            id,
            realm: servers.realm(&server, destination.database(), &id),
            next_owner: AtomicU64::new(1),
            config,
            clock,
            servers,
            server,
            subscriptions,
            entries: LockEntries::default(),
            timetable: Arc::default(),
            runner,
            rng: Mutex::new(rng),
            closing: CancellationToken::new(),
            closed: guard.disarm(),
        });
        core.runner.serve(agenda::run(
            Arc::downgrade(&core),
            Arc::clone(&core.timetable),
            core.closed.clone(),
        ));
        Ok(Self { core })
    }

    /// The client's identity: the first part of every owner it makes.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.core.id
    }

    /// The current moment on the client's clock, which `valid_until` of guards refers to.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.core.clock.now()
    }

    /// A new owner, for acquires that re-enter each other.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::new(self.core.next_wire_owner())
    }

    /// The server's properties, as found when connecting.
    #[must_use]
    pub fn server(&self) -> &ServerInfo {
        &self.core.server
    }

    /// Returns whether a request would find a connection now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.core.servers.is_up()
    }

    /// The number of calls that wait in this client's queues now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.core.entries.waiters()
    }

    /// `name` with the client's key prefix, checked for the server's placement of keys.
    ///
    /// # Errors
    /// [`InvalidName`]; nothing is sent.
    pub fn name(&self, name: impl AsRef<[u8]>) -> Result<Name, InvalidName> {
        Name::new(
            &self.core.config.key_prefix,
            name,
            self.core.server.placement,
        )
    }

    /// As [`Client::name`], for primitives whose derived keys must not be those of another name.
    ///
    /// # Errors
    /// [`InvalidName`]; nothing is sent.
    pub fn name_that_shares_nothing(&self, name: impl AsRef<[u8]>) -> Result<Name, InvalidName> {
        let name = self.name(name)?;
        if name.is_wrapped() {
            return Err(InvalidName {
                name: name.to_string(),
                rule: NameRule::SharesQueue,
            });
        }
        Ok(name)
    }

    /// As [`Client::name`], for primitives whose derived names always have braces of their own.
    ///
    /// # Errors
    /// [`InvalidName`]; nothing is sent.
    pub fn name_without_braces(&self, name: impl AsRef<[u8]>) -> Result<Name, InvalidName> {
        let name = self.name(name)?;
        let slots = self.core.server.placement == Placement::Slots;
        if slots && name.as_bytes().iter().any(|b| matches!(b, b'{' | b'}')) {
            return Err(InvalidName {
                name: name.to_string(),
                rule: NameRule::Braces,
            });
        }
        Ok(name)
    }

    /// Stops acquiring, waits up to `grace` for the operations under way, and closes.
    ///
    /// Calls that wait end with [`AcquireError::Shutdown`]; so does one that is granted meanwhile, and its hold is released.
    /// The shutdown waits for releases, awaited ones and those of dropped guards. Guards that are still alive are lost
    /// ([`LostReason::Shutdown`]) and reported; their holds are not released, because the work under them may still run: they
    /// end with their leases.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the start: nothing new is acquired. The client is closed only if the call runs to its
    /// end.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let core = &self.core;
        let until = core.clock.now() + grace;
        core.closing.cancel();
        // P3: the waiting calls may run, and give up their places, only after the last connection has closed.
        for (sync, leftover) in core.entries.places() {
            leftover.sweep(core, &sync);
        }
        drop(core.entries.unclaimed());
        core.runner.drain(grace).await;
        // A hold that was being handed to a local waiter has arrived by now, and nobody takes it.
        drop(core.entries.unclaimed());
        let mut abandoned = Vec::new();
        for hold in core.timetable.holds() {
            // From here on a release finds it lost, so it is not released.
            if hold.lost_reason(core.clock.now()).is_none()
                && hold.lose(LostReason::Shutdown).is_some()
            {
                abandoned.push(AbandonedHold {
                    name: hold.sync.name().clone(),
                    owner: hold.owner.clone(),
                    free_by: hold.free_by(),
                });
            }
            hold.unschedule();
        }
        // The releases that began before that.
        let unfinished = core.runner.drain(until.since(core.clock.now())).await;
        core.closed.cancel();
        // The background thread may end before its supervisors have run.
        core.servers.end();
        ShutdownReport {
            unfinished,
            abandoned,
        }
    }

    /// For primitives: acquires, waiting as `options` say; `lease` applies if they have none.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn acquire(
        &self,
        sync: &Arc<dyn Synchronizer>,
        options: AcquireOptions,
        lease: Lease,
    ) -> Result<Hold, AcquireError> {
        self.open(sync)?;
        let started = self.started();
        let result = acquire::acquire(&self.core, sync, options, lease)
            .instrument(span!("acquire", sync))
            .await;
        self.waited(sync, started, &result, |_| true);
        result
    }

    /// The start of a wait, where waits are measured.
    fn started(&self) -> Option<Moment> {
        cfg!(feature = "metrics").then(|| self.now())
    }

    /// Records the time and the outcome of a wait, where waits are measured.
    fn waited<T>(
        &self,
        sync: &Arc<dyn Synchronizer>,
        started: Option<Moment>,
        result: &Result<T, AcquireError>,
        granted: impl FnOnce(&T) -> bool,
    ) {
        if let Some(started) = started {
            let outcome = observe::outcome(result, granted);
            observe::waited(sync.kind(), outcome, self.now().since(started));
        }
    }

    /// For primitives: asks once. `Ok(None)`: another owner holds.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn try_acquire(
        &self,
        sync: &Arc<dyn Synchronizer>,
        options: AcquireOptions,
        lease: Lease,
    ) -> Result<Option<Hold>, AcquireError> {
        self.open(sync)?;
        let started = self.started();
        let result = acquire::try_acquire(&self.core, sync, options, lease)
            .instrument(span!("try_acquire", sync))
            .await;
        self.waited(sync, started, &result, Option::is_some);
        result
    }

    /// For primitives: waits for something that leaves no hold.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn wait(
        &self,
        sync: &Arc<dyn Synchronizer>,
        timeout: Option<Duration>,
    ) -> Result<(), AcquireError> {
        let options = AcquireOptions {
            timeout,
            ..AcquireOptions::default()
        };
        // A hold of `Tenure::Nothing`: there is nothing to release.
        self.acquire(sync, options, Lease::default())
            .await
            .map(drop)
    }

    /// For primitives: an identity and an end for one operation that must happen once, however often it is sent (P6).
    #[must_use]
    pub fn operation(&self) -> Operation {
        let core = &self.core;
        Operation {
            id: core.next_wire_owner(),
            not_after: core.servers.earliest(
                (core.clock.now() + core.config.operation_timeout + core.config.silence_limit())
                    .micros(),
            ),
        }
    }

    /// For primitives: the command that reaches subscribers on this kind of server, `PUBLISH` or `SPUBLISH`.
    #[must_use]
    pub fn publish_command(&self) -> &'static str {
        // As Redisson: sharded messages on a cluster, plain ones everywhere else.
        match messages(self.core.server.placement) {
            Messages::Sharded => "SPUBLISH",
            Messages::Plain => "PUBLISH",
        }
    }

    /// For primitives: the longest time after which a waiter that got no message asks again.
    #[must_use]
    pub fn poll_interval(&self) -> Duration {
        self.core.config.poll_interval
    }

    /// For primitives: runs a script until it is answered or the operation timeout has passed. One that must not run
    /// twice is not sent again after its answer was lost.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn query(&self, call: &Call, resend: Resend) -> Result<Reply, QueryError> {
        let core = &self.core;
        let timeout = core.config.operation_timeout;
        let until = core.clock.now() + timeout;
        let asking = async {
            loop {
                match core.call(Path::Direct, call).await {
                    Ok(reply) => return Ok(reply),
                    Err(Failure::Rejected(rejection)) => {
                        return Err(QueryError::Rejected {
                            rejection: rejection.into(),
                        });
                    }
                    Err(Failure::Unanswered(outage)) if resend == Resend::Never => {
                        return Err(QueryError::Unanswered { outage });
                    }
                    Err(Failure::Unanswered(outage) | Failure::NotNow(outage)) => {
                        if core.clock.now() >= until {
                            return Err(QueryError::Unavailable { outage });
                        }
                    }
                }
                core.recover(until).await;
            }
        };
        tokio::time::timeout(timeout, asking)
            .await
            .unwrap_or_else(|_| {
                let detail = format!("nothing within {}", humantime::format_duration(timeout));
                Err(QueryError::Unavailable {
                    outage: Outage::Unanswered { detail },
                })
            })
    }

    /// Fails if the client is closing.
    fn open(&self, sync: &Arc<dyn Synchronizer>) -> Result<(), AcquireError> {
        if self.core.closing.is_cancelled() {
            Err(AcquireError::Shutdown {
                name: sync.name().clone(),
            })
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.core.id)
            .field("server", &self.core.servers.name())
            .finish_non_exhaustive()
    }
}

/// The leftovers of a [`Client::shutdown`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The number of acquires, renewals, releases and clean-ups that were not answered within the grace; the leases end what
    /// they leave. A future that was polled once and not again counts as one.
    pub unfinished: usize,
    /// The holds whose guards were still alive.
    pub abandoned: Vec<AbandonedHold>,
}

impl ShutdownReport {
    /// Returns whether nothing was left behind.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unfinished == 0 && self.abandoned.is_empty()
    }
}

/// A hold whose guard outlived its client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AbandonedHold {
    /// The name that was held.
    pub name: Name,
    /// The owner that held it.
    pub owner: WireOwner,
    /// The time after which the lease has ended.
    pub free_by: Duration,
}

/// Makes a random UUID of version 8, "for vendors' own use". Redisson's are of version 4, so an operator can tell the owners
/// apart.
fn identity(given: Option<u128>) -> Uuid {
    let bits = given.map_or_else(|| Uuid::new_v4().into_bytes(), u128::to_be_bytes);
    Uuid::new_v8(bits)
}

/// The kind of messages to use, as Redisson: sharded ones on a cluster, plain ones everywhere else.
fn messages(placement: Placement) -> Messages {
    if placement == Placement::Slots {
        Messages::Sharded
    } else {
        Messages::Plain
    }
}
