//! A link: one multiplexed connection to one server, reopened until the client is closed.
//!
//! # Life of a link
//! 1. [`Link::new`] is not connected: phase [`Phase::Starting`]. A [supervisor](supervise) task takes over.
//! 2. The supervisor connects and [installs](Link::install) the connection ([`Live`]). Calls can be sent from here on. Then
//!    it enters [`Phase::Up`] with the number of the connection, and subscriptions can be made.
//! 3. Each call clones the [`Live`] that it finds and sends on it. A call has no timer of its own: it ends with its reply or
//!    with its connection.
//! 4. The connection ends: the peer closes it, the supervisor drops it for its silence, or a caller leaves a
//!    master that answers `READONLY`. Every call on it fails at once, as ambiguous. The link enters [`Phase::Down`] and
//!    returns to step 2 after a pause. Calls made in between fail without being sent.
//! 5. The client closes or the runtime of the connection ends: [`Phase::Ended`], for good.
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::config::ClientConfig;
use crate::error::{ConnectError, Outage};
use crate::failure::{NO_SCRIPT, READ_ONLY, judge};
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

/// A callback for every message: the connection that it came on, its channel and its payload. Runs on the thread of the
/// connection's driver; must not block.
pub type OnPush = Arc<dyn Fn(ConnectionId, &[u8], &[u8]) + Send + Sync>;

/// The channel of the messages that keys were written which this connection has read: `CLIENT TRACKING`. Its payload is the key;
/// empty: all of them.
pub const WRITTEN: &[u8] = b"__redis__:invalidate";

/// The phase of a link's life; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first attempt to connect has not ended.
    Starting,
    /// Connected; the number counts the connections of this link, from 1.
    Up(u64),
    /// Not connected, and about to try again. Carries the last error.
    Down(ConnectError),
    /// The runtime of the connection has ended, or the client was closed. Final.
    Ended,
}

/// The two reasons for [`Phase::Ended`].
const ENDED: &str = "the client was shut down, or the runtime of the connection has ended";

/// The kind of server that a link accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A server in any role.
    Server,
    /// The master of a set whose roles change, or of a cluster: the link drops a server in another role.
    Master,
    /// A sentinel.
    Sentinel,
}

/// The notifications that the links of a client share. Supervisors send them; callers that retry, subscriptions and other
/// supervisors wait for them.
#[derive(Debug, Default)]
pub(crate) struct Stir {
    /// Counts the changes of phase and of the cluster map.
    changes: watch::Sender<u64>,
    /// Fires when a connection comes up. A `Notify`, as it wakes in order of arrival, which `watch` does not.
    up: Notify,
    /// Fires when links that pause between attempts should try at once.
    hurry: Notify,
    /// The number of masters that were replaced, where sentinels name them.
    replaced: AtomicU64,
}

impl Stir {
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Resolves the next time that a connection comes up or the cluster map changes.
    pub(crate) fn comes_up(&self) -> Notified<'_> {
        self.up.notified()
    }

    /// Makes links that pause between attempts try at once: a server that was out of reach may be reachable now.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_waiters();
    }

    /// Resolves at the next [`Stir::hurry`].
    pub(crate) fn hurried(&self) -> Notified<'_> {
        self.hurry.notified()
    }

    /// Records that the sentinels name another master.
    pub(crate) fn another_master(&self) {
        self.replaced.fetch_add(1, Ordering::AcqRel);
        self.changed();
    }

    /// Returns the number of masters that were replaced so far.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }

    pub(crate) fn changed(&self) {
        // A count, so that a receiver that was busy sees that something changed, however often.
        self.changes.send_modify(|n| *n += 1);
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
    /// Hears of connections that are open again.
    pub(crate) observing: Option<Observing>,
    /// Of the jitter of the pauses, for tests.
    pub(crate) seed: Option<u64>,
    /// Learnt from a new connection before it is used, if there is something to learn.
    pub(crate) facts: Option<Arc<Facts>>,
    /// The connection that calls are sent on. Every call reads it. The supervisor sets it; the supervisor, [`Link::drop_connection`]
    /// and [`Link::end`] clear it. The lock is held only to clone or to replace the `Arc`.
    current: RwLock<Option<Arc<Live>>>,
    /// Changed by the supervisor and by [`Link::end`]. It follows `current`: [`Phase::Up`] after a connection is set,
    /// [`Phase::Down`] after it is cleared.
    phase: watch::Sender<Phase>,
}

