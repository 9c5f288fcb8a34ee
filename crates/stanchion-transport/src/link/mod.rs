//! A link: one multiplexed connection to one server, reopened until the client is closed.
//!
//! # Life of a link
//! 1. [`Link::new`] returns a link without a connection: phase [`Phase::Starting`]. A [supervisor](supervise) task connects it.
//! 2. The supervisor connects and [installs](Link::install) the connection ([`Live`]). Calls can be sent from here on. Then
//!    it enters [`Phase::Up`] with the number of the connection, and subscriptions can be made.
//! 3. Each call clones the [`Live`] that it finds and sends on it. A call has no timer of its own: it ends with its reply or
//!    with its connection.
//! 4. The connection ends: the peer closes it, the supervisor drops it because it is silent, or a call drops the connection to a
//!    server that has become a replica (`READONLY`). Every call on it fails at once, as ambiguous. The link enters [`Phase::Down`]
//!    and returns to step 2 after a pause. Calls made in between fail without being sent.
//! 5. The client closes, or the runtime of the connection ends: [`Phase::Ended`]. This phase is final.
//!
//! The redis crate's own reconnecting connections are not used: they never reconnect after a timeout, stop after six
//! tries, and do not resubscribe an idle subscriber.
//!
//! Long: the phases of one connection and the calls that depend on them.

mod exchange;
pub(crate) mod health;
pub(crate) mod login;
mod opening;
mod pace;
mod supervise;

use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::config::ClientConfig;
use crate::error::{ConnectError, Outage};
use crate::failure::{NO_SCRIPT, is_of_replica, judge};
use crate::link::exchange::Books;
use crate::link::health::Health;
use crate::observer::Observing;
use crate::server_clock::ServerClock;
use crate::server_info::{Facts, Placement};
use crate::url::Login;
use crate::{Call, Connector, Failure, Reply};
use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

/// A callback for every message: the connection on which the message arrived, its channel and its payload. The callback runs
/// on the thread of the connection's driver, so it must not block.
pub type OnPush = Arc<dyn Fn(ConnectionId, &[u8], &[u8]) + Send + Sync>;

/// The channel name under which a connection reports that keys which it has read were written (`CLIENT TRACKING`). The
/// payload is the key. An empty payload means all keys.
pub const WRITTEN: &[u8] = b"__redis__:invalidate";

/// The phase of a link's life; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first attempt to connect has not ended.
    Starting,
    /// Connected. The number counts the connections of this link, from 1.
    Up(u64),
    /// Not connected; the supervisor will retry. Carries the last error.
    Down(ConnectError),
    /// The runtime of the connection has ended, or the client was closed. Final.
    Ended,
}

/// The two reasons for [`Phase::Ended`].
const ENDED: &str = "the client was shut down, or the runtime of the connection has ended";

/// The kind of server that a link accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The server that a name leads to. Once it was a master, or has refused a write as a replica, the link accepts only a master
    /// ([`Facts::needs_master`]). Before that a replica is accepted, for clients that only read.
    Server,
    /// The master of a set with changing roles, or of a cluster. The link drops the connection to a server in another role.
    Master,
    /// A sentinel.
    Sentinel,
}

/// The notifications that the links of a client share. Supervisors send them. Calls that retry, subscriptions and other
/// supervisors wait for them.
#[derive(Debug, Default)]
pub(crate) struct Stir {
    /// Counts the changes of phase and of the cluster map.
    changes: watch::Sender<u64>,
    /// Fires with each change, for the one task that sends releases again. A `Notify` of its own, because a `watch` wakes two receivers in
    /// random order.
    changed: Arc<Notify>,
    /// Fires when a connection comes up. A `Notify` and not a `watch`, because a `Notify` wakes its waiters in order of arrival.
    up: Notify,
    /// Fires when links that pause between attempts should connect at once.
    hurry: Notify,
    /// The number of masters that were replaced, according to the sentinels. Stays 0 without sentinels.
    replaced: AtomicU64,
    /// The number of times that a server came back as another process, perhaps with older data.
    restarts: AtomicU64,
}

impl Stir {
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn each_change(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Resolves the next time that a connection comes up or the cluster map changes.
    pub(crate) fn comes_up(&self) -> Notified<'_> {
        self.up.notified()
    }

