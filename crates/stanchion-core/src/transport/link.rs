//! A link: one multiplexed connection that is watched and made anew for ever.
//!
//! The redis crate's own reconnecting connections are not used: they never reconnect after a timeout, stop after six
//! tries, and leave an idle subscriber deaf. Here a supervisor connects with backoff until the client is closed, drops
//! a connection that owes an answer for longer than the response timeout, and probes an idle one.
//!
//! No call has a timer of its own: a call ends with its reply or with its connection.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use backon::BackoffBuilder as _;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
};
use tokio::runtime::Handle;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::cork::Corked;
pub(crate) use super::server_clock::ServerClock;
use super::verdict::{NO_SCRIPT, READ_ONLY, judge};
use super::{Call, Connector, Failure, Reply};
use crate::clock::Clock;
use crate::config::{ClientConfig, Login};
use crate::error::{ConnectError, Outage, Rejection};

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
    /// With it the link speaks RESP3.
    pub(crate) on_push: Option<OnPush>,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    id: u64,
    server: String,
    peer: Peer,
    connector: Arc<dyn Connector>,
    handshake: RedisConnectionInfo,
    on_push: Option<OnPush>,
    connect_timeout: Duration,
    response_timeout: Duration,
    seed: Option<u64>,
    clock: Arc<dyn Clock>,
    server_clock: Arc<ServerClock>,
    current: RwLock<Option<Arc<Live>>>,
    phase: watch::Sender<Phase>,
    stir: Arc<Stir>,
    in_flight: Arc<AtomicUsize>,
    answered: AtomicU64,
}

struct Live {
    connection: MultiplexedConnection,
    driver: AbortHandle,
    /// Ends the calls on it also when the runtime that drives it stands still.
    over: CancellationToken,
    stops: Arc<Stops>,
}

/// The ends of shard subscriptions that were asked for on a connection.
///
/// A server that gives a slot away ends the subscriptions of its channels by itself, and the redis crate takes that for
/// the answer to the oldest request: from then on every answer goes to the wrong one. So the connection is given up.
#[derive(Debug, Default)]
struct Stops {
    asked: Mutex<Vec<Vec<u8>>>,
    unasked: Notify,
}

impl Stops {
    fn asked(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, channel: &[u8]) {
        self.asked().push(channel.to_vec());
    }

    fn stopped(&self, channel: &[u8]) {
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
        tokio::select! {
            biased;
            reply = connection.send_packed_command(cmd) => reply,
            () = self.over.cancelled() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }

    /// ASKING and the command, with nothing of anybody else in between.
    async fn send_asking(&self, cmd: &Cmd) -> Result<redis::Value, redis::RedisError> {
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(cmd.clone());
        let mut connection = self.connection.clone();
        tokio::select! {
            biased;
            replies = connection.send_packed_commands(&both, 1, 1) => {
                Ok(replies?.pop().unwrap_or(redis::Value::Nil))
            }
            () = self.over.cancelled() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }
}

/// Counts a call in and out, also when its future is dropped. Only an answer is progress.
struct Flight<'a>(&'a Inner);

impl<'a> Flight<'a> {
    fn take_off(inner: &'a Inner) -> Self {
        inner.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(inner)
    }

