//! The master that sentinels name: asked for at every connect, and left when they name another.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::link::{Link, Messages, Peer, Phase, Plan, Subscribe};
use super::servers::Dialer;
use super::stream::connector_for;
use super::{ByteStream, Connector, Failure};
use crate::clock::{BootClock, Clock};
use crate::config::{ClientConfig, Login, Place, SentinelTarget};
use crate::error::{ConfigError, ConnectError, Rejection};

/// How long other sentinels may take once one has answered: they may know of a later failover.
const GRACE: Duration = Duration::from_millis(100);

/// What sentinels tell of a failover: the one that leads it as soon as the new master takes writes, and each of them
/// when it has heard. Between the two the old master takes writes as well, which are lost.
const PROMOTED: &str = "+promoted-slave";
const SWITCHED: &str = "+switch-master";

/// The connector to the master of a service.
pub(super) struct Sentinels {
    service: String,
    tls: bool,
    config: ClientConfig,
    sentinels: Vec<(Place, Arc<dyn Connector>)>,
    /// Connections to masters, and how to end them.
    open: Mutex<Vec<(Place, CancellationToken)>>,
}

/// A master, and the number of the failover that made it one: of two answers the higher is right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Master {
    place: Place,
    epoch: u64,
}

impl Sentinels {
    pub(super) fn new(
        config: &ClientConfig,
        to: &SentinelTarget,
    ) -> Result<Arc<Self>, ConfigError> {
        let connector = |place: &Place| {
            let connector = connector_for(config, &place.route(to.tls))?;
            Ok((place.clone(), connector))
        };
        let sentinels = to.sentinels.iter().map(connector);
        Ok(Arc::new(Self {
            service: to.service.clone(),
            tls: to.tls,
            config: config.clone(),
            sentinels: sentinels.collect::<Result<_, _>>()?,
            open: Mutex::default(),
        }))
    }

