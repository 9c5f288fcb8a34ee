//! The supervisor of a [`Link`]: connects, watches, pauses, and reconnects.
//!
//! # One round
//! 1. **Connect** on the runtime `home`, within the connect timeout: open a stream, which resolves the server's name, get the
//!    credentials, do the handshake, check that the server is the right one (its role in `HELLO`, where a master is needed), and read
//!    its clock (`TIME`). The connection is installed in the link.
//! 2. **Watch** until one of these events ends the connection:
//!    * the driver stops: the peer closed the stream, or an I/O error occurred;
//!    * the connection owes a reply and no reply has arrived for the response timeout;
//!    * nothing was sent for the response timeout and the probe fails;
//!    * a shard subscription ended without a request (see `Stops`).
//!
//!    During the watch, [`login`](super::login) renews the login.
//! 3. **Drop** the connection: every call on it fails as ambiguous.
//! 4. **Pause** with backoff and jitter. The backoff restarts after a connection that proved usable (`STEADY`), and
//!    when a sentinel announces a new master. A connection to a replica that refused a write was not usable.
//!
//! The supervisor runs on the client's own thread if there is one, and not on `home`: a caller that blocks its runtime does
//! not stop the watch.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use backon::BackoffBuilder as _;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::{ConnectError, ServerRejection};
use crate::link::exchange::Books;
use crate::link::login::{broken, refused};
use crate::link::opening::Opening;
use crate::link::pace::Paced;
use crate::link::{End, Link, Live, OnceConnected, Peer, Phase, Stops, WRITTEN, plain};
use crate::{Failure, Reply};

impl Link {
    /// Keeps the link connected until `closed`, or until `home` ends. The runtime `home` drives the connection; this future
    /// should run elsewhere.
    pub(crate) async fn supervise(self, home: Handle, closed: CancellationToken) {
        // The link also ends when this future is dropped with its runtime, because then no task would reconnect it.
        let _ends = Ends(self.clone());
        let mut generation = 0;
        let mut pauses = pauses(self.0.seed);
        let (plan, mut missing) = (&self.0.plan, false);
        while !closed.is_cancelled() {
            // Not raced against `closed`: an attempt that is no longer awaited would install its connection after `end`. The
            // connect timeout bounds the wait.
            match self.connect_on(&home, generation + 1).await {
                Some(Ok(ended)) => {
                    if std::mem::take(&mut missing) {
                        plan.health.back(&plan.server, self.now());
                    }
                    // A first connection is not reported: a server that is slow to start is not an outage.
                    if generation > 0
                        && let Some(observing) = &self.0.observing
                    {
                        observing.0.reconnected();
                    }
                    generation += 1;
                    self.enter(Phase::Up(generation));
                    // Kept after `drop_connection`, which removes the connection from the link: `served` is read after that.
                    let (began, live) = (self.now(), self.live());
                    let over = tokio::select! {
                        biased;
                        () = closed.cancelled() => break,
                        over = self.watch_over(ended) => over,
                        // This future never ends, and is dropped with the connection.
                        () = self.stay_logged_in(&home) => Over::Lost,
                    };
                    self.drop_connection();
                    let now = self.now();
                    let (served, refusal) = live.map_or((false, None), |live| {
                        let served = live.served.load(Ordering::Relaxed);
                        (served, live.refusal.get().cloned())
                    });
                    if refusal.is_none() && (served || now.since(began) >= STEADY) {
                        pauses = self::pauses(self.0.seed);
                    }
                    // The next attempt to connect fails, and ends this loop.
                    if over != Over::Runtime {
                        missing = true;
                        plan.health.lost(&plan.server, refusal.as_deref(), now);
                    }
                    self.enter(Phase::Down(ConnectError::Unreachable {
                        server: plan.server.clone(),
                        detail: refusal.unwrap_or_else(|| "the connection was lost".into()),
                    }));
                    if over == Over::Runtime {
                        continue;
                    }
                }
                Some(Err(error)) => {
                    let now = self.now();
                    if !std::mem::replace(&mut missing, true) {
                        plan.health.never_up(now);
                    }
                    plan.health.failed(&plan.server, &error, now);
                    self.enter(Phase::Down(error));
                }
                // `home` has ended, so no runtime is left to drive a connection.
                None => break,
            }
            loop {
                tokio::select! {
                    biased;
                    () = closed.cancelled() => break,
                    // All clients get the announcement at the same time, so the first pause spreads their attempts.
                    () = plan.stir.hurried() => pauses = self::pauses(self.0.seed),
                    () = tokio::time::sleep(pauses.next().unwrap_or(MAX_PAUSE)) => break,
                }
            }
        }
        // Otherwise the link of a retired node would count as down without an end.
        if missing {
            plan.health.given_up(&plan.server, self.now());
        }
    }