/// One open connection. Calls that began on it keep it until they end, also after the link has dropped it.
pub(crate) struct Live {
    /// Cloned by each call: to send needs exclusive access.
    pub(crate) connection: MultiplexedConnection,
    /// The task that moves bytes, on the runtime of the connection.
    pub(crate) driver: AbortHandle,
    /// Reached when the link drops the connection. It ends the calls even while the driver's runtime is blocked.
    pub(crate) over: End,
    /// Changed by calls that unsubscribe and by the driver; the supervisor waits for its signal.
    pub(crate) stops: Arc<Stops>,
    /// Changed by calls and by the wakes of the driver, read by the supervisor.
    pub(crate) books: Books,
    /// True once a script has been answered on it, or a subscription confirmed. Set by calls, read by the supervisor.
    pub(crate) served: AtomicBool,
    /// The length of its login, if the login ends.
    pub(crate) login_ends: Option<Duration>,
}

/// The end of a connection, for the calls that wait for their replies on it.
#[derive(Debug, Default)]
pub(crate) struct End {
    reached: AtomicBool,
    /// Wakes the calls: at the end, and at each reminder.
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
            // Before the flag is read: it is woken by every ring from here on.
            let rung = self.bell.notified();
            if self.reached.load(Ordering::Acquire) {
                return;
            }
            rung.await;
        }
    }
}

/// The shard channels that this client has unsubscribed from and whose confirmation is due.
///
/// A server that gives a slot away ends the subscriptions of its channels by itself. The redis crate takes that message for
/// the reply to the oldest request, and from then on every reply reaches the wrong request. The supervisor therefore drops
/// a connection with an end of subscription that was not requested.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// One entry for each `SUNSUBSCRIBE` under way: added before it is sent, removed by the driver when it is confirmed.
    asked: Mutex<Vec<Vec<u8>>>,
    /// Fires when a subscription ended that nobody asked to end.
    pub(crate) unasked: Notify,
}

impl Stops {
    fn asked(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, channel: &[u8]) {
        self.asked().push(channel.to_vec());
    }

    /// Handles the confirmation of a stop. One that nobody asked for fires `unasked`.
    pub(crate) fn stopped(&self, channel: &[u8]) {
        if !self.forget(channel) {
            // Keeps a permit: the supervisor may be waiting for its probe and not for this.
            self.unasked.notify_one();
        }
    }

    /// Removes one entry of `channel`; returns whether there was one. The server has confirmed, or refused and so never will.
    fn forget(&self, channel: &[u8]) -> bool {
        let mut asked = self.asked();
        let at = asked.iter().position(|other| other == channel);
        // One entry only: a channel can be stopped again before the first confirmation.
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
        // The first reply, of `ASKING`, is skipped even if it is an error: the script then gets `MOVED`, and has not run.
        both.cmd("ASKING").add_command(cmd.clone());
        let mut connection = self.connection.clone();
        let replies = pin!(connection.send_packed_commands(&both, 1, 1));
        // The redis crate returns as many replies as it was asked for: one.
        let reply = self.answered(replies).await?.pop();
        Ok(reply.unwrap_or(redis::Value::Nil))
    }

