//! The client: the public interface to the state that the holds and waiters of one process share. [`Core`] is that state.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::agenda;
use crate::error::LostReason;
use crate::events::Lookouts;
use crate::free_by::FreeBy;
use crate::hold::losses::Losses;
use crate::hold::releases::{self, Releases};
use crate::hold::sweep::Leftover;
use crate::name::{InvalidName, Name};
use crate::observe::{Counts, beat, sink};
use crate::owner::Owner;
use crate::shared::Core;
use crate::survey::{self, Announcer, Looks, OwnHolds};
use crate::waiting::{LockEntries, Subscriptions};
use crate::wire_owner::WireOwner;
use stanchion_transport::{
    BootClock, ClientConfig, Clock, ConnectError, Destination, Messages, Moment, OnPush, Runner,
    ServerInfo, ServerUrl, WRITTEN, Wake, timeout,
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
    /// # use stanchion_core::Client;
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

    async fn start(mut config: ClientConfig, later: bool) -> Result<Self, ConnectError> {
        let sink = sink(config.observed_by());
        if let Some(sink) = &sink {
            // The links report to the same observer.
            config = config.observer(Arc::clone(sink));
        }
        let mut destination = Destination::of(&config).await?;
        if later {
            destination = destination.later();
        }
        let clock = config
            .seams()
            .clock
            .clone()
            .unwrap_or_else(|| Arc::new(BootClock));
        let id = identity(config.seams().identity);
        let closed = CancellationToken::new();
        // If a later step fails, this guard ends the parts that were started.
        let guard = closed.clone().drop_guard();
        let unreachable = |detail| destination.unreachable(detail);
        let runner = Runner::start(config.background, closed.clone())
            .await
            .map_err(|e| unreachable(format!("cannot start the background thread: {e}")))?;
        let runner = Arc::new(runner);
        let subscriptions =
            Subscriptions::new(Arc::clone(&clock), config.subscription_linger, config.wake);
        let writes = watch::Sender::new(0);
        let lookouts = Arc::<Lookouts>::default();
        let connecting = destination.connect(
            &config,
            &id,
            Arc::clone(&clock),
            Arc::clone(&runner),
            on_push(&subscriptions, &writes, &lookouts),
            closed.clone(),
        );
        // P9: one bound for the whole connect, not one for each step.
        #[expect(
            clippy::disallowed_methods,
            reason = "the machine's clock shows whether tokio's time is paused"
        )]
        let began = std::time::Instant::now();
        let (servers, facts) = timeout(config.connect_timeout, pin!(connecting))
            .await
            .unwrap_or_else(|| Err(destination.silent(config.connect_timeout, began.elapsed())))?;
        let (servers, placement) = (Arc::new(servers), facts.get().placement);
        if config.wake == Wake::Messages {
            runner.serve(Arc::clone(&subscriptions).serve(
                Arc::clone(&servers),
                Messages::of(placement),
                closed.clone(),
            ));
        }
        let rng = config
            .seams()
            .seed
            .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let presence = Announcer::new(&config, clock.now());
        let releases = Arc::new(Releases::new(&config, &servers));
        let core = Arc::new(Core {
            id,
            realm: servers.realm(facts.get(), destination.database(), &id),
            next_owner: AtomicU64::new(1),
            config,
            clock,
            servers,
            facts,
            placement,
            subscriptions,
            entries: LockEntries::default(),
            lookouts,
            writes,
            timetable: Arc::default(),
            losses: Losses::default(),
            releases,
            presence,
            labels: Arc::default(),
            looks: Looks::default(),
            own: OwnHolds::default(),
            runner,
            sink,
            counts: Counts::default(),
            rng: Mutex::new(rng),
            closing: CancellationToken::new(),
            closed: guard.disarm(),
        });
        core.runner.serve(agenda::run(
            Arc::downgrade(&core),
            Arc::clone(&core.timetable),
            core.closed.clone(),
        ));
        if core.servers.fails_over() {
            let changes = core.servers.changes();
            let (weak, releases) = (Arc::downgrade(&core), Arc::clone(&core.releases));
            let repeating = releases::run(weak, releases, changes, core.closed.clone());
            core.runner.serve(repeating);
        }
        let weak = Arc::downgrade(&core);
        core.subscriptions
            .on_notice(Arc::new(move |channel, payload| {
                if let Some(core) = weak.upgrade() {
                    core.noticed(channel, payload);
                }
            }));
        core.runner
            .serve(last_as_long(core.closing.clone(), core.closed.clone()));
        if let Some(sink) = &core.sink {
            let beat = beat::run(Arc::downgrade(&core), Arc::clone(sink), core.closed.clone());
            core.runner.serve(beat);
        }
        if core.presence.is_on() {
            core.runner.serve(survey::run(
                Arc::downgrade(&core),
                core.presence.bell(),
                core.closed.clone(),
            ));
        }
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

    /// The server's properties, as found during the connect. For a client that [connects later](Client::connect_lazy_with) they are unknown until
    /// then.
    #[must_use]
    pub fn server(&self) -> &ServerInfo {
        self.core.facts.get()
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
        Name::new(&self.core.config.key_prefix, name, self.core.placement)
    }

    /// The shared state, for [`Handle`](crate::primitive::Handle).
    pub(crate) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Stops acquiring, waits up to `grace` for the operations in flight, and closes.
    ///
    /// Waiting calls end with [`AcquireError::Shutdown`](crate::AcquireError::Shutdown). A call that is granted during the shutdown ends with it,
    /// too, and its hold is released. The shutdown waits for releases, awaited ones and those of dropped guards. Guards that are still alive are
    /// lost ([`LostReason::Shutdown`]) and reported. Their holds are not released, because the work under them may still run: they end with their
    /// leases.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the start: nothing new is acquired. The client is closed only if the call runs to its end.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let core = &self.core;
        let until = core.clock.now() + grace;
        core.closing.cancel();
        // P3: the waiting calls may be polled only after the last connection has closed, too late to give up their places.
        for (sync, leftover) in core.entries.places() {
            leftover.sweep(core, &sync);
        }
        drop(core.entries.standing());
        drop(core.entries.unclaimed());
        // P3: the same applies to calls that have a hold and continue to wait.
        for hold in core.timetable.holds() {
            if hold.is_withheld() && hold.end().is_ok() {
                hold.unschedule();
                Leftover::of(&hold).sweep(core, &hold.sync);
            }
        }
        core.runner.drain(grace).await;
        // A hold on its way to a local waiter, or its place in the line, has arrived by now, and no call takes it.
        drop(core.entries.standing());
        drop(core.entries.unclaimed());
        for hold in core.timetable.holds() {
            // From here on a release sees that the hold is lost, so the hold is not released.
            if hold.lost_reason(core.clock.now()).is_none() {
                hold.lose(LostReason::Shutdown);
            }
            hold.unschedule();
        }
        // P8: the report includes holds that were lost before and not released since.
        let abandoned = core.losses.abandon(core.clock.now());
        // Waits for the releases that began before the holds were lost.
        let mut unfinished = core.runner.drain(until.since(core.clock.now())).await;
        if !core.presence.leave(core, until).await {
            unfinished += 1;
        }
        core.closed.cancel();
        // The background thread may end before its supervisors have run.
        core.servers.end();
        ShutdownReport {
            unfinished,
            abandoned,
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
    /// The number of acquires, renewals, releases and clean-ups that were not answered within the grace; their leftovers end with the leases. A
    /// future that was polled once and not again counts as one. The [record](crate::Presence) of this client's holds and waits counts as one, too,
    /// unless its removal is certain; the record ends within 30 s.
    pub unfinished: usize,
    /// The holds whose guards were still alive. They include holds that had been lost at their ends ([`LostReason::Expired`],
    /// [`LostReason::MaxHold`]) so recently that the server may still keep them.
    pub abandoned: Vec<AbandonedHold>,
}

