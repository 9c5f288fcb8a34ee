//! A link: one multiplexed connection that is watched and made anew for ever.
//!
//! The redis crate's own reconnecting connections are not used: they never reconnect after a timeout, stop after six
//! tries, and leave an idle subscriber deaf. Here a [supervisor](super::supervise) connects with backoff until the client is
//! closed, drops a connection that owes an answer for longer than the response timeout, and probes an idle one.
//!
//! No call has a timer of its own: a call ends with its reply or with its connection.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::exchange::Books;
use super::health::Health;
use super::server_clock::ServerClock;
use super::verdict::{NO_SCRIPT, READ_ONLY, judge};
use super::{Call, Connector, Failure, Reply};
use crate::clock::{Clock, Moment};
use crate::config::ClientConfig;
use crate::endpoint::Login;
use crate::error::{ConnectError, Outage};

/// Is told channel and payload of every message, on the driver's thread; must not block.
pub(crate) type OnPush = Arc<dyn Fn(&[u8], &[u8]) + Send + Sync>;

/// Where a link is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first try has not ended.
    Starting,
    /// Connected for the n-th time.
    Up(u64),
    /// Not connected; trying again.
    Down(ConnectError),
    /// The runtime it lived on has ended, or the client was closed. Final.
    Ended,
}

/// Who is at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A server, whatever its role.
    Server,
    /// The master of a set whose roles change: anybody else is left.
    Master,
    /// A sentinel.
    Sentinel,
}

/// Tells of every change of a link, and of the connections that come up.
#[derive(Debug, Default)]
pub(crate) struct Stir {
    changes: watch::Sender<u64>,
    /// Wakes in order of arrival, which `watch` does not.
    up: Notify,
    hurry: Notify,
}

impl Stir {
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Resolves when something comes up the next time.
    pub(crate) fn comes_up(&self) -> Notified<'_> {
        self.up.notified()
    }

    /// A server that was out of reach may be in reach now: links that pause try at once.
    pub(super) fn hurry(&self) {
        self.hurry.notify_waiters();
    }

    /// Resolves at the next such time.
    pub(super) fn hurried(&self) -> Notified<'_> {
        self.hurry.notified()
    }

    pub(crate) fn changed(&self) {
        self.changes.send_modify(|n| *n += 1);
    }

    pub(crate) fn came_up(&self) {
        self.changed();
        self.up.notify_waiters();
    }
}

/// One connection of one link: what a subscription belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    link: u64,
    connection: u64,
}

/// What a link is to be.
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
    /// With it the link speaks RESP3.
    pub(crate) on_push: Option<OnPush>,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Link(pub(super) Arc<Inner>);

pub(super) struct Inner {
    id: u64,
    pub(super) plan: Plan,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    pub(super) seed: Option<u64>,
    current: RwLock<Option<Arc<Live>>>,
    phase: watch::Sender<Phase>,
    /// Calls that are sent or about to be, for [`Corked`](super::cork::Corked).
    pub(super) in_flight: Arc<AtomicUsize>,
}

pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: AbortHandle,
    /// Ends the calls on it also when the runtime that drives it stands still.
    pub(super) over: CancellationToken,
    pub(super) stops: Arc<Stops>,
    pub(super) books: Arc<Books>,
    /// A script has been answered on it.
    pub(super) served: AtomicBool,
    /// How long its login lasts.
    pub(super) login_ends: Option<Duration>,
}

/// The ends of shard subscriptions that were asked for on a connection.
///
/// A server that gives a slot away ends the subscriptions of its channels by itself, and the redis crate takes that for
/// the answer to the oldest request: from then on every answer goes to the wrong one. So the connection is given up.
#[derive(Debug, Default)]
pub(super) struct Stops {
    asked: Mutex<Vec<Vec<u8>>>,
    pub(super) unasked: Notify,
}

impl Stops {
    fn asked(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, channel: &[u8]) {
        self.asked().push(channel.to_vec());
    }

    pub(super) fn stopped(&self, channel: &[u8]) {
        let mut asked = self.asked();
        match asked.iter().position(|other| other == channel) {
            Some(at) => drop(asked.swap_remove(at)),
            None => self.unasked.notify_one(),
        }
    }
}

impl Live {
    async fn send(&self, cmd: &Cmd) -> Result<redis::Value, redis::RedisError> {
        let mut connection = self.connection.clone();
        self.answered(connection.send_packed_command(cmd)).await
    }

    /// ASKING and the command, with nothing of anybody else in between.
    async fn send_asking(&self, cmd: &Cmd) -> Result<redis::Value, redis::RedisError> {
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(cmd.clone());
        let mut connection = self.connection.clone();
        let replies = self.answered(connection.send_packed_commands(&both, 1, 1));
        Ok(replies.await?.pop().unwrap_or(redis::Value::Nil))
    }

    /// What `asking` brings, or an error when the connection is over.
    async fn answered<T>(
        &self,
        asking: impl Future<Output = Result<T, redis::RedisError>>,
    ) -> Result<T, redis::RedisError> {
        tokio::select! {
            biased;
            reply = self.books.enter(asking) => reply,
            () = self.over.cancelled() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }
}

/// Counts a call in and out, also when its future is dropped.
struct Flight<'a>(&'a Inner);

