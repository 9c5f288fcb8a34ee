//! A link: one multiplexed connection that is watched and made anew for ever.
//!
//! The redis crate's own reconnecting connections are not used: they never reconnect after a timeout, stop after six
//! tries, and leave an idle subscriber deaf. Here a supervisor connects with backoff until the client is closed, drops
//! a connection that owes an answer for longer than the response timeout, and probes an idle one.
//!
//! No call has a timer of its own: a call ends with its reply or with its connection.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
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
use super::verdict::{NO_SCRIPT, judge};
use super::{Call, Connector, Failure, Reply};
use crate::clock::Clock;
use crate::config::{ClientConfig, Endpoint};
use crate::error::{ConnectError, Outage, Rejection};

/// What the server's clock says, seen from ours.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    /// Server µs − client µs, measured from *before* the question was sent: never less than the truth.
    offset: AtomicI64,
    /// How long the answer took: the offset is too high by at most this.
    round_trip: AtomicU64,
}

impl ServerClock {
    pub(crate) fn observe(
        &self,
        server_micros: u64,
        asked_at_micros: u64,
        answered_at_micros: u64,
    ) {
        self.round_trip.store(
            answered_at_micros.saturating_sub(asked_at_micros),
            Ordering::Relaxed,
        );
        self.offset.store(
            server_micros
                .cast_signed()
                .wrapping_sub(asked_at_micros.cast_signed()),
            Ordering::Relaxed,
        );
    }

    /// By how much [`ServerClock::at`] may be ahead of the server's clock.
    pub(crate) fn uncertainty(&self) -> Duration {
        Duration::from_micros(self.round_trip.load(Ordering::Relaxed))
    }

    /// Our clock when the server's read `server_micros`, or a little earlier.
    pub(crate) fn back(&self, server_micros: u64) -> u64 {
        let offset = self.offset.load(Ordering::Relaxed);
        server_micros.saturating_add_signed(offset.saturating_neg())
    }

    /// An instant that the server's clock has not reached before our clock reads `client_micros`.
    pub(crate) fn at(&self, client_micros: u64) -> u64 {
        client_micros.wrapping_add_signed(self.offset.load(Ordering::Relaxed))
    }
}

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

/// See the module.
#[derive(Clone)]
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    server: String,
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
    /// Wakes in order of arrival, which `watch` does not.
    up: Notify,
    in_flight: Arc<AtomicUsize>,
    answered: AtomicU64,
}

struct Live {
    connection: MultiplexedConnection,
    driver: AbortHandle,
    /// Ends the calls on it also when the runtime that drives it stands still.
    over: CancellationToken,
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
    /// A link that is not connected yet; [`Link::supervise`] does that. With `on_push` it speaks RESP3.
    pub(crate) fn new(
        config: &ClientConfig,
        endpoint: &Endpoint,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        server_clock: Arc<ServerClock>,
        on_push: Option<OnPush>,
    ) -> Self {
        let mut handshake = RedisConnectionInfo::default()
            .set_db(endpoint.database.into())
            .set_lib_name("stanchion", env!("CARGO_PKG_VERSION"))
            .set_protocol(if on_push.is_some() {
                ProtocolVersion::RESP3
            } else {
                ProtocolVersion::RESP2
            });
        if let Some(user) = &endpoint.username {
            handshake = handshake.set_username(user);
        }
        if let Some(password) = &endpoint.password {
            handshake = handshake.set_password(password.reveal());
        }
        Self(Arc::new(Inner {
            server: endpoint.route.to_string(),
            connector,
            handshake,
            on_push,
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
            seed: config.seams.seed,
            clock,
            server_clock,
            current: RwLock::new(None),
            phase: watch::Sender::new(Phase::Starting),
            up: Notify::new(),
            in_flight: Arc::default(),
            answered: AtomicU64::new(0),
        }))
    }

    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.0.phase.subscribe()
    }

    /// Resolves when it is connected the next time.
    pub(crate) fn comes_up(&self) -> Notified<'_> {
        self.0.up.notified()
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
    pub(crate) async fn subscribe(&self, channel: &[u8], on: Subscribe) -> Result<(), Failure> {
        let Some(live) = self.live() else {
            return Err(Failure::NotNow(self.outage()));
        };
        let flight = Flight::take_off(&self.0);
        let mut connection = live.connection.clone();
        let done = match on {
            Subscribe::Start => connection.subscribe(channel).await,
            Subscribe::Stop => connection.unsubscribe(channel).await,
        };
        let answer = judge(done.map(|()| redis::Value::Okay));
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
                        self.0.phase.send_replace(Phase::Down(error));
                    }
                    None => {
                        self.0.phase.send_replace(Phase::Ended);
                        return;
                    }
                }
                tokio::select! {
                    biased;
                    () = closed.cancelled() => return self.end(),
                    () = tokio::time::sleep(pauses.next().unwrap_or(MAX_PAUSE)) => {}
                }
            };
            generation += 1;
            self.0.phase.send_replace(Phase::Up(generation));
            self.0.up.notify_waiters();
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
            self.0.phase.send_replace(Phase::Down(error));
        }
        self.end();
    }

    pub(crate) fn end(&self) {
        self.drop_connection();
        self.0.phase.send_replace(Phase::Ended);
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
        let tick = self.0.response_timeout / 4;
        let mut answered = self.0.answered.load(Ordering::Relaxed);
        let (mut silent, mut idle) = (Duration::ZERO, Duration::ZERO);
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => return,
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
                        probe = tokio::time::timeout(self.0.response_timeout, self.probe()) => if probe.is_err() { return },
                    }
                }
            }
        }
    }

    /// TIME rather than PING: it answers whether the link lives and what the server's clock reads.
    async fn probe(&self) {
        let Some(live) = self.live() else { return };
        let asked = self.0.clock.now();
        if let Ok(reply) = plain(&live, &["TIME"]).await {
            self.observe_time(&reply, asked.micros());
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
        if let Some(on_push) = inner.on_push.clone() {
            config = config.set_push_sender(move |push: PushInfo| {
                if let (
                    PushKind::Message,
                    [
                        redis::Value::BulkString(channel),
                        redis::Value::BulkString(payload),
                    ],
                ) = (push.kind, push.data.as_slice())
                {
                    on_push(channel, payload);
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
        });
        let asked = inner.clock.now();
        match plain(&live, &["TIME"]).await {
            Ok(reply) => self.observe_time(&reply, asked.micros()),
            Err(Failure::Rejected(rejection)) => {
                live.driver.abort();
                return Err(ConnectError::Rejected {
                    server: inner.server.clone(),
                    rejection,
                });
            }
            // LOADING and the like: connected, and calls will say so.
            Err(_) => {}
        }
        *inner
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(live);
        Ok(ended)
    }

    fn unreachable(&self, error: &io::Error) -> ConnectError {
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
