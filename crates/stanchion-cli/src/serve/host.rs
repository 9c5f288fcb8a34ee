//! The running server: its connections, and the conditions under which it stops.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::Resource;
use stanchion::embedded::Engine;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::Idle;
use super::place::Place;
use crate::beside::is_begun_anew;
use crate::exit::{self, Failure};

/// The longest time between two checks of the stored keys, which also remove expired ones.
const LOOK: Duration = Duration::from_secs(10);
/// The time between two attempts to accept a connection when the system has no more files for them.
const PAUSE: Duration = Duration::from_millis(100);

/// The reason that a server has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Signal,
    Idle,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        place: Place,
        /// The socket that this server has bound: device and inode.
        bound: (u64, u64),
    },
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A server that listens.
#[derive(Debug)]
pub(super) struct Host {
    engine: Engine,
    listener: Listener,
    idle: Idle,
    connections: JoinSet<()>,
}

impl Host {
    /// Listens on a port of the loopback address. Returns the URL, too.
    pub(super) async fn on_port(
        ip: IpAddr,
        port: u16,
        idle: Idle,
    ) -> Result<(Self, String), Failure> {
        if !ip.is_loopback() {
            let rule = format!(
                "{ip} is no loopback address: this server is for one machine, and asks nobody for a password. Locks of several \
                 machines need a Redis or Valkey server"
            );
            return Err(Failure::new(exit::CONFIG, rule));
        }
        let address = SocketAddr::new(ip, port);
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::new(
                exit::IO,
                format_args!("cannot listen on {address}: {error}"),
            )
        })?;
        let url = format!("redis://{}/", listener.local_addr()?);
        Ok((Self::new(Listener::Tcp(listener), idle), url))
    }

    pub(super) fn on_socket(place: Place, idle: Idle) -> Result<Self, Failure> {
        place.clear()?;
        let (listener, bound) = bind(&place.socket).map_err(|error| {
            let socket = place.socket.display();
            Failure::new(exit::IO, format_args!("cannot listen on {socket}: {error}"))
        })?;
        let listener = Listener::Unix {
            listener,
            place,
            bound,
        };
        Ok(Self::new(listener, idle))
    }

    fn new(listener: Listener, idle: Idle) -> Self {
        allow_many_files();
        let engine = Engine::new();
        // As Redis answers `CONFIG GET dir`: the user recognises the server by its directory.
        if let Ok(dir) = std::env::current_dir() {
            engine.execute(&[
                b"CONFIG".as_slice(),
                b"SET",
                b"dir",
                dir.as_os_str().as_bytes(),
            ]);
        }
        Self {
            engine,
            listener,
            idle,
            connections: JoinSet::new(),
        }
    }

    /// Limits the memory of the keys, in bytes; 0: no limit.
    pub(super) fn with_memory(self, bytes: u64) -> Self {
        self.engine.limit_memory(bytes);
        self
    }

    /// Serves until a signal comes, or until it was idle for long enough.
    pub(super) async fn serve(mut self) -> Result<Ended, Failure> {
        let mut asked = asked_to_stop()?;
        let ended = {
            let mut look = tokio::time::interval(match self.idle {
                Idle::After(idle) => (idle / 4).clamp(Duration::from_millis(20), LOOK),
                Idle::Never => LOOK,
            });
            look.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut unused_since = None;
            loop {
                tokio::select! {
                    biased;
                    // An error means that the signal thread has ended, and that the next signal would have no receiver.
                    _ = &mut asked => break Ended::Signal,
                    _ = look.tick() => {
                        self.listener.keep()?;
                        if self.is_used() {
                            unused_since = None;
                        } else if self.is_over(unused_since.get_or_insert_with(Instant::now)) && self.leave().await? {
                            break Ended::Idle;
                        }
                    }
                    Some(_) = self.connections.join_next() => {}
                    accepted = self.listener.accept() => {
                        unused_since = None;
                        if let Err(error) = self.welcome(accepted) {
                            tracing::warn!("cannot accept a connection: {error}");
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                }
            }
        };
        self.listener.remove();
        Ok(ended)
    }

    fn welcome(&mut self, accepted: io::Result<Stream>) -> io::Result<()> {
        let engine = self.engine.clone();
        match accepted? {
            Stream::Tcp(stream) => {
                stream.set_nodelay(true)?;
                self.connections.spawn(connection(engine, stream));
            }
            Stream::Unix(stream) => {
                self.connections.spawn(connection(engine, stream));
            }
        }
        Ok(())
    }

    fn is_used(&self) -> bool {
        // Also removes what has expired, while there are connections.
        let stores = self.engine.any_key(|key| !is_begun_anew(key));
        stores || !self.connections.is_empty()
    }

    fn is_over(&self, unused_since: &Instant) -> bool {
        matches!(self.idle, Idle::After(idle) if unused_since.elapsed() >= idle)
    }

    /// Removes the socket, and returns true; but false if a client has connected just before that.
    async fn leave(&mut self) -> Result<bool, Failure> {
        self.listener.remove();
        // A client that has connected but was not accepted yet is in the listener's queue.
        let mut came = false;
        loop {
            let accepted = {
                let mut accept = pin!(self.listener.accept());
                poll_fn(|cx| Poll::Ready(accept.as_mut().poll(cx))).await
            };
            match accepted {
                Poll::Ready(Ok(stream)) => came |= self.welcome(Ok(stream)).is_ok(),
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        if came {
            self.listener.keep()?;
        }
        Ok(!came)
    }
}

/// Resolves when INT or TERM comes. Signals have a thread of their own: during a script all threads of the runtime may wait for its end.
fn asked_to_stop() -> io::Result<oneshot::Receiver<()>> {
    let (stop, asked) = oneshot::channel();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let hear = async move |ready: &std::sync::mpsc::Sender<io::Result<()>>| {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // OK: without a receiver the program has ended.
        let _ = ready.send(Ok(()));
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        io::Result::Ok(())
    };
    let name = std::thread::Builder::new().name("signals".into());
    name.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let heard = runtime.and_then(|runtime| runtime.block_on(hear(&ready)));
        // OK: as above; and a server that has stopped for another reason has dropped the receiver.
        let _ = match heard {
            Ok(()) => stop.send(()),
            Err(error) => ready.send(Err(error)).map_err(drop),
        };
    })?;
    // This wait is short: the thread registers two handlers, or fails.
    is_ready
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("no thread for signals")))?;
    Ok(asked)
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => Stream::Tcp(listener.accept().await?.0),
            Self::Unix { listener, .. } => Stream::Unix(listener.accept().await?.0),
        })
    }

    /// Makes sure that clients find this server, and no other one at its socket.
    fn keep(&mut self) -> Result<(), Failure> {
        let Self::Unix {
            listener,
            place,
            bound,
        } = self
        else {
            return Ok(());
        };
        if !place.keep() {
            let socket = place.socket.display();
            let rule = format!("{socket} was taken from this server: its files were removed");
            return Err(Failure::new(exit::IO, rule));
        }
        if identity(&place.socket) != Some(*bound) {
            place.clear()?;
            (*listener, *bound) = bind(&place.socket)?;
        }
        Ok(())
    }

    /// Removes the socket, so that clients see that no server listens.
    fn remove(&self) {
        if let Self::Unix { place, bound, .. } = self
            && identity(&place.socket) == Some(*bound)
        {
            // OK: a socket that stays is replaced by the next server.
            let _ = fs::remove_file(&place.socket);
        }
    }
}

async fn connection(engine: Engine, stream: impl AsyncRead + AsyncWrite + Unpin) {
    if let Err(error) = Box::pin(engine.serve(stream)).await {
        tracing::debug!("a connection ended: {error}");
    }
}

/// Binds a socket that only this user can open.
fn bind(socket: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    // A changed mode would come after the first chance to connect. No other thread creates files here.
    let usual = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(socket);
    rustix::process::umask(usual);
    let listener = bound?;
    let identity = identity(socket).ok_or_else(|| io::Error::other("the socket has gone"))?;
    Ok((listener, identity))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Raises the limit of open files as far as this user may: every process that waits has up to three connections.
fn allow_many_files() {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // OK: with the usual limit there is room for some hundred processes.
    let _ = rustix::process::setrlimit(Resource::Nofile, limit);
}