    /// Ends the pauses of links between attempts: a server that could not be reached may be reachable now.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_waiters();
    }

    /// Resolves at the next [`Stir::hurry`].
    pub(crate) fn hurried(&self) -> Notified<'_> {
        self.hurry.notified()
    }

    /// Records that the sentinels name a new master.
    pub(crate) fn another_master(&self) {
        self.replaced.fetch_add(1, Ordering::AcqRel);
        self.changed();
    }

    /// Returns the number of masters that were replaced so far.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }

    /// Records that a server came back as another process.
    pub(crate) fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::AcqRel);
        self.changed();
    }

    /// Returns the number of restarts so far.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Acquire)
    }

    pub(crate) fn changed(&self) {
        // The value is a count, so a receiver that was busy sees that something changed, however often it changed.
        self.changes.send_modify(|n| *n += 1);
        self.changed.notify_one();
    }

    pub(crate) fn came_up(&self) {
        self.changed();
        self.up.notify_waiters();
    }
}

/// The identity of one connection of one link. A subscription belongs to it and ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    link: u64,
    connection: u64,
}

impl ConnectionId {
    /// For tests.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(link: u64, connection: u64) -> Self {
        Self { link, connection }
    }
}

/// The settings of a link.
pub(crate) struct Plan {
    /// The server, without credentials, for messages.
    pub(crate) server: String,
    pub(crate) peer: Peer,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) login: Login,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) server_clock: Arc<ServerClock>,
    pub(crate) stir: Arc<Stir>,
    pub(crate) health: Arc<Health>,
    /// The receiver of messages. With it the link speaks RESP3, without it RESP2.
    pub(crate) on_push: Option<OnPush>,
    /// The name of the connection in `CLIENT LIST`.
    pub(crate) name: Option<String>,
}

/// A handle to one supervised connection; clones share it. See the module.
#[derive(Clone)]
pub struct Link(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    id: u64,
    pub(crate) plan: Plan,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    /// Receives an event when a lost connection is open again.
    pub(crate) observing: Option<Observing>,
    /// The seed for the jitter of the pauses, for tests.
    pub(crate) seed: Option<u64>,
    /// The facts about the server, read on a new connection before its first call if the client does not know them yet.
    pub(crate) facts: Option<Arc<Facts>>,
    /// The connection on which calls are sent. Every call reads it. The supervisor sets it. The supervisor,
    /// [`Link::drop_connection`] and [`Link::end`] clear it. The lock is held only to clone or to replace the `Arc`.
    current: RwLock<Option<Arc<Live>>>,
    /// Changed by the supervisor and by [`Link::end`]: to [`Phase::Up`] after `current` is set, to [`Phase::Down`] after
    /// `current` is cleared.
    phase: watch::Sender<Phase>,
}

/// One open connection. A call keeps the connection on which it began until the call ends, even if the link drops it earlier.
pub(crate) struct Live {
    /// Cloned by each call, because sending needs exclusive access.
    pub(crate) connection: MultiplexedConnection,
    /// The task that moves bytes, on the runtime of the connection.
    pub(crate) driver: AbortHandle,
    /// Signals that the link has dropped the connection. The signal ends the calls even while the driver's runtime is blocked.
    pub(crate) over: End,
    /// Changed by calls that unsubscribe and by the driver. The supervisor waits for its signal.
    pub(crate) stops: Arc<Stops>,
    /// Changed by calls and by the wakes of the driver. The supervisor reads it.
    pub(crate) books: Books,
    /// Set once a script was answered or a subscription confirmed on this connection. Set by calls, read by the supervisor.
    pub(crate) served: AtomicBool,
    /// The refusal by which the server showed that it is a replica. Set by the call that drops the connection, read by the supervisor.
    pub(crate) refusal: OnceLock<String>,
    /// The time for which the login of this connection is valid, if the login expires.
    pub(crate) login_ends: Option<Duration>,
}

/// The end of a connection. Calls that wait for their replies on this connection wait for its end, too.
#[derive(Debug, Default)]
pub(crate) struct End {
    reached: AtomicBool,
    /// Wakes the calls, at the end and at each reminder.
    bell: Notify,
}