    fn landed<T>(self, answer: T) -> T {
        self.0.answered.fetch_add(1, Ordering::Relaxed);
        answer
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
        let mut handshake = RedisConnectionInfo::default()
            .set_db(plan.login.database.into())
            .set_lib_name("stanchion", env!("CARGO_PKG_VERSION"))
            .set_protocol(if plan.on_push.is_some() {
                ProtocolVersion::RESP3
            } else {
                ProtocolVersion::RESP2
            });
        if let Some(user) = &plan.login.username {
            handshake = handshake.set_username(user);
        }
        if let Some(password) = &plan.login.password {
            handshake = handshake.set_password(password.reveal());
        }
        Self(Arc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            server: plan.server,
            peer: plan.peer,
            connector: plan.connector,
            handshake,
            on_push: plan.on_push,
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
            seed: config.seams.seed,
            clock: plan.clock,
            server_clock: plan.server_clock,
            current: RwLock::new(None),
            phase: watch::Sender::new(Phase::Starting),
            stir: plan.stir,
            in_flight: Arc::default(),
            answered: AtomicU64::new(0),
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

    fn enter(&self, phase: Phase) {
        let up = matches!(phase, Phase::Up(_));
        self.0.phase.send_replace(phase);
        if up {
            self.0.stir.came_up();
        } else {
            self.0.stir.changed();
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
        &self.0.server
    }

    fn live(&self) -> Option<Arc<Live>> {
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
            server: self.0.server.clone(),
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
        let flight = Flight::take_off(&self.0);
        let answer = match judge(live.send(&call.cmd).await) {
            // Boxed: rare, and every request carries this future.
            Err((code, _)) if code == NO_SCRIPT => {
                judge(Box::pin(live.send(&call.with_text())).await)
            }
            other => other,
        };
        flight.landed(answer.map_err(|(code, failure)| {
            if self.0.peer == Peer::Master && code == READ_ONLY {
                self.leave();
            }
            failure
        }))
    }

    /// [`Link::call`] on a node that is about to get the slot.
    pub(crate) async fn call_asking(&self, call: &Call) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let flight = Flight::take_off(&self.0);
        let answer = match judge(live.send_asking(&call.cmd).await) {
            Err((code, _)) if code == NO_SCRIPT => judge(live.send_asking(&call.with_text()).await),
            other => other,
        };
        flight.landed(answer.map_err(|(_, failure)| failure))
    }

    /// Runs a plain command.
    pub(crate) async fn command(&self, parts: &[&str]) -> Result<Reply, Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let flight = Flight::take_off(&self.0);
        flight.landed(plain(&live, parts).await)
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
        let flight = Flight::take_off(&self.0);
        let mut cmd = Cmd::new();
        cmd.arg(command).arg(channel);
        let answer = judge(live.send(&cmd).await);
        flight.landed(answer.map(|_| ()).map_err(|(_, failure)| failure))
    }

    /// Keeps the link connected until `closed`. The connection lives on `home`; this future should live elsewhere.
    pub(crate) async fn supervise(self, home: Handle, closed: CancellationToken) {
        let mut generation = 0;
        while !closed.is_cancelled() {
            let mut pauses = backoff(self.0.seed);
            let ended = loop {
                match self.connect_on(&home).await {
                    Some(Ok(ended)) => break ended,
                    Some(Err(error)) => {
                        tracing::debug!(server = self.0.server, %error, "connecting failed");
                        self.enter(Phase::Down(error));
                    }
                    None => {
                        self.enter(Phase::Ended);
                        return;
                    }
                }
                tokio::select! {
                    biased;
                    () = closed.cancelled() => return self.end(),
                    () = self.0.stir.hurry.notified() => pauses = backoff(self.0.seed),
                    () = tokio::time::sleep(pauses.next().unwrap_or(MAX_PAUSE)) => {}
                }
            };
            generation += 1;
            self.enter(Phase::Up(generation));
            tokio::select! {
                biased;
                () = closed.cancelled() => return self.end(),
                () = self.watch_over(ended) => {}
            }
            self.drop_connection();
            tracing::debug!(server = self.0.server, "connection lost");
            let error = ConnectError::Unreachable {
                server: self.0.server.clone(),
                detail: "the connection was lost".into(),
            };
            self.enter(Phase::Down(error));
        }
        self.end();
    }

    pub(crate) fn end(&self) {
        self.drop_connection();
        self.enter(Phase::Ended);
    }

    /// Gives the current connection up, and connects anew: the server is not the right one any more.
    pub(crate) fn leave(&self) {
        tracing::debug!(server = self.0.server, "leaving the server");
        self.drop_connection();
    }

    /// Ends the current connection: every call on it fails now.
    fn drop_connection(&self) {
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

    /// Returns when the connection has ended, or ends it because it owes an answer for too long.
    async fn watch_over(&self, mut ended: oneshot::Receiver<()>) {
        let Some(stops) = self.live().map(|live| Arc::clone(&live.stops)) else {
            return;
        };
        let tick = self.0.response_timeout / 4;
        let mut answered = self.0.answered.load(Ordering::Relaxed);
        let (mut silent, mut idle) = (Duration::ZERO, Duration::ZERO);
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => return,
                () = stops.unasked.notified() => return,
                () = tokio::time::sleep(tick) => {}
            }
            let now_answered = self.0.answered.load(Ordering::Relaxed);
            let progress = std::mem::replace(&mut answered, now_answered) != now_answered;
            if self.0.in_flight.load(Ordering::Relaxed) > 0 {
                idle = Duration::ZERO;
                silent = if progress {
                    Duration::ZERO
                } else {
                    silent + tick
                };
                if silent >= self.0.response_timeout {
                    return;
                }
            } else {
                silent = Duration::ZERO;
                idle = if progress {
                    Duration::ZERO
                } else {
                    idle + tick
                };
                if idle >= self.0.response_timeout {
                    idle = Duration::ZERO;
                    tokio::select! {
                        biased;
                        _ = &mut ended => return,
                        probe = tokio::time::timeout(self.0.response_timeout, self.probe()) => if !probe.unwrap_or(false) { return },
                    }
                }
            }
        }
    }