    fn open(&self) -> MutexGuard<'_, Vec<(Place, CancellationToken)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn login(&self) -> Login {
        Login {
            username: self.config.sentinel_username.clone(),
            password: self.config.sentinel_password.clone(),
            database: 0,
        }
    }

    /// Asks all sentinels at once. One that was cut off from the others names a master of old: the answer with the
    /// highest epoch is taken.
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
        // Half of the time that connecting to the master may take in all.
        let limit = self.config.connect_timeout / 2;
        let asking = async {
            let plan = Plan {
                server: server(),
                peer: Peer::Sentinel,
                connector: Arc::clone(connector),
                login: self.login(),
                clock: Arc::new(BootClock) as Arc<dyn Clock>,
                server_clock: Arc::default(),
                stir: Arc::default(),
                on_push: None,
            };
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
            failed(Failure::Rejected(Rejection::Other {
                detail: format!("no master is known by the name {:?}", self.service),
            }))
        };
        // During a failover this is the new master before the other command says so.
        let address = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.service];
        let address = link.command(&address).await.map_err(failed)?;
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
            epoch: epoch.unwrap_or(0),
        })
    }

    /// Listens to every sentinel, so that a master that is replaced is left at once, even one that does not know.
    pub(super) fn watch(self: &Arc<Self>, dialer: &Arc<Dialer>) {
        for (place, connector) in &self.sentinels {
            let (this, stir) = (Arc::clone(self), Arc::clone(&dialer.stir));
            let on_push = move |channel: &[u8], payload: &[u8]| {
                let (channel, payload) = (str::from_utf8(channel), str::from_utf8(payload));
                if let (Ok(channel), Ok(payload)) = (channel, payload)
                    && let Some(master) = this.new_master(channel, payload)
                {
                    this.leave_all_but(&master);
                    stir.hurry();
                }
            };
            let plan = Plan {
                server: format!("the sentinel {place}"),
                peer: Peer::Sentinel,
                connector: Arc::clone(connector),
                login: self.login(),
                clock: Arc::clone(&dialer.clock),
                server_clock: Arc::default(),
                stir: Arc::default(),
                on_push: Some(Arc::new(on_push)),
            };
            let link = dialer.link(plan, dialer.runner.handle(), &dialer.closed);
            let listening = Arc::clone(self).listen(link, dialer.closed.clone());
            dialer.runner.serve(listening);
        }
    }

    async fn listen(self: Arc<Self>, link: Link, closed: CancellationToken) {
        let mut phase = link.phase();
        let mut earlier = false;
        loop {
            let up = matches!(&*phase.borrow_and_update(), Phase::Up(_));
            if up {
                for channel in [PROMOTED, SWITCHED] {
                    let (channel, kind) = (channel.as_bytes(), Messages::Plain);
                    let outcome = link.subscribe(channel, Subscribe::Start, kind).await;
                    if let Err(failure) = outcome {
                        tracing::debug!(
                            ?failure,
                            "a sentinel does not let us listen; a new master is found by reconnecting"
                        );
                    }
                }
                // It may have happened while this one could not tell.
                if std::mem::replace(&mut earlier, true)
                    && let Ok(master) = self.master().await
                {
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

    /// The new master, if a message is about ours: `slave <name> <host> <port> @ <service> <old host> <port>` and
    /// `<service> <old host> <port> <new host> <port>`.
    fn new_master(&self, channel: &str, payload: &str) -> Option<Place> {
        let words: Vec<&str> = payload.split(' ').collect();
        let (service, host, port) = match (channel, words.as_slice()) {
            (PROMOTED, ["slave", _, host, port, "@", service, ..]) => (service, host, port),
            (SWITCHED, [service, _, _, host, port]) => (service, host, port),
            _ => return None,
        };
        (*service == self.service).then_some(Place {
            host: (*host).to_owned(),
            port: port.parse().ok()?,
        })
    }

    fn leave_all_but(&self, master: &Place) {
        self.open().retain(|(place, over)| {
            if place != master {
                tracing::info!(service = self.service, left = %place, %master, "another master");
                over.cancel();
            }
            !over.is_cancelled()
        });
    }
}

/// Of two reasons why a connection failed, the one that helps more: a refusal tells more than silence.
pub(super) fn more_telling(earlier: Option<ConnectError>, later: ConnectError) -> ConnectError {
    match earlier {
        Some(earlier) if !matches!(earlier, ConnectError::Unreachable { .. }) => earlier,
        _ => later,
    }
}

#[async_trait]
impl Connector for Sentinels {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let master = self.master().await.map_err(io::Error::other)?.place;
        let connector = connector_for(&self.config, &master.route(self.tls));
        let connector = connector.map_err(|e| io::Error::other(ConnectError::from(e)))?;
        let stream = connector.connect().await.map_err(|error| {
            #[cfg(feature = "tls")]
            if super::tls::is_tls(&error) {
                return error;
            }
            io::Error::other(ConnectError::Unreachable {
                server: format!("the master of {} at {master}", self.service),
                detail: error.to_string(),
            })
        })?;
        let over = CancellationToken::new();
        let mut open = self.open();
        open.retain(|(_, over)| !over.is_cancelled());
        open.push((master, over.clone()));
        Ok(Box::new(Leashed {
            stream,
            ended: Box::pin(over.clone().cancelled_owned()),
            over,
        }))
    }
}

impl std::fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sentinels")
            .field("service", &self.service)
            .field("sentinels", &self.sentinels)
            .finish_non_exhaustive()
    }
}

/// A stream that can be ended from elsewhere: it then reads as closed.
struct Leashed {
    stream: Box<dyn ByteStream>,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    over: CancellationToken,
}

impl AsyncRead for Leashed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.as_mut().poll(cx).is_ready() {
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn a_message_is_heard_if_it_is_about_our_service() {
        let to = SentinelTarget {
            sentinels: Vec::new(),
            service: "main".into(),
            tls: false,
        };
        let sentinels = Sentinels::new(&ClientConfig::default(), &to).unwrap();
        let read = |channel: &str, payload: &str| {
            let place = sentinels.new_master(channel, payload);
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
