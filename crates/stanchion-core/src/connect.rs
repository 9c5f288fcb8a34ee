//! The start and the end of a client: its connections, background tasks and extensions.

use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::agenda;
use crate::error::LostReason;
use crate::extension::{Extension, Extensions};
use crate::gauges;
use crate::hold::handle::Watch;
use crate::hold::holds::Holds;
use crate::hold::losses::{AbandonedHold, Losses};
use crate::hold::releases::{self, Releases};
use crate::primitive::Handle;
use crate::receiver::Subscriptions;
use crate::shared::Core;
use crate::waiting::LockEntries;
use crate::wire::Wire;
use stanchion_transport::{
    BootClock, ClientConfig, Clock, ConfigError, ConnectError, Counts, Destination, Messages,
    Observer, OnPush, Runner, WRITTEN, Wake, timeout,
};

impl Handle {
    /// Connects as `config` says, and starts the background tasks. With `later`, does not wait for the server. `observers` are told of events, next
    /// to the observer of `config`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        mut config: ClientConfig,
        later: bool,
        extensions: Vec<Arc<dyn Extension>>,
        observers: Vec<Arc<dyn Observer>>,
    ) -> Result<Self, ConnectError> {
        // Without this check the first timer would panic.
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConfigError::NoRuntime.into());
        }
        let sink =
            <dyn Observer>::of_all(observers.into_iter().chain(config.observed_by()).collect());
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
        let extensions = Arc::new(Extensions::new(extensions));
        let connecting = destination.connect(
            &config,
            &id,
            Arc::clone(&clock),
            Arc::clone(&runner),
            on_push(&subscriptions, &extensions),
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
        let releases = Arc::new(Releases::new(&config));
        let wire = Wire {
            id,
            realm: servers.realm(facts.get(), destination.database(), &id),
            next_owner: AtomicU64::new(1),
            config,
            clock,
            servers,
            facts,
            placement,
            runner,
            sink,
            rng: Mutex::new(rng),
            closing: CancellationToken::new(),
            closed: guard.disarm(),
        };
        let core = Arc::new_cyclic(|this: &Weak<Core>| Core {
            holds: Holds {
                wire,
                client: Weak::clone(this) as _,
                subscriptions,
                timetable: Arc::default(),
                losses: Losses::default(),
                releases,
                extensions,
                counts: Counts::default(),
            },
            entries: LockEntries::default(),
        });
        core.runner.serve(agenda::run(
            Arc::downgrade(&core.base()),
            Arc::clone(&core.timetable),
            core.closed.clone(),
        ));
        core.runner.serve(releases::run(
            Arc::downgrade(&core.base()),
            Arc::clone(&core.releases),
            core.servers.each_change(),
            core.closed.clone(),
        ));
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
            let gauges = gauges::run(Arc::downgrade(&core), Arc::clone(sink), core.closed.clone());
            core.runner.serve(gauges);
        }
        Ok(Self { core })
    }

    /// Stops acquiring, waits up to `grace` for the operations in flight and for the work of each `run`, and closes.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the start: nothing new is acquired. The client is closed only if the call runs to its end.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let core = &self.core;
        let until = core.clock.now() + grace;
        core.closing.cancel();
        // P3: the waiting calls may be polled only after the last connection has closed, too late to give up their places.
        for debt in core.entries.queued() {
            drop(debt.give_up());
        }
        drop(core.entries.standing());
        give_back(core);
        // P3: the same applies to calls that have a hold and continue to wait.
        for hold in core.live_holds() {
            if hold.is_withheld() && hold.end().is_ok() {
                hold.debt.sweep();
            }
        }
        core.runner.drain(grace).await;
        // The work of a `run` gets the rest of the grace, until its hold has been released. Until then, other guards can be released, too.
        let holds = core.live_holds();
        let working: Vec<_> = holds.iter().filter_map(Watch::of_work).collect();
        drop(holds);
        for watch in working {
            let left = until.since(core.clock.now());
            if timeout(left, pin!(watch.ended())).await.is_none() {
                break;
            }
        }
        // A hold on its way to a local waiter, or its place in the line, has arrived by now, and no call takes it.
        drop(core.entries.standing());
        give_back(core);
        for hold in core.live_holds() {
            // From here on a release sees that the hold is lost, so the hold is not released.
            if hold.lost_reason(core.clock.now()).is_none() {
                hold.lose(LostReason::Shutdown);
            }
        }
        // P8: the report includes holds that were lost before and not released since.
        let abandoned = core.losses.abandon(core.clock.now());
        // Waits for the releases that began before the holds were lost.
        let mut unfinished = core.runner.drain(until.since(core.clock.now())).await;
        for extension in core.extensions.iter() {
            if !extension.end(until).await {
                unfinished += 1;
            }
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

/// The leftovers of a shutdown.
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

/// The receiver of all messages. Messages about written keys go to the extensions, all others to waiters and holders.
fn on_push(subscriptions: &Arc<Subscriptions>, extensions: &Arc<Extensions>) -> OnPush {
    let (messages, extensions) = (subscriptions.on_push(), Arc::clone(extensions));
    Arc::new(move |on, channel: &[u8], payload: &[u8]| {
        if channel == WRITTEN {
            extensions.iter().for_each(|it| it.written(payload));
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

/// Gives the holds back that no task has taken. They end here, not when their releases begin.
fn give_back(core: &Arc<Core>) {
    for hold in core.entries.untaken() {
        hold.give_back();
    }
}