impl End {
    fn reach(&self) {
        self.reached.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    /// Wakes every call that waits for a reply, so that its caller can compare its deadline with the clock.
    pub(crate) fn remind(&self) {
        self.bell.notify_waiters();
    }

    async fn reached(&self) {
        loop {
            // Created before the flag is read, so that a ring after the read still wakes this task.
            let rung = self.bell.notified();
            if self.reached.load(Ordering::Acquire) {
                return;
            }
            rung.await;
        }
    }
}

/// The unsubscriptions of shard channels that the server has not confirmed yet.
///
/// A server that gives a slot away also ends the subscriptions of the slot's channels. The redis crate takes that message
/// for the reply to the oldest request, and from then on every reply reaches the wrong request. The supervisor therefore
/// drops a connection with an end of subscription that was not requested.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// One entry for each `SUNSUBSCRIBE` in flight: added before it is sent, removed by the driver when it is confirmed.
    asked: Mutex<Vec<Vec<u8>>>,
    /// Fires when a subscription ends without a request of this client.
    pub(crate) unasked: Notify,
}

impl Stops {
    fn asked(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, channel: &[u8]) {
        self.asked().push(channel.to_vec());
    }

    /// Handles the confirmation of a stop. A confirmation without a request fires `unasked`.
    pub(crate) fn stopped(&self, channel: &[u8]) {
        if !self.forget(channel) {
            // `notify_one` stores a permit: the supervisor may be waiting for its probe when the signal fires.
            self.unasked.notify_one();
        }
    }

    /// Removes one entry of `channel`, after the server has confirmed or refused. Returns whether there was an entry.
    fn forget(&self, channel: &[u8]) -> bool {
        let mut asked = self.asked();
        let at = asked.iter().position(|other| other == channel);
        // One entry only, because a channel can be stopped again before the first confirmation.
        at.map(|at| asked.swap_remove(at)).is_some()
    }
}

impl Live {
    async fn send(&self, cmd: &Cmd) -> Result<redis::Value, redis::RedisError> {
        let mut connection = self.connection.clone();
        self.answered(pin!(connection.send_packed_command(cmd)))
            .await
    }

    /// Sends `ASKING` and the command as one pipeline, so that no other command comes between them.
    async fn send_asking(&self, cmd: &Cmd) -> Result<redis::Value, redis::RedisError> {
        let mut both = redis::pipe();
        // The first reply, to `ASKING`, is skipped even if it is an error: then the script gets `MOVED` and does not run.
        both.cmd("ASKING").add_command(cmd.clone());
        let mut connection = self.connection.clone();
        let replies = pin!(connection.send_packed_commands(&both, 1, 1));
        // The redis crate returns as many replies as requested here: one.
        let reply = self.answered(replies).await?.pop();
        Ok(reply.unwrap_or(redis::Value::Nil))
    }

    /// Waits for the reply to `asking`. Fails when the link drops the connection.
    ///
    /// The caller pins the future. If it were passed by value, the future of every request would contain it several times and move it as often.
    async fn answered<T>(
        &self,
        asking: Pin<&mut impl Future<Output = Result<T, redis::RedisError>>>,
    ) -> Result<T, redis::RedisError> {
        tokio::select! {
            biased;
            // The reply is checked first: an arrived reply is a definite answer, even if the link was dropped in the same moment (P8).
            reply = self.books.enter(asking) => reply,
            // The error has no code, so `judge` calls it ambiguous.
            () = self.over.reached() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }
}

impl Link {
    /// Returns a link that is not connected yet. [`Link::supervise`] connects it.
    pub(crate) fn new(config: &ClientConfig, plan: Plan) -> Self {
        Self::made(config, plan, None)
    }

    /// Like [`Link::new`], for a link to a node. `facts` are read on the first connection if the client does not know them yet.
    pub(crate) fn of_node(config: &ClientConfig, plan: Plan, facts: Arc<Facts>) -> Self {
        Self::made(config, plan, Some(facts))
    }