    /// Waits for the reply to `asking`; fails when the link drops the connection.
    ///
    /// The caller pins it: by value, the future of every request would carry it several times, and move it as often.
    async fn answered<T>(
        &self,
        asking: Pin<&mut impl Future<Output = Result<T, redis::RedisError>>>,
    ) -> Result<T, redis::RedisError> {
        tokio::select! {
            biased;
            // First: a reply that has arrived is a definite answer, also if the link was dropped meanwhile (P8).
            reply = self.books.enter(asking) => reply,
            // An error without a code, so `judge` calls it ambiguous.
            () = self.over.reached() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }
}

impl Link {
    /// Returns a link that is not connected yet; [`Link::supervise`] connects it.
    pub(crate) fn new(config: &ClientConfig, plan: Plan) -> Self {
        Self::made(config, plan, None)
    }

    /// As [`Link::new`], to a node whose `facts` the client may not know yet.
    pub(crate) fn of_node(config: &ClientConfig, plan: Plan, facts: Arc<Facts>) -> Self {
        Self::made(config, plan, Some(facts))
    }

    fn made(config: &ClientConfig, plan: Plan, facts: Option<Arc<Facts>>) -> Self {
        // For the whole process: a `ConnectionId` must not match one of another node or client.
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
        // From the phase, not from `current`: subscriptions are made once the link is up, and the number is known only
        // there.
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
        // `send` would not keep the value while nobody listens.
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

    /// Returns whether the connection was lost, or the last attempt to open one has failed.
    pub fn is_down(&self) -> bool {
        matches!(&*self.0.phase.borrow(), Phase::Down(_))
    }

    pub(crate) fn server(&self) -> &str {
        &self.0.plan.server
    }

    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.0
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the reason why there is no connection.
    pub(crate) fn outage(&self) -> Outage {
        let detail = match &*self.0.phase.borrow() {
            Phase::Down(error) => error.to_string(),
            Phase::Ended => ENDED.into(),
            // `Up` without a connection: it was dropped, and the supervisor has not said so yet.
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
            // Not queued for the next connection: nothing has been sent, and the caller decides if and when to try again.
            return Err(Failure::NotNow(self.outage()));
        };
        let answer = match judge(live.send(&call.cmd).await) {
            // Boxed: rare, and every request carries this future.
            // Nothing has run, so EVAL cannot run it twice (P6). The script is unknown after a restart, `SCRIPT FLUSH` or
            // a failover.
            Err((code, _)) if code == NO_SCRIPT => {
                judge(Box::pin(live.send(&call.with_text())).await)
            }
            other => other,
        };
        // An error reply counts: the connection works. The backoff is for peers that hang up before they answer
        // (`STEADY`).
        if !matches!(answer, Err((_, Failure::Unanswered(_)))) {
            // `Relaxed`: read by the supervisor after the connection has ended; a late one costs a longer pause.
            live.served.store(true, Ordering::Relaxed);
        }
        answer.map_err(|(code, failure)| {
            // Only where another server can be found. A single server that is a replica would be left and found
            // again for ever.
            if self.0.plan.peer == Peer::Master && code == READ_ONLY {
                tracing::debug!(
                    server = self.0.plan.server,
                    "leaving a server that is read-only"
                );
                // Not a newer connection: the caller may have polled this answer long after it arrived.
                self.drop_connection_if(|current| Arc::ptr_eq(current, &live));
            }
            failure.about(call)
        })
    }

    /// Runs a script, as [`Link::call`], on a node that is importing the slot.
    pub(crate) async fn call_asking(&self, call: &Call) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let answer = match judge(live.send_asking(&call.cmd).await) {
            // `ASKING` is good for one command, so EVAL needs its own.
            Err((code, _)) if code == NO_SCRIPT => judge(live.send_asking(&call.with_text()).await),
            other => other,
        };
        answer.map_err(|(_, failure)| failure)
    }

    /// Runs a plain command.
    pub(crate) async fn command(
        &self,
        parts: &[impl AsRef<[u8]> + Sync],
    ) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        plain(&live, parts).await
    }