impl ShutdownReport {
    /// Returns whether nothing was left behind.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unfinished == 0 && self.abandoned.is_empty()
    }
}

/// A hold whose guard outlived its client. The hold may have been lost before, but the server may keep it until its lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AbandonedHold {
    /// The name that was held.
    pub name: Name,
    /// The owner that held it.
    pub owner: WireOwner,
    /// The time after which the lease has ended.
    pub free_by: FreeBy,
}

/// The receiver of all messages. Messages about written keys are counted and passed to event listeners, all others to waiters and holders.
fn on_push(
    subscriptions: &Arc<Subscriptions>,
    writes: &watch::Sender<u64>,
    lookouts: &Arc<Lookouts>,
) -> OnPush {
    let (messages, writes) = (subscriptions.on_push(), writes.clone());
    let lookouts = Arc::clone(lookouts);
    Arc::new(move |on, channel: &[u8], payload: &[u8]| {
        if channel == WRITTEN {
            writes.send_modify(|count| *count += 1);
            lookouts.written(payload);
        } else {
            messages(on, channel, payload);
        }
    })
}

/// Ends the client with the runtime of its background. With [`Background::CurrentRuntime`](crate::Background::CurrentRuntime) that runtime may end
/// first. After that nothing is renewed or woken, so waiting calls must end, too.
async fn last_as_long(closing: CancellationToken, closed: CancellationToken) {
    let _with_this = (closing.drop_guard(), closed.clone().drop_guard());
    closed.cancelled().await;
}

/// Makes a random UUID of version 8, "for vendors' own use". Redisson's are of version 4, so an operator can distinguish the owners.
fn identity(given: Option<u128>) -> Uuid {
    let bits = given.map_or_else(|| Uuid::new_v4().into_bytes(), u128::to_be_bytes);
    Uuid::new_v8(bits)
}
