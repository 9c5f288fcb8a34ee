//! The master that the sentinels name.
//!
//! [`Sentinels`] is a [`Connector`], so the links above it do not know of sentinels.
//!
//! # Life of a sentinel answer
//! 1. **Query**: each connect queries all sentinels at once and takes the answer with the highest epoch. A sentinel that was cut
//!    off names an old master with a lower epoch. Connects at the same time share one answer ([`Asked`]). The client itself
//!    remembers the newest master ([`Open::known`]), and compares that with the answers.
//! 2. **Dial**: a stream to that master is opened and recorded in [`Open`]. The supervisor then verifies the role of the server.
//! 3. **Listen**: one link to each sentinel subscribes to `+promoted-slave` and `+switch-master`. A message carries no epoch, so
//!    the client queries that sentinel after the message. A master with a higher epoch ends all streams to other servers, and makes
//!    pausing links connect at once. An answer with a lower epoch changes nothing: that sentinel is behind.
//! 4. **Overtake**: a newer master may become known while a stream is being dialled. The dial then starts again.
//! 5. **Missed messages**: when the link to a sentinel reconnects, the client queries that sentinel again. Without permission to
//!    subscribe, the client notices the old master by `READONLY` or by the probe of an idle connection.
//! 6. **Reset**: if no stream is open, every sentinel answers, and all epochs are lower, then the sentinels were set up again.
//!    The client drops the master that it remembered. A majority is enough if its answers agree and the remembered server cannot be
//!    reached as a master ([`Sentinels::is_served`]): the other sentinels may have died with it.
//!
//! Long: one conversation with sentinels: querying, listening, leaving.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::clock::{Clock, Moment};
use crate::config::ClientConfig;
use crate::error::{ConfigError, ConnectError, ServerRejection, more_telling};
use crate::link::{ConnectionId, Link, Messages, OnPush, Peer, Phase, Plan, Stir, Subscribe};
use crate::node::Dialer;
use crate::stream::Routes;
use crate::url::{Login, Place, SentinelTarget};
use crate::{ByteStream, Connector, Failure};

/// The time that the remaining sentinels have once one has answered: another sentinel may know of a later failover.
// Every connect waits for this time if one sentinel is silent, so it is short compared with the default connect timeout of 2 s.
const GRACE: Duration = Duration::from_millis(100);

/// The time for which connects share one query of the sentinels.
// Links that lose a master together dial again within 20 ms (the supervisor's first pause), so they share one query. An
// older answer may be out of date, because a failover happened and its messages were missed.
const SHARED: Duration = Duration::from_millis(100);

/// The messages about a failover. The sentinel that leads the failover sends the first as soon as the new master accepts
/// writes. Every sentinel sends the second once it knows. In between the old master may accept writes, which will be lost.
const PROMOTED: &str = "+promoted-slave";
const SWITCHED: &str = "+switch-master";

/// The connector to the master of a service.
pub(crate) struct Sentinels {
    panel: Arc<Panel>,
    routes: Arc<Routes>,
    tls: bool,
    /// The login at the masters.
    login: Login,
    /// The runtime of the queries, the client's own: the answer is shared, so a blocked runtime of one caller must not delay
    /// the others.
    home: Handle,
    /// Changed by connects, and by the tasks that listen to sentinels. Never held while `asked` is locked.
    open: Mutex<Open>,
    /// The last query, shared by connects that come within [`SHARED`] of it.
    asked: Mutex<Option<Asked>>,
    stir: Arc<Stir>,
}

/// The streams to masters, and the newest master.
#[derive(Default)]
struct Open {
    /// The address of each open stream, and the token that ends it.
    streams: Vec<(Place, CancellationToken)>,
    /// The master with the highest epoch of all answers so far. All open streams lead to this master.
    known: Option<Master>,
    /// The number of changes of `known`. A change means that an earlier answer may be outdated.
    times: u64,
}

/// A query of the sentinels.
struct Asked {
    at: Moment,
    /// [`Open::times`] at the time of the query. After a later change the client queries the sentinels again.
    times: u64,
    /// Filled once, by the task of the query. Each connect that shares the query has a clone.
    answer: watch::Receiver<Option<Result<Answer, ConnectError>>>,
}