    /// Whether the connection is still the right one. TIME rather than PING: it answers whether the link lives and
    /// what the server's clock reads.
    async fn probe(&self) -> bool {
        let Some(live) = self.live() else {
            return false;
        };
        // What the server refuses, calls will be told too.
        let asked = self.0.clock.now();
        if let Ok(reply) = plain(&live, self.greeting()).await {
            self.observe_time(&reply, asked.micros());
        }
        self.0.peer != Peer::Master || is_master(&live).await.is_ok()
    }

    fn greeting(&self) -> &'static [&'static str] {
        match self.0.peer {
            Peer::Server | Peer::Master => &["TIME"],
            Peer::Sentinel => &["PING"],
        }
    }

    fn observe_time(&self, reply: &Reply, asked_at: u64) {
        if let Some([secs, micros]) = reply.as_array()
            && let (Some(secs), Some(micros)) = (secs.as_int(), micros.as_int())
        {
            let server = secs.cast_unsigned() * 1_000_000 + micros.cast_unsigned();
            self.0
                .server_clock
                .observe(server, asked_at, self.0.clock.now().micros());
        }
    }

    /// Reads the server's clock now, after a request was refused as late.
    pub(crate) async fn synchronise(&self) {
        let asked = self.0.clock.now();
        if let Ok(reply) = self.command(&["TIME"]).await {
            self.observe_time(&reply, asked.micros());
        }
    }

    /// One try to connect. `None` when `home` no longer runs anything.
    async fn connect_on(
        &self,
        home: &Handle,
    ) -> Option<Result<oneshot::Receiver<()>, ConnectError>> {
        let link = self.clone();
        home.spawn(async move {
            let timeout = link.0.connect_timeout;
            let connecting = tokio::time::timeout(timeout, link.connect());
            connecting.await.unwrap_or_else(|_| {
                let detail = format!(
                    "no connection within {}",
                    humantime::format_duration(timeout)
                );
                Err(ConnectError::Unreachable {
                    server: link.0.server.clone(),
                    detail,
                })
            })
        })
        .await
        .ok()
    }

    /// Connects for a few questions, without supervision: the connection ends when what is returned is dropped.
    pub(super) async fn connect_once(&self) -> Result<OnceConnected, ConnectError> {
        drop(self.connect().await?);
        Ok(OnceConnected(self.clone()))
    }