    fn made(config: &ClientConfig, plan: Plan, facts: Option<Arc<Facts>>) -> Self {
        // The numbers are unique in the process: a `ConnectionId` must not match one of another node or client.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            plan,
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
            observing: config.observing.clone(),
            seed: config.seams.seed,
            facts,
            current: RwLock::new(None),
            phase: watch::Sender::new(Phase::Starting),
        }))
    }

    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.0.phase.subscribe()
    }

    /// Waits until the first attempt to connect has ended.
    pub(crate) async fn settled(&self) -> Result<(), ConnectError> {
        let mut phase = self.phase();
        // OK: the sender lives in the link, which is borrowed here.
        match phase
            .wait_for(|phase| *phase != Phase::Starting)
            .await
            .as_deref()
        {
            Ok(Phase::Down(error)) => Err(error.clone()),
            Ok(Phase::Ended) | Err(_) => Err(ConnectError::Unreachable {
                server: self.server().into(),
                detail: ENDED.into(),
            }),
            Ok(_) => Ok(()),
        }
    }

    /// Returns the identity of the current connection, while the link is up.
    pub fn connection_id(&self) -> Option<ConnectionId> {
        // The number comes from the phase, not from `current`, which does not contain it. Subscriptions are made only while
        // the link is up.
        match &*self.0.phase.borrow() {
            Phase::Up(connection) => Some(self.numbered(*connection)),
            _ => None,
        }
    }

    /// Returns the identity of the connection with this number.
    pub(crate) fn numbered(&self, connection: u64) -> ConnectionId {
        ConnectionId::new(self.0.id, connection)
    }

    pub(crate) fn enter(&self, phase: Phase) {
        let up = matches!(phase, Phase::Up(_));
        // `send` would discard the value while there is no receiver.
        self.0.phase.send_replace(phase);
        if up {
            self.0.plan.stir.came_up();
        } else {
            self.0.plan.stir.changed();
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.0
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Returns whether the connection was lost or the last attempt to open one failed.
    pub fn is_down(&self) -> bool {
        matches!(&*self.0.phase.borrow(), Phase::Down(_))
    }

    pub(crate) fn server(&self) -> &str {
        &self.0.plan.server
    }

    /// Returns whether calls are sent on `live`.
    pub(crate) fn is_current(&self, live: &Arc<Live>) -> bool {
        self.live()
            .is_some_and(|current| Arc::ptr_eq(&current, live))
    }

    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.0
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns whether the link accepts only a master.
    pub(crate) fn needs_master(&self) -> bool {
        match self.0.plan.peer {
            Peer::Master => true,
            Peer::Sentinel => false,
            Peer::Server => self.0.facts.as_ref().is_some_and(|it| it.needs_master()),
        }
    }

    /// Drops the connection if `failure` shows that its server is a replica. The next connection resolves the server's name again, or
    /// queries the sentinels.
    fn leave_replica(&self, live: &Arc<Live>, failure: &Failure) {
        if !is_of_replica(failure) {
            return;
        }
        let Failure::NotNow(outage) = failure else {
            return;
        };
        tracing::debug!(server = self.server(), %outage, "leaving a replica");
        // The other links of this server notice at their next call or probe.
        if let Some(facts) = &self.0.facts {
            facts.refused_write();
        }
        // The first refusal is as good as a later one.
        let _ = live.refusal.set(outage.to_string());
        // Never drops a newer connection: the caller may have polled this answer long after it arrived.
        self.drop_connection_if(|current| Arc::ptr_eq(current, live));
    }

    /// Returns the reason why there is no connection.
    pub(crate) fn outage(&self) -> Outage {
        let detail = match &*self.0.phase.borrow() {
            Phase::Down(error) => error.reason_at(self.server()),
            Phase::Ended => ENDED.into(),
            // `Up` without a connection: the connection was dropped, and the supervisor has not changed the phase yet.
            Phase::Starting | Phase::Up(_) => "connecting".into(),
        };
        Outage::Disconnected {
            server: self.0.plan.server.clone(),
            detail,
        }
    }

    /// Runs a script: EVALSHA, then EVAL if the server does not know it.
    ///
    /// Dropping the future does not cancel the script: the server may still run it.
    pub(crate) async fn call(&self, call: &Call) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            // The call is not queued for the next connection. Nothing was sent, so the caller decides if and when to retry.
            return Err(Failure::NotNow(self.outage()));
        };
        let answer = match judge(live.send(&call.cmd).await) {
            // Boxed, because this is rare and every request carries this future. Nothing has run, so EVAL cannot run the
            // script twice (P6). The script is unknown after a restart, `SCRIPT FLUSH` or a failover.
            Err((code, _)) if code == NO_SCRIPT => {
                judge(Box::pin(live.send(&call.with_text())).await)
            }
            other => other,
        };
        // An error reply counts, too, because it shows that the connection works. The backoff is for peers that hang up
        // before they answer (`STEADY`).
        if !matches!(answer, Err((_, Failure::Unanswered(_)))) {
            // `Relaxed`: the supervisor reads the flag after the connection has ended. A late write only costs a longer pause.
            live.served.store(true, Ordering::Relaxed);
        }
        answer.map_err(|(_, failure)| {
            self.leave_replica(&live, &failure);
            failure.about(call)
        })
    }

    /// Runs a script, as [`Link::call`], on a node that is importing the slot.
    pub(crate) async fn call_asking(&self, call: &Call) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let answer = match judge(live.send_asking(&call.cmd).await) {
            // `ASKING` is valid for one command, so EVAL needs another one.
            Err((code, _)) if code == NO_SCRIPT => judge(live.send_asking(&call.with_text()).await),
            other => other,
        };
        answer.map_err(|(_, failure)| {
            self.leave_replica(&live, &failure);
            failure
        })
    }

    /// Runs a plain command.
    pub(crate) async fn command(
        &self,
        parts: &[impl AsRef<[u8]> + Sync],
    ) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let answer = plain(&live, parts).await;
        answer.inspect_err(|failure| self.leave_replica(&live, failure))
    }

    /// Runs plain commands in one write. An error reply fails its own command only.
    pub(crate) async fn commands(
        &self,
        commands: &[Vec<&[u8]>],
    ) -> Result<Vec<Result<Reply, Failure>>, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        // The redis crate would wait for a reply.
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let mut all = redis::pipe();
        for parts in commands {
            all.add_command(of_parts(parts));
        }
        let mut connection = live.connection.clone();
        let replies = pin!(connection.send_packed_commands(&all, 0, commands.len()));
        match live.answered(replies).await {
            Ok(replies) => Ok(replies
                .into_iter()
                .map(|reply| {
                    judge(Ok(reply)).map_err(|(_, failure)| {
                        self.leave_replica(&live, &failure);
                        failure
                    })
                })
                .collect()),
            // Always an error.
            Err(error) => judge(Err(error))
                .map(|reply| vec![Ok(reply)])
                .map_err(|(_, failure)| failure),
        }
    }

    /// Subscribes to a channel, or unsubscribes from it. Returns when the server has confirmed.
    ///
    /// A shard subscription is accepted only at a master. Replicas confirm such subscriptions, too, and forward the messages of their master. But the
    /// master does not count their subscribers as receivers, so its script may revoke a grant that such a subscriber receives (P1).
    ///
    /// # Errors
    /// [`Failure`]: the server refused or is a replica, or there is no connection.
    pub async fn subscribe(
        &self,
        channel: &[u8],
        on: Subscribe,
        kind: Messages,
    ) -> Result<(), Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        // Each command has one channel. The server confirms each channel with a message of its own, and the redis crate
        // takes the first confirmation for the reply: a second one would answer the next request. A server also refuses
        // shard channels of several slots in one command.
        let command = match (kind, on) {
            (Messages::Plain, Subscribe::Start) => "SUBSCRIBE",
            (Messages::Plain, Subscribe::Stop) => "UNSUBSCRIBE",
            (Messages::Sharded, Subscribe::Start) => "SSUBSCRIBE",
            (Messages::Sharded, Subscribe::Stop) => {
                // Recorded before the request is sent, because the driver may see the confirmation before this task runs
                // again. Plain subscriptions need no record: a server ends them only with their connection.
                live.stops.ask(channel);
                "SUNSUBSCRIBE"
            }
        };
        let mut cmd = Cmd::new();
        cmd.arg(command).arg(channel);
        let answer = judge(live.send(&cmd).await);
        // A stale entry would match a later, unrequested end of this channel. The redis crate would take that message for
        // the reply to another request, and the connection would not be dropped.
        if answer.is_err() && (kind, on) == (Messages::Sharded, Subscribe::Stop) {
            live.stops.forget(channel);
        }
        answer.map_err(|(_, failure)| failure)?;
        if (kind, on) == (Messages::Sharded, Subscribe::Start) {
            // The role is checked after the subscription: a later demotion ends the subscription, an earlier one is seen here.
            let role = supervise::is_master(&live).await;
            role.map_err(|detail| {
                Failure::NotNow(Outage::Refused {
                    code: "MOVED".into(),
                    detail,
                })
            })?;
        }
        live.served.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Closes the link, which does not reconnect afterwards.
    pub(crate) fn end(&self) {
        // The phase changes first: `install` checks the phase after it has set a connection, and a connection set earlier is dropped here.
        self.enter(Phase::Ended);
        // The supervisor cannot do this, because its runtime may have ended.
        self.drop_connection();
    }

    /// Makes `live` the connection that calls are sent on.
    pub(crate) fn install(&self, live: Live) {
        *self
            .0
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(live));
        // An attempt on a runtime that still runs may succeed after the link has ended.
        if matches!(*self.0.phase.borrow(), Phase::Ended) {
            self.drop_connection();
        }
    }

    pub(crate) fn login(&self) -> &Login {
        &self.0.plan.login
    }

    /// Returns the time for which the current connection's login is valid, if the login expires.
    pub(crate) fn login_ends(&self) -> Option<Duration> {
        self.live()?.login_ends
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.0.connect_timeout
    }

    pub(crate) fn now(&self) -> Moment {
        self.0.plan.clock.now()
    }

    /// Drops the current connection. Every call on it fails at once.
    pub(crate) fn drop_connection(&self) {
        self.drop_connection_if(|_| true);
    }

    fn drop_connection_if(&self, matches: impl FnOnce(&Arc<Live>) -> bool) {
        // The connection is removed under the lock and ended after it: the end wakes the calls, and they read `current` when
        // they retry.
        let live = self
            .0
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take_if(|live| matches(live));
        if let Some(live) = live {
            // `reach` comes before the abort, because the abort takes effect only when the driver's runtime runs.
            live.over.reach();
            live.driver.abort();
        }
    }

    /// Reads the server's clock, after the server refused a request as late.
    pub(crate) async fn synchronise(&self) {
        // Read before the request is sent: see `Reading::offset`. If the request fails, the old reading stays, and the next
        // late refusal causes another read.
        let asked = self.now();
        if let Ok(reply) = self.command(&["TIME"]).await {
            self.observe_time(&reply, asked.micros());
        }
    }
}