    /// Subscribes to a channel, or unsubscribes from it. Returns when the server has confirmed.
    ///
    /// A shard subscription is confirmed by a master only. Replicas accept it, too, and pass on what their master publishes. But
    /// the master counts no receiver there, so its script may take a grant back that such a subscriber still receives (P1).
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
        // One channel in each command. The server confirms every channel by itself, and the redis crate takes the first
        // confirmation for the reply: a second one would answer the next request. Shard channels of several slots would
        // be refused besides.
        let command = match (kind, on) {
            (Messages::Plain, Subscribe::Start) => "SUBSCRIBE",
            (Messages::Plain, Subscribe::Stop) => "UNSUBSCRIBE",
            (Messages::Sharded, Subscribe::Start) => "SSUBSCRIBE",
            (Messages::Sharded, Subscribe::Stop) => {
                // Before the request is sent: the driver may see the confirmation before this task runs again. Only here:
                // a server ends plain subscriptions only with their connection.
                live.stops.ask(channel);
                "SUNSUBSCRIBE"
            }
        };
        let mut cmd = Cmd::new();
        cmd.arg(command).arg(channel);
        let answer = judge(live.send(&cmd).await);
        // Otherwise a later end of this channel that nobody asked for would pass as asked, and its confirmation for the
        // reply to another request.
        if answer.is_err() && (kind, on) == (Messages::Sharded, Subscribe::Stop) {
            live.stops.forget(channel);
        }
        answer.map_err(|(_, failure)| failure)?;
        if (kind, on) == (Messages::Sharded, Subscribe::Start) {
            // After the subscription: a master that is demoted later ends it. Not before, when it could be demoted in between.
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

    /// Drops the connection for good.
    pub(crate) fn end(&self) {
        // The phase first: a connection that is installed after this finds it, one that was installed before is dropped.
        self.enter(Phase::Ended);
        // Not left to the supervisor: its runtime may have ended.
        self.drop_connection();
    }

    /// Makes `live` the connection that calls are sent on.
    pub(crate) fn install(&self, live: Live) {
        *self
            .0
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(live));
        // An attempt on a runtime that still runs may succeed after the end.
        if matches!(*self.0.phase.borrow(), Phase::Ended) {
            self.drop_connection();
        }
    }

    pub(crate) fn login(&self) -> &Login {
        &self.0.plan.login
    }

    /// Returns the length of the current connection's login, if the login ends.
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
        // Taken out under the lock, ended after it: ending wakes the calls, and these look at `current` when they try
        // again.
        let live = self
            .0
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take_if(|live| matches(live));
        if let Some(live) = live {
            // Before the abort, which takes effect only when the runtime of the driver runs.
            live.over.reach();
            live.driver.abort();
        }
    }

    /// Reads the server's clock, after the server refused a request as late.
    pub(crate) async fn synchronise(&self) {
        // Before the request is sent: see `Reading::offset`. If it fails, the old reading stays, and the next refusal
        // asks again.
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

/// A link without a supervisor; ends when this is dropped.
pub(crate) struct OnceConnected(pub(crate) Link);

impl Drop for OnceConnected {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The two kinds of messages: sent by any node, or only by the owner of the channel's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messages {
    /// `PUBLISH`.
    Plain,
    /// `SPUBLISH`, on a cluster.
    Sharded,
}

impl Messages {
    /// The kind that Redisson uses as well: sharded messages on a cluster, plain ones everywhere else.
    #[must_use]
    pub const fn of(placement: Placement) -> Self {
        match placement {
            Placement::Slots => Self::Sharded,
            Placement::Anywhere => Self::Plain,
        }
    }

    /// The command that sends one.
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
    let mut cmd = Cmd::new();
    for part in parts {
        cmd.arg(part.as_ref());
    }
    judge(live.send(&cmd).await).map_err(|(_, failure)| failure)
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