    /// Returns when the connection has ended or must be dropped; see the module. Silence is measured in quarters of the
    /// response timeout.
    async fn watch_over(&self, mut ended: oneshot::Receiver<()>) -> Over {
        // The connection was dropped (`Link::drop_connection`) before the first poll of this future.
        let Some(live) = self.live() else {
            return Over::Lost;
        };
        let over = |ended: Result<(), _>| match ended {
            // The driver was dropped before its stream ended, and not by this link.
            Err(_) if self.is_current(&live) => Over::Runtime,
            _ => Over::Lost,
        };
        // The loop counts ticks and does not compare moments. After a suspend, or when this thread was blocked, the server
        // may have answered long ago, but no task has read the reply. Such a gap counts as one tick.
        let tick = self.0.response_timeout / 4;
        let mut answered = live.books.answered();
        let (mut silent, mut idle) = (Duration::ZERO, Duration::ZERO);
        loop {
            tokio::select! {
                biased;
                end = &mut ended => return over(end),
                // After that message every reply would reach the wrong request. All channels are subscribed again on the
                // next connection.
                () = live.stops.unasked.notified() => return Over::Lost,
                () = tokio::time::sleep(tick) => {}
            }
            let now_answered = live.books.answered();
            // Replies arrive in the order of the requests, so any reply shows that the server processes them.
            let progress = std::mem::replace(&mut answered, now_answered) != now_answered;
            if live.books.owes() {
                // P9: a connection with replies to other calls stays open, and callers set no timer before their first wake.
                live.over.remind();
                // The probe is for connections without calls. A call serves as a probe.
                idle = Duration::ZERO;
                silent = if progress {
                    Duration::ZERO
                } else {
                    silent + tick
                };
                if silent >= self.0.response_timeout {
                    return Over::Lost;
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
                        end = &mut ended => return over(end),
                        // Limited here, because the loop does not count silence while it waits for the probe.
                        probe = tokio::time::timeout(self.0.response_timeout, self.probe()) => if !probe.unwrap_or(false) { return Over::Lost },
                    }
                }
            }
        }
    }

    /// Returns whether the server answers and is still the right one. Uses `TIME` and not `PING`, because the same round
    /// trip also reads the server's clock.
    async fn probe(&self) -> bool {
        let Some(live) = self.live() else {
            return false;
        };
        // A refusal is an answer, too: the connection works. Calls will get the same refusal and report it.
        let asked = self.now();
        if let Ok(reply) = plain(&live, self.greeting()).await {
            self.observe_time(&reply, asked.micros());
        }
        // An idle client notices here that its master was demoted: without permission to subscribe at the sentinels, or behind a name
        // that moves. The subscriber's link sends no request that a replica would refuse.
        if self.needs_master()
            && let Err(detail) = is_master(&live).await
        {
            let _ = live.refusal.set(detail);
            return false;
        }
        true
    }

    fn greeting(&self) -> &'static [&'static str] {
        match self.0.plan.peer {
            Peer::Server | Peer::Master => &["TIME"],
            // A sentinel has no `TIME`, and no decision depends on its clock.
            Peer::Sentinel => &["PING"],
        }
    }

    pub(crate) fn observe_time(&self, reply: &Reply, asked_at: u64) {
        // Seconds, and the microseconds of the current second. Any other reply, such as the reply to `PING`, is not a clock
        // reading.
        if let Some([secs, micros]) = reply.as_array()
            && let (Some(secs), Some(micros)) = (secs.as_int(), micros.as_int())
        {
            // Saturating, because a nonsense clock must not end the supervisor.
            let server = secs
                .cast_unsigned()
                .saturating_mul(1_000_000)
                .saturating_add(micros.cast_unsigned());
            self.0
                .plan
                .server_clock
                .observe(server, asked_at, self.now().micros());
        }
    }

    /// Makes one attempt to connect, on `home`. Returns `None` when `home` has ended.
    async fn connect_on(
        &self,
        home: &Handle,
        number: u64,
    ) -> Option<Result<oneshot::Receiver<()>, ConnectError>> {
        // On `home`: a socket belongs to the runtime that opens it, and `connect` spawns the driver on its own runtime.
        let link = self.clone();
        home.spawn(async move {
            let timeout = link.0.connect_timeout;
            let connecting = tokio::time::timeout(timeout, link.connect(number));
            connecting.await.unwrap_or_else(|_| {
                let detail = format!(
                    "no connection within {}",
                    humantime::format_duration(timeout)
                );
                Err(ConnectError::Unreachable {
                    server: link.0.plan.server.clone(),
                    detail,
                })
            })
        })
        .await
        .map_or_else(
            |error| {
                // A panic of a connector or provider written by the user is one failed attempt and does not end the link.
                // The only other reason for a join error is that `home` has ended.
                error.is_panic().then(|| {
                    Err(ConnectError::Unreachable {
                        server: self.server().to_owned(),
                        detail: broken(&error),
                    })
                })
            },
            Some,
        )
    }

    /// Connects without supervision, for a few commands. Dropping the returned value ends the connection.
    pub(crate) async fn connect_once(&self) -> Result<OnceConnected, ConnectError> {
        drop(self.connect(1).await?);
        Ok(OnceConnected(self.clone()))
    }

    /// Opens the connection with this number.
    async fn connect(&self, number: u64) -> Result<oneshot::Receiver<()>, ConnectError> {
        let plan = &self.0.plan;
        // The stream is opened first: while a server cannot be reached, the provider of credentials is not called at every
        // attempt, and its credentials are fresh.
        let stream = plan.connector.connect().await;
        let stream = stream.map_err(|e| self.unreachable(&e))?;
        let credentials = plan.login.now(&plan.server).await?;
        let credentials = credentials.as_ref();
        // RESP2 wherever no messages are expected: such a connection receives no unrequested data that the redis crate could
        // take for a reply.
        let protocol = if plan.on_push.is_some() {
            ProtocolVersion::RESP3
        } else {
            ProtocolVersion::RESP2
        };
        let mut config = AsyncConnectionConfig::new()
            // The default is 500 ms. That timer ends the request and keeps the connection. The timer also belongs to the
            // caller's runtime, which may end before the request does (decision 0004).
            .set_response_timeout(None)
            // The default is 50: the next call would wait for a free slot, and count as owed a reply although it was not sent.
            .set_pipeline_buffer_size(4096);
        let (stops, books) = (Arc::new(Stops::default()), Books::default());
        if let Some(on_push) = plan.on_push.clone() {
            let (stops, owed) = (Arc::clone(&stops), books.owed());
            let connection = self.numbered(number);
            config = config.set_push_sender(move |push: PushInfo| {
                use redis::Value::{Array, BulkString};
                owed.told();
                // Runs on the driver, so nothing here may block. Other kinds need no action: confirmations reach their
                // callers as replies, and `ended` reports a disconnection.
                match (push.kind, push.data.as_slice()) {
                    (
                        PushKind::Message | PushKind::SMessage,
                        [BulkString(channel), BulkString(payload)],
                    ) => on_push(connection, channel, payload),
                    (PushKind::Invalidate, [Array(keys)]) => {
                        for key in keys {
                            if let BulkString(key) = key {
                                on_push(connection, WRITTEN, key);
                            }
                        }
                    }
                    // All keys: the server was flushed.
                    (PushKind::Invalidate, _) => on_push(connection, WRITTEN, b""),
                    (PushKind::SUnsubscribe, [BulkString(channel), ..]) => stops.stopped(channel),
                    _ => {}
                }
                Ok::<(), std::convert::Infallible>(())
            });
        }
        let opening = Opening::default();
        let (connection, driver) = MultiplexedConnection::new_with_config(
            &plan.login.handshake(credentials, protocol),
            Paced::new(stream, books.owed(), opening.clone()),
            config,
        )
        .await
        .map_err(|e| refused(&plan.server, &e, credentials, &opening))?;
        let (ending, ended) = oneshot::channel::<()>();
        let driver = tokio::spawn(async move {
            driver.await;
            // The task owns `ending`, so `ended` also fires when the task is aborted or its runtime ends. The link may be gone.
            let _ = ending.send(());
        });
        let live = Live {
            connection,
            driver: driver.abort_handle(),
            over: End::default(),
            stops,
            books,
            served: AtomicBool::new(false),
            refusal: OnceLock::new(),
            login_ends: credentials.and_then(|c| c.valid_for),
        };
        if let Err(error) = self.greet(&live).await {
            // A driver without callers ends without an abort, but only after a flush, which a silent peer can delay.
            live.driver.abort();
            return Err(error);
        }
        // Installed only now: no call may reach a server that is not a master, or that refuses this user.
        self.install(live);
        Ok(ended)
    }

    async fn greet(&self, live: &Live) -> Result<(), ConnectError> {
        let server = || self.0.plan.server.clone();
        // The role comes before the clock, which the links of a node share: a replica's clock must not be stored.
        if self.needs_master() {
            is_master(live)
                .await
                .map_err(|detail| ConnectError::Unreachable {
                    server: server(),
                    detail,
                })?;
        }
        let asked = self.now();
        let greeting = self.named(live, plain(live, self.greeting()));
        match tokio::join!(self.recognise(live), greeting).1 {
            Ok(reply) => self.observe_time(&reply, asked.micros()),
            // A refusal fails the connect, because the scripts call `TIME`, too, with the rights of the same user.
            Err(Failure::Rejected(rejection)) => {
                let sentinel = self.sentinel(live).await;
                return Err(ConnectError::Rejected {
                    server: server(),
                    rejection: sentinel.unwrap_or(rejection),
                });
            }
            // LOADING and similar errors: the client is connected, and calls will report the error.
            Err(_) => {}
        }
        match &self.0.facts {
            Some(facts) => facts.learn(&self.0.plan.server, live).await,
            None => Ok(()),
        }
    }

    /// Returns the rejection that names the right URL, if the server, which has no `TIME`, reports that it is a sentinel.
    async fn sentinel(&self, live: &Live) -> Option<ServerRejection> {
        if self.0.plan.peer != Peer::Server {
            return None;
        }
        let reply = plain(live, &["INFO"]).await.ok()?;
        let mut lines = reply.as_text()?.lines().map(str::trim_end);
        if !lines.any(|it| it == "redis_mode:sentinel") {
            return None;
        }
        let named = lines.find_map(|line| line.strip_prefix("master0:name=")?.split(',').next());
        let (s, place) = match self.server().split_once("://") {
            Some(("rediss", place)) => ("s", place),
            Some((_, place)) => ("", place),
            None => ("", self.server()),
        };
        let service = named.unwrap_or("SERVICE");
        Some(ServerRejection::Other {
            detail: format!(
                "it is a sentinel and has no locks; connect with redis{s}+sentinel://{place}/{service}"
            ),
        })
    }

    fn unreachable(&self, error: &io::Error) -> ConnectError {
        // The connector for sentinels returns a more precise error.
        let told = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<ConnectError>());
        if let Some(told) = told {
            return told.clone();
        }
        let (server, detail) = (self.0.plan.server.clone(), error.to_string());
        #[cfg(feature = "tls")]
        if crate::tls::is_tls(error) {
            return ConnectError::Tls { server, detail };
        }
        ConnectError::Unreachable { server, detail }
    }
}

