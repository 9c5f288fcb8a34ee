//! The master that the sentinels name.
//!
//! [`Sentinels`] is a [`Connector`], so the links above it do not know of sentinels.
//!
//! # Life of the sentinels' word
//! 1. **Ask**: each connect asks all sentinels at once and takes the answer with the highest epoch. A sentinel that was cut
//!    off names an old master with a lower epoch. Connects at the same time share one answer ([`Asked`]).
//! 2. **Dial**: a stream to that master is opened and recorded in [`Open`]. The supervisor then verifies with `ROLE` that the
//!    server is a master.
//! 3. **Listen**: one link to each sentinel subscribes to `+promoted-slave` and `+switch-master`. A message that names the new
//!    master ends all streams to other servers, and makes pausing links connect at once.
//! 4. **Overtake**: a message may arrive while a stream is being dialled. The dial compares [`Open::times`] before and after,
//!    and starts again if it would end at the old master.
//! 5. **Missed messages**: when the link to a sentinel reconnects, the sentinels are asked again. Where subscribing is not
//!    permitted, the old master is noticed by `READONLY` or by the probe of an idle connection.
//!
//! Long: one conversation with sentinels: asking, listening, leaving.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::clock::{Clock, Moment};
use crate::config::ClientConfig;
use crate::error::{ConfigError, ConnectError, ServerRejection, more_telling};
use crate::link::{Link, Messages, OnPush, Peer, Phase, Plan, Subscribe};
use crate::node::Dialer;
use crate::stream::Routes;
use crate::url::{Login, Place, SentinelTarget};
use crate::{ByteStream, Connector, Failure};

/// The time that the other sentinels have after one has answered: they may know of a later failover.
// Every connect pays it if one sentinel is silent, so it is short against the default connect timeout of 2 s.
const GRACE: Duration = Duration::from_millis(100);

/// The time for which connects share one question to the sentinels.
// Links that lose a master together dial again within 20 ms (the supervisor's first pause) and so share one. An answer
// that is older may have been overtaken by a failover whose messages nobody heard.
const SHARED: Duration = Duration::from_millis(100);

/// The messages about a failover. The sentinel that leads it sends the first as soon as the new master accepts writes; every
/// sentinel sends the second once it knows. In between the old master may still accept writes, which will be lost.
const PROMOTED: &str = "+promoted-slave";
const SWITCHED: &str = "+switch-master";

/// The connector to the master of a service.
pub(crate) struct Sentinels {
    panel: Arc<Panel>,
    routes: Arc<Routes>,
    tls: bool,
    /// The runtime on which sentinels are asked, the client's own: a blocked caller's runtime must not delay the others
    /// that share the answer.
    home: Handle,
    /// Changed by connects and by the messages of sentinels, on their driver's thread. Never held while `asked` is taken.
    open: Mutex<Open>,
    /// The last question, shared by connects that come within [`SHARED`] of it.
    asked: Mutex<Option<Asked>>,
}

/// The streams to masters, and the last message about a failover.
#[derive(Default)]
struct Open {
    /// The address of each open stream, and the token that ends it.
    streams: Vec<(Place, CancellationToken)>,
    /// The master that the last message named.
    told: Option<Place>,
    /// The number of messages so far: a change means that an earlier answer may be outdated.
    times: u64,
    /// True once a sentinel was listened to.
    listening: bool,
}

/// A question to the sentinels.
struct Asked {
    at: Moment,
    /// [`Open::times`] at that time. A later message makes the answer outdated.
    times: u64,
    /// Filled once, by the task that asks; each connect that shares the question has a clone.
    answer: watch::Receiver<Option<Result<Master, ConnectError>>>,
}

/// A master and the epoch of the failover that promoted it. Of two answers the one with the higher epoch is right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Master {
    place: Place,
    epoch: u64,
}