/// The two directions of [`Link::subscribe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscribe {
    /// To start.
    Start,
    /// To stop.
    Stop,
}

/// A link without a supervisor. Dropping this value ends the link.
pub(crate) struct OnceConnected(pub(crate) Link);

impl Drop for OnceConnected {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The two kinds of messages: published at any node, or only at the owner of the channel's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messages {
    /// `PUBLISH`.
    Plain,
    /// `SPUBLISH`, on a cluster.
    Sharded,
}

impl Messages {
    /// Returns the kind that Redisson uses as well: sharded messages on a cluster, plain ones everywhere else.
    #[must_use]
    pub const fn of(placement: Placement) -> Self {
        match placement {
            Placement::Slots => Self::Sharded,
            Placement::Anywhere => Self::Plain,
        }
    }

    /// The command that publishes a message of this kind.
    #[must_use]
    pub const fn publish_command(self) -> &'static str {
        match self {
            Self::Plain => "PUBLISH",
            Self::Sharded => "SPUBLISH",
        }
    }
}

pub(crate) async fn plain(
    live: &Live,
    parts: &[impl AsRef<[u8]> + Sync],
) -> Result<Reply, Failure> {
    judge(live.send(&of_parts(parts)).await).map_err(|(_, failure)| failure)
}

fn of_parts(parts: &[impl AsRef<[u8]>]) -> Cmd {
    let mut cmd = Cmd::new();
    for part in parts {
        cmd.arg(part.as_ref());
    }
    cmd
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("server", &self.0.plan.server)
            .field("phase", &*self.0.phase.borrow())
            .finish()
    }
}

#[cfg(test)]
mod tests;