impl<'a> Flight<'a> {
    fn take_off(inner: &'a Inner) -> Self {
        inner.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(inner)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    /// A link that is not connected yet; [`Link::supervise`] does that.
    pub(crate) fn new(config: &ClientConfig, plan: Plan) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            plan,
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
            seed: config.seams.seed,
            current: RwLock::new(None),
            phase: watch::Sender::new(Phase::Starting),
            in_flight: Arc::default(),
        }))
    }

    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.0.phase.subscribe()
    }

    /// Waits until the first try to connect has ended.
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
                detail: "the runtime is shutting down".into(),
            }),
            Ok(_) => Ok(()),
        }
    }

    /// The current connection, while there is one.
    pub(crate) fn seat(&self) -> Option<Seat> {
        match &*self.0.phase.borrow() {
            Phase::Up(connection) => Some(Seat {
                link: self.0.id,
                connection: *connection,
            }),
            _ => None,
        }
    }

    pub(super) fn enter(&self, phase: Phase) {
        let up = matches!(phase, Phase::Up(_));
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

    pub(crate) fn server(&self) -> &str {
        &self.0.plan.server
    }

    pub(super) fn live(&self) -> Option<Arc<Live>> {
        self.0
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Why there is no connection.
    pub(crate) fn outage(&self) -> Outage {
        let detail = match &*self.0.phase.borrow() {
            Phase::Down(error) => error.to_string(),
            Phase::Ended => "the client was shut down".into(),
            Phase::Starting | Phase::Up(_) => "connecting".into(),
        };
        Outage::Disconnected {
            server: self.0.plan.server.clone(),
            detail,
        }
    }

    /// Runs a script: EVALSHA, and EVAL when the server does not know it.
    ///
    /// Dropping the future does not unsend: the script may run all the same.
    pub(crate) async fn call(&self, call: &Call) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let _flight = Flight::take_off(&self.0);
        let answer = match judge(live.send(&call.cmd).await) {
            // Boxed: rare, and every request carries this future.
            Err((code, _)) if code == NO_SCRIPT => {
                judge(Box::pin(live.send(&call.with_text())).await)
            }
            other => other,
        };
        if !matches!(answer, Err((_, Failure::Unanswered(_)))) {
            live.served.store(true, Ordering::Relaxed);
        }
        answer.map_err(|(code, failure)| {
            if self.0.plan.peer == Peer::Master && code == READ_ONLY {
                self.leave();
            }
            failure
        })
    }

    /// [`Link::call`] on a node that is about to get the slot.
    pub(crate) async fn call_asking(&self, call: &Call) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let _flight = Flight::take_off(&self.0);
        let answer = match judge(live.send_asking(&call.cmd).await) {
            Err((code, _)) if code == NO_SCRIPT => judge(live.send_asking(&call.with_text()).await),
            other => other,
        };
        answer.map_err(|(_, failure)| failure)
    }

    /// Runs a plain command.
    pub(crate) async fn command(&self, parts: &[&str]) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let _flight = Flight::take_off(&self.0);
        plain(&live, parts).await
    }

    /// Subscribes to, or unsubscribes from, a channel; returns when the server has confirmed.
    pub(crate) async fn subscribe(
        &self,
        channel: &[u8],
        on: Subscribe,
        kind: Messages,
    ) -> Result<(), Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let command = match (kind, on) {
            (Messages::Plain, Subscribe::Start) => "SUBSCRIBE",
            (Messages::Plain, Subscribe::Stop) => "UNSUBSCRIBE",
            (Messages::Sharded, Subscribe::Start) => "SSUBSCRIBE",
            (Messages::Sharded, Subscribe::Stop) => {
                live.stops.ask(channel);
                "SUNSUBSCRIBE"
            }
        };
        let _flight = Flight::take_off(&self.0);
        let mut cmd = Cmd::new();
        cmd.arg(command).arg(channel);
        let answer = judge(live.send(&cmd).await);
        answer.map(|_| ()).map_err(|(_, failure)| failure)
    }

    pub(crate) fn end(&self) {
        self.drop_connection();
        self.enter(Phase::Ended);
    }

    /// Gives the current connection up, and connects anew: the server is not the right one any more.
    pub(crate) fn leave(&self) {
        tracing::debug!(server = self.0.plan.server, "leaving the server");
        self.drop_connection();
    }

    /// Calls go to `live` from now on.
    pub(super) fn install(&self, live: Live) {
        *self
            .0
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(live));
    }

    pub(super) fn login(&self) -> &Login {
        &self.0.plan.login
    }

    /// How long the current connection is logged in for, if that ends.
    pub(super) fn login_ends(&self) -> Option<Duration> {
        self.live()?.login_ends
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.0.connect_timeout
    }

    pub(super) fn now(&self) -> Moment {
        self.0.plan.clock.now()
    }

    /// Ends the current connection: every call on it fails now.
    pub(super) fn drop_connection(&self) {
        let live = self
            .0
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(live) = live {
            live.over.cancel();
            live.driver.abort();
        }
    }

    /// Reads the server's clock now, after a request was refused as late.
    pub(crate) async fn synchronise(&self) {
        let asked = self.now();
        if let Ok(reply) = self.command(&["TIME"]).await {
            self.observe_time(&reply, asked.micros());
        }
    }
}

/// Whether to start or to stop listening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subscribe {
    Start,
    Stop,
}

/// Ends a link that nobody supervises.
pub(super) struct OnceConnected(pub(super) Link);

impl Drop for OnceConnected {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// How messages are sent: to everybody, or by the slot of their channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    /// `PUBLISH`.
    Plain,
    /// `SPUBLISH`, on a cluster.
    Sharded,
}

pub(super) async fn plain(live: &Live, parts: &[&str]) -> Result<Reply, Failure> {
    let mut cmd = Cmd::new();
    for part in parts {
        cmd.arg(*part);
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