/// The sentinels, and the means to ask them.
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
            home: dialer.runner.handle().clone(),
            open: Mutex::default(),
            asked: Mutex::default(),
        }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the master, by a new question to the sentinels or by one that was asked within [`SHARED`].
    async fn master(&self) -> Result<Master, ConnectError> {
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

    fn ask_once(&self) -> watch::Receiver<Option<Result<Master, ConnectError>>> {
        // Copied first, so that the two locks are never held together.
        let times = self.open().times;
        let now = self.panel.clock.now();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = &*asked
            // A message since then: the answer may name the old master.
            && asked.times == times
            && now.since(asked.at) < SHARED
        {
            return asked.answer.clone();
        }
        let (tell, answer) = watch::channel(None);
        let panel = Arc::clone(&self.panel);
        // A task: the question must not end with the caller that asks first, as others wait for its answer.
        self.home.spawn(async move {
            let master = panel.master().await;
            tell.send_replace(Some(master));
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
        // Made anew for each dial: the address is known only now.
        let connector = self.routes.connector(&master.route(self.tls));
        let connector = connector.map_err(|e| io::Error::other(ConnectError::from(e)))?;
        connector.connect().await.map_err(|error| {
            #[cfg(feature = "tls")]
            if crate::tls::is_tls(&error) {
                // As it is: `Link::unreachable` knows TLS errors by their type.
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

    /// Asks all sentinels at once and returns the answer with the highest epoch. A sentinel that was cut off from the others
    /// names an old master.
    async fn master(&self) -> Result<Master, ConnectError> {
        let mut answers: FuturesUnordered<_> = self
            .sentinels
            .iter()
            .map(|(place, connector)| self.ask(place, connector))
            .collect();
        let mut best: Option<Master> = None;
        let mut failure: Option<ConnectError> = None;
        loop {
            let answer = match best {
                // No grace before the first answer: each question has its own limit.
                None => answers.next().await,
                Some(_) => tokio::time::timeout(GRACE, answers.next())
                    .await
                    .unwrap_or(None),
            };
            match answer {
                Some(Ok(master)) if best.as_ref().is_none_or(|b| master.epoch > b.epoch) => {
                    best = Some(master);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => failure = Some(more_telling(failure, error)),
                None => break,
            }
        }
        best.ok_or_else(|| {
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
        // Leaves half of the connect timeout for the master itself.
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
        // Nil. The name of the service in the URL is wrong, so a retry would not help.
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
            let (this, stir) = (Arc::clone(self), Arc::clone(&dialer.stir));
            let on_push = move |channel: &[u8], payload: &[u8]| {
                let (channel, payload) = (str::from_utf8(channel), str::from_utf8(payload));
                // Runs on the driver of this sentinel's link: it takes one lock for a moment, and waits for nothing.
                if let (Ok(channel), Ok(payload)) = (channel, payload)
                    && let Some(master) = new_master(&this.panel.service, channel, payload)
                {
                    this.leave_all_but(&master);
                    stir.hurry();
                }
            };
            let plan = self.panel.plan(place, connector, Some(Arc::new(on_push)));
            let link = dialer.link(plan, dialer.runner.handle(), &dialer.closed);
            let listening = Arc::clone(self).listen(link, dialer.closed.clone());
            dialer.runner.serve(listening);
        }
    }

    async fn listen(self: Arc<Self>, link: Link, closed: CancellationToken) {
        let mut phase = link.phase();
        let mut earlier = false;
        loop {
            // Marked as seen before the work below, so that a reconnect during it starts another round.
            let up = matches!(&*phase.borrow_and_update(), Phase::Up(_));
            if up {
                for channel in [PROMOTED, SWITCHED] {
                    let (channel, kind) = (channel.as_bytes(), Messages::Plain);
                    let outcome = link.subscribe(channel, Subscribe::Start, kind).await;
                    // Not the end: the other channel may be permitted, and every reconnect tries again.
                    if let Err(failure) = outcome {
                        tracing::debug!(
                            ?failure,
                            "a sentinel does not let us listen; a new master is found by reconnecting"
                        );
                    }
                }
                // Messages may have been missed while this sentinel was disconnected; and before the first of them was heard,
                // since the client's first question. Later first connections have missed nothing: another one listened.
                // Asked after subscribing: a failover in between is either in the answer or in a message.
                let missed = std::mem::replace(&mut earlier, true)
                    || !std::mem::replace(&mut self.open().listening, true);
                // So not the answer that connects share, which may be older than the subscription.
                if missed && let Ok(master) = self.panel.master().await {
                    self.leave_all_but(&master.place);
                }
            }
            tokio::select! {
                biased;
                () = closed.cancelled() => return,
                changed = phase.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Ends the streams to all servers but `master`, as a message or an answer of the sentinels demands.
    fn leave_all_but(&self, master: &Place) {
        let mut left = None;
        let mut open = self.open();
        // Also when there is no stream to end: dials under way compare with it.
        open.told = Some(master.clone());
        open.times += 1;
        open.streams.retain(|(place, over)| {
            // A stream that has ended already is not left again, nor logged.
            if place != master && !over.is_cancelled() {
                left = Some(place.clone());
                // Under the lock: what this wakes runs later, and the drop of a stream does not take it.
                over.cancel();
            }
            !over.is_cancelled()
        });
        drop(open);
        if let Some(left) = left {
            tracing::info!(service = self.panel.service, %left, %master, "another master");
        }
    }
}

/// Returns the new master, if the message is about service `ours`: `slave <name> <host> <port> @ <service> <old host> <port>` and
/// `<service> <old host> <port> <new host> <port>`.
fn new_master(ours: &str, channel: &str, payload: &str) -> Option<Place> {
    let words: Vec<&str> = payload.split(' ').collect();
    let (service, host, port) = match (channel, words.as_slice()) {
        // Behind the `@` stands the old master, whose name is the service's.
        (PROMOTED, ["slave", _, host, port, "@", service, ..]) => (service, host, port),
        (SWITCHED, [service, _, _, host, port]) => (service, host, port),
        _ => return None,
    };
    (*service == ours).then_some(Place {
        host: (*host).to_owned(),
        port: port.parse().ok()?,
    })
}

#[async_trait]
impl Connector for Sentinels {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        loop {
            // Before the question, so that a message during it counts, too.
            let before = self.open().times;
            let master = self.master().await.map_err(io::Error::other)?.place;
            let stream = self.dial(&master).await?;
            let over = CancellationToken::new();
            let mut open = self.open();
            // Under the same lock as the push below: a message either is seen here or finds the stream in the list. One
            // that names this very master confirms the answer.
            if open.times != before && open.told.as_ref() != Some(&master) {
                // A message named another master during the dial, and did not see this stream.
                continue;
            }
            // Streams that were dropped: nothing else removes them.
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

/// A stream that another task can end; it then reads as closed.
struct Leashed {
    stream: Box<dyn ByteStream>,
    /// Waits for `over`. Polled by reads only, so it keeps the waker of the driver.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Also cancelled by the drop, so that [`Open`] can forget the stream.
    over: CancellationToken,
}

impl AsyncRead for Leashed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // First, so that replies of a replaced master that have arrived are not believed: its writes may be lost.
        if self.ended.as_mut().poll(cx).is_ready() {
            // No bytes: the end of the stream. Reads suffice: the redis crate's driver reads whenever it runs, also to
            // write.
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
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::sync::Semaphore;

    #[test]
    fn a_message_is_heard_if_it_is_about_our_service() {
        let read = |channel: &str, payload: &str| {
            let place = new_master("main", channel, payload);
            place.map(|place| place.to_string())
        };
        let new = Some("10.0.0.2:6380".to_owned());
        let old = "10.0.0.1 6379";
        assert_eq!(read(SWITCHED, &format!("main {old} 10.0.0.2 6380")), new);
        let promoted = format!("slave 10.0.0.2:6380 10.0.0.2 6380 @ main {old}");
        assert_eq!(read(PROMOTED, &promoted), new);
        for other in ["main2 a 1 b 2", "main a 1 b", "main a 1 b x", ""] {
            assert_eq!(read(SWITCHED, other), None, "{other}");
        }
        let other = promoted.replace("main", "other");
        assert_eq!(read(PROMOTED, &other), None);
        assert_eq!(read("+sdown", &promoted), None);
    }

    /// A sentinel that names `master` and counts the questions.
    #[derive(Debug, Default)]
    struct Fake {
        master: Mutex<&'static str>,
        asked: AtomicU32,
    }

    #[async_trait]
    impl Connector for Arc<Fake> {
        async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
            let (near, far) = tokio::io::duplex(4096);
            let this = Self::clone(self);
            tokio::spawn(async move {
                let mut far = BufReader::new(far);
                let mut line = String::new();
                while far.read_line(&mut line).await.is_ok_and(|n| n > 0) {
                    let words: usize = line.trim()[1..].parse().unwrap();
                    let mut command = String::new();
                    for _ in 0..words {
                        line.clear();
                        far.read_line(&mut line).await.unwrap();
                        far.read_line(&mut command).await.unwrap();
                    }
                    line.clear();
                    let host = *this.master.lock().unwrap();
                    let length = host.len();
                    let answer = if command.contains("GET-MASTER") {
                        this.asked.fetch_add(1, Ordering::SeqCst);
                        format!("*2\r\n${length}\r\n{host}\r\n$4\r\n6379\r\n")
                    } else if command.contains("SENTINEL") {
                        "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n".to_owned()
                    } else {
                        "+OK\r\n".to_owned()
                    };
                    far.get_mut().write_all(answer.as_bytes()).await.unwrap();
                }
            });
            Ok(Box::new(near))
        }
    }

    /// The connector to all masters: a dial waits for a permit.
    #[derive(Debug)]
    struct Gate(Arc<Semaphore>, AtomicU32);

    #[async_trait]
    impl Connector for Arc<Gate> {
        async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.acquire().await.unwrap().forget();
            Ok(Box::new(tokio::io::duplex(64).0))
        }
    }

    fn place(host: &str) -> Place {
        Place {
            host: host.into(),
            port: 6379,
        }
    }

    fn sentinels(fake: &Arc<Fake>, gate: &Arc<Gate>) -> Arc<Sentinels> {
        let config = ClientConfig::default().connector(Arc::clone(gate));
        let connector: Arc<dyn Connector> = Arc::new(Arc::clone(fake));
        Arc::new(Sentinels {
            panel: Arc::new(Panel {
                service: "main".into(),
                clock: Arc::new(crate::clock::BootClock),
                sentinels: vec![(place("sentinel"), connector)],
                config: config.clone(),
            }),
            routes: Arc::new(Routes::new(&config)),
            tls: false,
            home: Handle::current(),
            open: Mutex::default(),
            asked: Mutex::default(),
        })
    }

    fn fake_and_gate() -> (Arc<Fake>, Arc<Gate>) {
        let fake = Arc::new(Fake::default());
        *fake.master.lock().unwrap() = "old";
        let gate = Gate(Arc::new(Semaphore::new(0)), AtomicU32::new(0));
        (fake, Arc::new(gate))
    }

    #[tokio::test]
    async fn a_dial_that_began_before_a_failover_does_not_end_at_the_old_master() {
        let (fake, gate) = fake_and_gate();
        let sentinels = sentinels(&fake, &gate);
        let connecting = tokio::spawn({
            let sentinels = Arc::clone(&sentinels);
            async move { sentinels.connect().await.map(drop) }
        });
        while gate.1.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        *fake.master.lock().unwrap() = "new";
        sentinels.leave_all_but(&place("new"));
        gate.0.add_permits(2);
        connecting.await.unwrap().unwrap();
        let dialled = sentinels
            .open()
            .streams
            .first()
            .map(|(place, _)| place.clone());
        assert_eq!(dialled, Some(place("new")));
        assert_eq!(sentinels.open().streams.len(), 1);
    }

    #[tokio::test]
    async fn connections_that_are_made_together_ask_once() {
        let (fake, gate) = fake_and_gate();
        let sentinels = sentinels(&fake, &gate);
        gate.0.add_permits(9);
        let three = || {
            futures_util::future::join3(
                sentinels.connect(),
                sentinels.connect(),
                sentinels.connect(),
            )
        };
        let (a, b, c) = three().await;
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        assert_eq!(fake.asked.load(Ordering::SeqCst), 1);
        // After a message the sentinels are asked again.
        sentinels.leave_all_but(&place("old"));
        let _again = three().await;
        assert_eq!(fake.asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_failover_before_the_first_sentinel_was_heard_is_noticed() {
        let (fake, gate) = fake_and_gate();
        let sentinels = sentinels(&fake, &gate);
        gate.0.add_permits(1);
        let _stream = sentinels.connect().await.unwrap();
        // No message tells of it: nobody listens yet.
        *fake.master.lock().unwrap() = "new";
        let closed = CancellationToken::new();
        let (place, connector) = &sentinels.panel.sentinels[0];
        let link = Link::new(
            &sentinels.panel.config,
            sentinels.panel.plan(place, connector, None),
        );
        tokio::spawn(link.clone().supervise(Handle::current(), closed.clone()));
        let listening = tokio::spawn(Arc::clone(&sentinels).listen(link, closed.clone()));
        let told = async {
            while sentinels.open().told.is_none() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), told)
            .await
            .expect("the sentinels are asked once more");
        assert_eq!(
            sentinels.open().told,
            Some(Place {
                host: "new".into(),
                port: 6379
            })
        );
        assert!(sentinels.open().streams.is_empty(), "the old one was left");
        closed.cancel();
        listening.await.unwrap();
    }

    #[tokio::test]
    async fn a_leashed_stream_can_be_ended() {
        let (near, mut far) = tokio::io::duplex(64);
        let over = CancellationToken::new();
        let mut leashed = Leashed {
            stream: Box::new(near),
            ended: Box::pin(over.clone().cancelled_owned()),
            over: over.clone(),
        };
        far.write_all(b"x").await.unwrap();
        assert_eq!(leashed.read_u8().await.unwrap(), b'x');
        let reading = tokio::spawn(async move { leashed.read_u8().await });
        over.cancel();
        let ended = reading.await.unwrap().unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }
}