    async fn connect(&self) -> Result<oneshot::Receiver<()>, ConnectError> {
        let inner = &*self.0;
        let stream = inner
            .connector
            .connect()
            .await
            .map_err(|e| self.unreachable(&e))?;
        let mut config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(4096);
        let stops = Arc::new(Stops::default());
        if let Some(on_push) = inner.on_push.clone() {
            let stops = Arc::clone(&stops);
            config = config.set_push_sender(move |push: PushInfo| {
                use redis::Value::BulkString;
                match (push.kind, push.data.as_slice()) {
                    (
                        PushKind::Message | PushKind::SMessage,
                        [BulkString(channel), BulkString(payload)],
                    ) => on_push(channel, payload),
                    (PushKind::SUnsubscribe, [BulkString(channel), ..]) => stops.stopped(channel),
                    _ => {}
                }
                Ok::<(), std::convert::Infallible>(())
            });
        }
        let (connection, driver) = MultiplexedConnection::new_with_config(
            &inner.handshake,
            Corked::new(stream, Arc::clone(&inner.in_flight)),
            config,
        )
        .await
        .map_err(|e| self.refused(&e))?;
        let (ending, ended) = oneshot::channel::<()>();
        let driver = tokio::spawn(async move {
            driver.await;
            drop(ending);
        });
        let live = Arc::new(Live {
            connection,
            driver: driver.abort_handle(),
            over: CancellationToken::new(),
            stops,
        });
        if let Err(error) = self.greet(&live).await {
            live.driver.abort();
            return Err(error);
        }
        *inner
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(live);
        Ok(ended)
    }

    async fn greet(&self, live: &Live) -> Result<(), ConnectError> {
        let server = || self.0.server.clone();
        if self.0.peer == Peer::Master {
            is_master(live)
                .await
                .map_err(|detail| ConnectError::Unreachable {
                    server: server(),
                    detail,
                })?;
        }
        let asked = self.0.clock.now();
        match plain(live, self.greeting()).await {
            Ok(reply) => self.observe_time(&reply, asked.micros()),
            Err(Failure::Rejected(rejection)) => {
                return Err(ConnectError::Rejected {
                    server: server(),
                    rejection,
                });
            }
            // LOADING and the like: connected, and calls will say so.
            Err(_) => {}
        }
        Ok(())
    }

    fn unreachable(&self, error: &io::Error) -> ConnectError {
        // A connector that has to ask its way knows better what went wrong.
        let told = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<ConnectError>());
        if let Some(told) = told {
            return told.clone();
        }
        let (server, detail) = (self.0.server.clone(), error.to_string());
        #[cfg(feature = "tls")]
        if super::tls::is_tls(error) {
            return ConnectError::Tls { server, detail };
        }
        ConnectError::Unreachable { server, detail }
    }

    fn refused(&self, error: &redis::RedisError) -> ConnectError {
        let server = self.0.server.clone();
        let detail = error.to_string();
        if error.kind() == ErrorKind::AuthenticationFailed
            || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        {
            return ConnectError::Rejected {
                server,
                rejection: Rejection::Unauthenticated { detail },
            };
        }
        match error
            .code()
            .map(|code| super::verdict::by_code(code, error.detail().unwrap_or_default()))
        {
            Some(Failure::Rejected(rejection)) => ConnectError::Rejected { server, rejection },
            _ => ConnectError::Unreachable { server, detail },
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
pub(super) struct OnceConnected(Link);

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

/// Whether the server says it is a master; otherwise what it says. A user who may not ask is believed.
async fn is_master(live: &Live) -> Result<(), String> {
    match plain(live, &["ROLE"]).await {
        Ok(reply) => {
            let role = reply.as_array().and_then(|parts| parts.first()?.as_text());
            match role {
                Some("master") => Ok(()),
                Some(role) => Err(format!("it is no master but a {role}")),
                None => Err("it does not tell its role".into()),
            }
        }
        Err(Failure::Unanswered(outage)) => Err(outage.to_string()),
        // A master that is loading says so; a refused ROLE shows later, as READONLY.
        Err(Failure::NotNow(_) | Failure::Rejected(_)) => Ok(()),
    }
}

async fn plain(live: &Live, parts: &[&str]) -> Result<Reply, Failure> {
    let mut cmd = Cmd::new();
    for part in parts {
        cmd.arg(*part);
    }
    judge(live.send(&cmd).await).map_err(|(_, failure)| failure)
}

const MAX_PAUSE: Duration = Duration::from_secs(2);

/// 50 ms, doubling to 2 s, jittered, without end.
fn backoff(seed: Option<u64>) -> impl Iterator<Item = Duration> {
    let mut builder = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(MAX_PAUSE)
        .with_jitter()
        .without_max_times();
    if let Some(seed) = seed {
        builder = builder.with_jitter_seed(seed);
    }
    builder.build()
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("server", &self.0.server)
            .field("phase", &*self.0.phase.borrow())
            .finish()
    }
}