/// Ends a link when its supervisor ends.
struct Ends(Link);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// The connection was lost or dropped.
    Lost,
    /// Its runtime has ended, probably with the program: nothing is lost, and no task could reconnect it.
    Runtime,
}

/// Checks that the server is a master. The error names the actual role. At a server without `HELLO` the check passes.
///
/// Servers permit `HELLO` to every user, unlike `ROLE`.
pub(super) async fn is_master(live: &Live) -> Result<(), String> {
    match plain(live, &["HELLO"]).await {
        Ok(reply) => {
            let mut pairs = reply.as_array().unwrap_or_default().chunks_exact(2);
            let role = pairs.find(|pair| pair[0].as_text() == Some("role"));
            match role.and_then(|pair| pair[1].as_text()) {
                Some("master") => Ok(()),
                // This attempt fails. At the next attempt the name or the sentinels may lead to the new master.
                Some(role) => Err(format!("it is no master but a {role} (READONLY)")),
                None => Err("it does not tell its role".into()),
            }
        }
        Err(Failure::Unanswered(outage)) => Err(outage.to_string()),
        // A server that is loading may be the master. Without `HELLO` a replica is detected later by its refusal of a write.
        Err(Failure::NotNow(_) | Failure::Rejected(_)) => Ok(()),
    }
}

/// A connection that lasted this long, or that answered a script, resets the backoff. Any other connection counts as a failed
/// attempt. Otherwise a peer that hangs up after each handshake would be dialled in a tight loop.
const STEADY: Duration = Duration::from_secs(1);

/// The first pause is a random part of this time, so that clients that lost the same server do not all reconnect at once.
const SPREAD: Duration = Duration::from_millis(20);

/// The longest pause, before jitter.
// With jitter up to 4 s: a client finds a restarted server within that time and one attempt.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Returns the endless sequence of pauses between attempts: a random part of [`SPREAD`], then 50 ms doubling to 2 s. Jitter
/// of up to its own length is added to each.
fn pauses(seed: Option<u64>) -> impl Iterator<Item = Duration> {
    let mut builder = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(MAX_PAUSE)
        .with_jitter()
        .without_max_times();
    if let Some(seed) = seed {
        builder = builder.with_jitter_seed(seed);
    }
    // The first pause does not come from the builder, which adds its jitter to a pause, so its pauses never come near zero.
    let mut rng = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
    std::iter::once(SPREAD.mul_f64(rng.f64())).chain(builder.build())
}