/// The result of a query of all sentinels.
#[derive(Clone, Debug)]
struct Answer {
    /// The master with the highest epoch.
    master: Master,
    /// True if every sentinel has answered.
    is_complete: bool,
    /// True if a majority of the sentinels has answered, all with this master and epoch.
    is_agreed: bool,
    /// [`Open::times`] before the query.
    times: u64,
}

/// A master and the epoch of the failover that promoted it. Of two answers the one with the higher epoch is right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Master {
    place: Place,
    epoch: u64,
}

/// The sentinels, with all that a query needs.
struct Panel {
    service: String,
    config: ClientConfig,
    clock: Arc<dyn Clock>,
    sentinels: Vec<(Place, Arc<dyn Connector>)>,
}

impl Sentinels {
    pub(crate) fn new(dialer: &Dialer, to: &SentinelTarget) -> Result<Arc<Self>, ConfigError> {
        let connector = |place: &Place| {
            let connector = dialer.routes.connector(&place.route(to.tls))?;
            Ok((place.clone(), connector))
        };
        let sentinels = to.sentinels.iter().map(connector);
        let panel = Panel {
            service: to.service.clone(),
            config: dialer.config.clone(),
            clock: Arc::clone(&dialer.clock),
            sentinels: sentinels.collect::<Result<_, _>>()?,
        };
        Ok(Arc::new(Self {
            panel: Arc::new(panel),
            routes: Arc::clone(&dialer.routes),
            tls: to.tls,
            login: dialer.login.clone(),
            home: dialer.runner.handle().clone(),
            open: Mutex::default(),
            asked: Mutex::default(),
            stir: Arc::clone(&dialer.stir),
        }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answer to a new query of the sentinels, or to a query that was sent within [`SHARED`].
    async fn master(&self) -> Result<Answer, ConnectError> {
        let mut answer = self.ask_once();
        let answer = answer.wait_for(Option::is_some).await;
        answer
            .ok()
            .and_then(|answer| answer.clone())
            .unwrap_or_else(|| {
                Err(ConnectError::Unreachable {
                    server: self.panel.service.clone(),
                    detail: "the runtime is shutting down".into(),
                })
            })
    }

    fn ask_once(&self) -> watch::Receiver<Option<Result<Answer, ConnectError>>> {
        // Read before `asked` is locked, so that the two locks are never held together.
        let times = self.open().times;
        let now = self.panel.clock.now();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = &*asked
            && asked.times == times
            && now.since(asked.at) < SHARED
        {
            return asked.answer.clone();
        }
        let (tell, answer) = watch::channel(None);
        let panel = Arc::clone(&self.panel);
        // A task, because the query must not end with its first caller: others wait for the same answer.
        self.home.spawn(async move {
            tell.send_replace(Some(panel.master(times).await));
        });
        *asked = Some(Asked {
            at: now,
            times,
            answer: answer.clone(),
        });
        answer
    }

    /// Opens a stream to the master.
    async fn dial(&self, master: &Place) -> io::Result<Box<dyn ByteStream>> {
        // Created for each dial, because the address is known only now.
        let connector = self.routes.connector(&master.route(self.tls));
        let connector = connector.map_err(|e| io::Error::other(ConnectError::from(e)))?;
        connector.connect().await.map_err(|error| {
            #[cfg(feature = "tls")]
            if crate::tls::is_tls(&error) {
                // Returned unchanged: `Link::unreachable` recognises TLS errors by their type.
                return error;
            }
            io::Error::other(ConnectError::Unreachable {
                server: format!("the master of {} at {master}", self.panel.service),
                detail: error.to_string(),
            })
        })
    }
}

impl Panel {
    fn login(&self) -> Login {
        Login {
            username: self.config.sentinel_username.clone(),
            password: self.config.sentinel_password.clone(),
            ..Login::default()
        }
    }

    fn plan(&self, place: &Place, connector: &Arc<dyn Connector>, on_push: Option<OnPush>) -> Plan {
        Plan {
            server: format!("the sentinel {place}"),
            peer: Peer::Sentinel,
            connector: Arc::clone(connector),
            login: self.login(),
            clock: Arc::clone(&self.clock),
            server_clock: Arc::default(),
            stir: Arc::default(),
            health: Arc::default(),
            on_push,
            name: None,
        }
    }

    /// Queries all sentinels at once and returns the answer with the highest epoch. A sentinel that was cut off from the
    /// others names an old master.
    async fn master(&self, times: u64) -> Result<Answer, ConnectError> {
        let mut answers: FuturesUnordered<_> = self
            .sentinels
            .iter()
            .map(|(place, connector)| self.ask(place, connector))
            .collect();
        let mut best: Option<Master> = None;
        let mut silent = self.sentinels.len();
        let mut is_unanimous = true;
        let mut failure: Option<ConnectError> = None;
        loop {
            let answer = match best {
                // No grace period before the first answer: each query has its own limit.
                None => answers.next().await,
                Some(_) => tokio::time::timeout(GRACE, answers.next())
                    .await
                    .unwrap_or(None),
            };
            match answer {
                Some(Ok(master)) => {
                    silent -= 1;
                    is_unanimous &= best.as_ref().is_none_or(|best| *best == master);
                    if best.as_ref().is_none_or(|best| master.epoch > best.epoch) {
                        best = Some(master);
                    }
                }
                Some(Err(error)) => failure = Some(more_telling(failure, error)),
                None => break,
            }
        }
        let is_complete = silent == 0;
        let is_agreed = is_unanimous && silent < self.sentinels.len().div_ceil(2);
        let answer = best.map(|master| Answer {
            master,
            is_complete,
            is_agreed,
            times,
        });
        answer.ok_or_else(|| {
            failure.unwrap_or_else(|| ConnectError::Unreachable {
                server: self.service.clone(),
                detail: "no sentinel is known".into(),
            })
        })
    }

    async fn ask(
        &self,
        place: &Place,
        connector: &Arc<dyn Connector>,
    ) -> Result<Master, ConnectError> {
        let server = || format!("the sentinel {place}");
        // Leaves half of the connect timeout for the connection to the master.
        let limit = self.config.connect_timeout / 2;
        let asking = async {
            let plan = self.plan(place, connector, None);
            let link = Link::new(&self.config, plan);
            let _end = link.connect_once().await?;
            self.ask_on(&link).await
        };
        tokio::time::timeout(limit, asking)
            .await
            .unwrap_or_else(|_| {
                let limit = humantime::format_duration(limit);
                Err(ConnectError::Unreachable {
                    server: server(),
                    detail: format!("no answer within {limit}"),
                })
            })
    }

    async fn ask_on(&self, link: &Link) -> Result<Master, ConnectError> {
        let failed = |failure| match failure {
            Failure::Rejected(rejection) => ConnectError::Rejected {
                server: link.server().into(),
                rejection,
            },
            Failure::NotNow(outage) | Failure::Unanswered(outage) => ConnectError::Unreachable {
                server: link.server().into(),
                detail: outage.to_string(),
            },
        };
        let unknown = || {
            failed(Failure::Rejected(ServerRejection::Other {
                detail: format!("no master is known by the name {:?}", self.service),
            }))
        };
        // During a failover this command names the new master earlier than SENTINEL MASTER does.
        let address = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.service];
        let address = link.command(&address).await.map_err(failed)?;
        // Nil: the service name in the URL is wrong, so a retry would not help.
        let Some([host, port]) = address.as_array() else {
            return Err(unknown());
        };
        let port = port.as_int().and_then(|port| u16::try_from(port).ok());
        let (Some(host), Some(port)) = (host.as_text(), port) else {
            return Err(unknown());
        };
        let facts = link.command(&["SENTINEL", "MASTER", &self.service]).await;
        let facts = facts.map_err(failed)?;
        let mut pairs = facts.as_array().unwrap_or_default().chunks_exact(2);
        let epoch = pairs.find(|pair| pair[0].as_text() == Some("config-epoch"));
        let epoch = epoch.and_then(|pair| u64::try_from(pair[1].as_int()?).ok());
        Ok(Master {
            place: Place {
                host: host.to_owned(),
                port,
            },
            // Without an epoch, any answer that has one is better.
            epoch: epoch.unwrap_or(0),
        })
    }
}

impl Sentinels {
    /// Listens to every sentinel, so that the client leaves a replaced master at once, even one that still accepts writes.
    pub(crate) fn watch(self: &Arc<Self>, dialer: &Arc<Dialer>) {
        for (place, connector) in &self.panel.sentinels {
            let (service, news) = (self.panel.service.clone(), Arc::<Notify>::default());
            let told = Arc::clone(&news);
            let on_push = move |_: ConnectionId, channel: &[u8], payload: &[u8]| {
                let (channel, payload) = (str::from_utf8(channel), str::from_utf8(payload));
                // Runs on the driver of this sentinel's link, so it must not wait.
                if let (Ok(channel), Ok(payload)) = (channel, payload)
                    && names_a_master(&service, channel, payload)
                {
                    told.notify_one();
                }
            };
            let plan = self.panel.plan(place, connector, Some(Arc::new(on_push)));
            let link = dialer.link(plan, dialer.runner.handle(), &dialer.closed);
            let listening = Arc::clone(self).listen(link, news, dialer.closed.clone());
            dialer.runner.serve(listening);
        }
    }

    /// Subscribes at one sentinel and queries it: after each connect, because messages may have been missed, and after each
    /// message (`news`).
    async fn listen(self: Arc<Self>, link: Link, news: Arc<Notify>, closed: CancellationToken) {
        let mut phase = link.phase();
        let mut subscribed = None;
        loop {
            // The phase is marked as seen before the work below, so a reconnect during that work starts another round.
            let connection = match &*phase.borrow_and_update() {
                Phase::Up(connection) => Some(*connection),
                _ => None,
            };
            if connection.is_some() && subscribed != connection {
                subscribed = connection;
                for channel in [PROMOTED, SWITCHED] {
                    let (channel, kind) = (channel.as_bytes(), Messages::Plain);
                    let outcome = link.subscribe(channel, Subscribe::Start, kind).await;
                    // The loop goes on: the other channel may be permitted, and every reconnect tries again.
                    if let Err(failure) = outcome {
                        tracing::debug!(
                            ?failure,
                            "a sentinel does not let us listen; a new master is found by reconnecting"
                        );
                    }
                }
            }
            // The query comes after the subscription: a failover in between is either in the answer or in a message.
            if connection.is_some()
                && let Ok(master) = self.panel.ask_on(&link).await
            {
                self.learn(&master);
            }
            tokio::select! {
                biased;
                () = closed.cancelled() => return,
                changed = phase.changed() => if changed.is_err() { return },
                // `Notify` stores a permit for a message that arrives during the query.
                () = news.notified() => {}
            }
        }
    }

    /// Stores `master` as the known one if its epoch is higher.
    fn learn(&self, master: &Master) {
        let mut open = self.open();
        // P1: the client does not leave a master in use for one with a lower epoch, nor for one with the same epoch: that is
        // the same master under another name.
        if open
            .known
            .as_ref()
            .is_none_or(|known| master.epoch > known.epoch)
        {
            self.follow(&mut open, master);
        }
    }

    /// Stores `master` as the known one, and ends the streams to all other servers.
    fn follow(&self, open: &mut Open, master: &Master) {
        if open.known.as_ref() != Some(master) {
            open.times += 1;
        }
        let before = open.known.replace(master.clone());
        if before.is_none_or(|before| before.place == master.place) {
            return;
        }
        let mut left = None;
        open.streams.retain(|(place, over)| {
            // A stream that has ended already is removed without a log message.
            if *place != master.place && !over.is_cancelled() {
                left = Some(place.clone());
                // Called under the lock. This is safe: the woken tasks run later, and the drop of a stream does not take this lock.
                over.cancel();
            }
            !over.is_cancelled()
        });
        if let Some(left) = left {
            tracing::info!(service = self.panel.service, %left, master = %master.place, "another master");
        }
        self.stir.another_master();
        self.stir.hurry();
    }

    /// Returns the master to dial: the master that the sentinels name, or the known one. `is_reset`: the known one counts only while streams to
    /// it are open.
    fn newest(&self, answer: &Answer, is_reset: bool) -> Place {
        let mut open = self.open();
        if let Some(known) = &open.known
            && known.epoch >= answer.master.epoch
        {
            let mut streams = open.streams.iter();
            // All connections lead to one server, so a new stream goes to the server of the open ones.
            let in_use = streams.any(|(place, over)| *place == known.place && !over.is_cancelled());
            // If every sentinel has answered since then, no sentinel knows the higher epoch any more.
            let forgotten = (answer.is_complete || is_reset) && answer.times == open.times;
            if in_use || known.epoch > answer.master.epoch && !forgotten {
                return known.place.clone();
            }
        }
        self.follow(&mut open, &answer.master);
        answer.master.place.clone()
    }

    /// Returns the master to dial. If a majority of the sentinels names another one than the known one, checks the known one first.
    async fn chosen(&self, answer: &Answer) -> Place {
        let master = self.newest(answer, false);
        if master == answer.master.place || !answer.is_agreed || self.is_served(&master).await {
            return master;
        }
        self.newest(answer, true)
    }

    /// Returns whether a master answers at `place`.
    async fn is_served(&self, place: &Place) -> bool {
        let Ok(connector) = self.routes.connector(&place.route(self.tls)) else {
            return false;
        };
        let config = &self.panel.config;
        let plan = Plan {
            peer: Peer::Master,
            login: self.login.clone(),
            ..self.panel.plan(place, &connector, None)
        };
        let link = Link::new(config, plan);
        // Leaves half of the connect timeout for the connection to the other master.
        let limit = config.connect_timeout / 2;
        let connected = tokio::time::timeout(limit, link.connect_once()).await;
        matches!(connected, Ok(Ok(_)))
    }
}

/// Returns whether the message names a new master of service `ours`. The two forms are `slave <name> <host> <port> @
/// <service> <old host> <port>` and `<service> <old host> <port> <new host> <port>`.
fn names_a_master(ours: &str, channel: &str, payload: &str) -> bool {
    let words: Vec<&str> = payload.split(' ').collect();
    match (channel, words.as_slice()) {
        // The service name and the address of the old master follow the `@`.
        (PROMOTED, ["slave", _, _, _, "@", service, ..]) => *service == ours,
        (SWITCHED, [service, _, _, _, _]) => *service == ours,
        _ => false,
    }
}

#[async_trait]
impl Connector for Sentinels {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        loop {
            let answer = self.master().await.map_err(io::Error::other)?;
            let master = self.chosen(&answer).await;
            let stream = self.dial(&master).await?;
            let over = CancellationToken::new();
            let mut open = self.open();
            // Under the lock that `learn` takes: a newer master is either seen here, or `learn` ends this stream.
            if open
                .known
                .as_ref()
                .is_some_and(|known| known.place != master)
            {
                continue;
            }
            // Removes the streams that were dropped. No other code removes them.
            open.streams.retain(|(_, over)| !over.is_cancelled());
            open.streams.push((master, over.clone()));
            return Ok(Box::new(Leashed {
                stream,
                ended: Box::pin(over.clone().cancelled_owned()),
                over,
            }));
        }
    }
}

impl std::fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sentinels")
            .field("service", &self.panel.service)
            .field("sentinels", &self.panel.sentinels)
            .finish_non_exhaustive()
    }
}

/// A stream that another task can end. The reader then sees the end of the stream.
struct Leashed {
    stream: Box<dyn ByteStream>,
    /// Waits for `over`. Only reads poll it, so it keeps the waker of the driver.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Also cancelled by the drop, so that [`Open`] can remove the stream.
    over: CancellationToken,
}

impl AsyncRead for Leashed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Checked first, so that the client ignores replies of a replaced master that have arrived: its writes may be lost.
        if self.ended.as_mut().poll(cx).is_ready() {
            // No bytes mean the end of the stream. Checking reads is enough: the redis crate's driver reads whenever it
            // runs, even to write.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Leashed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

#[cfg(test)]
mod tests;
