//! The handle of an engine, and the locks under which its commands run.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;

use crate::clock::Clock;
use crate::connection::{Connection, Flow, Limits};
use crate::faults::Faults;
use crate::locked;
use crate::lua::Scripts;
use crate::reply::Reply;
use crate::resp::Request;
use crate::server::dispatch::Dispatched;
use crate::server::{ADMIN, Server, SessionId};
use crate::stats::Stats;
use crate::stream::EngineStream;
use crate::switches::Loss;

/// A Redis server in this process. Handles are cheap to clone and share one server, which ends with its last
/// handle and stream.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Core>);

/// The state that handles and streams share.
///
/// Lock order: `executor`, then `server`, then a connection's pipe. Wakers run when none is held.
#[derive(Debug)]
pub(crate) struct Core {
    /// Held while a command runs, so that commands and scripts are atomic.
    executor: Mutex<Executor>,
    /// Shared with the functions that scripts call.
    server: Arc<Mutex<Server>>,
}

#[derive(Debug)]
struct Executor {
    scripts: Scripts,
    request: Request,
}

static NAMED: LazyLock<Mutex<HashMap<String, Weak<Core>>>> = LazyLock::new(Mutex::default);

impl Engine {
    /// Starts an empty server that follows the machine's wall clock.
    #[must_use]
    pub fn new() -> Self {
        Self::start(Clock::wall())
    }

    /// Starts an empty server. `clock` returns its wall clock as the time since the Unix epoch; it is called under
    /// the engine's locks and must not use the engine.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self::start(Clock::new(clock))
    }

    /// Starts a server on tokio's clock, which `tokio::time::pause` makes virtual. Call it inside the runtime.
    #[must_use]
    pub fn in_virtual_time() -> Self {
        let origin = tokio::time::Instant::now();
        // Any date will do; this one has as many digits in microseconds as present dates.
        Self::with_clock(move || Duration::from_secs(1_800_000_000) + origin.elapsed())
    }

    /// Starts a server as [`Engine::in_virtual_time`], for simulations that must be reproducible: its run id depends on
    /// `number` alone, not on the number of engines that this process has started.
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        let engine = Self::in_virtual_time();
        locked(&engine.0.server).renumber(number);
        engine
    }

    fn start(clock: Clock) -> Self {
        let server = Arc::new(Mutex::new(Server::new(clock)));
        let executor = Executor {
            scripts: Scripts::new(Arc::clone(&server)),
            request: Request::default(),
        };
        Self(Arc::new(Core {
            executor: Mutex::new(executor),
            server,
        }))
    }

    /// Returns the server of this name in this process. All callers share it while any handle or stream of it exists.
    #[must_use]
    pub fn named(namespace: &str) -> Self {
        let mut named = locked(&NAMED);
        if let Some(core) = named.get(namespace).and_then(Weak::upgrade) {
            return Self(core);
        }
        named.retain(|_, core| core.strong_count() > 0);
        let engine = Self::new();
        named.insert(namespace.to_owned(), Arc::downgrade(&engine.0));
        engine
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// `ConnectionRefused` while [`Faults::refuse_connections`] is on.
    pub fn connect(&self) -> io::Result<EngineStream> {
        self.open(None, Limits::NONE)
    }

    /// Opens a connection that faults can be aimed at by its label.
    ///
    /// # Errors
    /// `ConnectionRefused` while [`Faults::refuse_connections`] is on.
    pub fn connect_as(&self, label: &str) -> io::Result<EngineStream> {
        self.open(Some(label), Limits::NONE)
    }

    pub(crate) fn open(&self, label: Option<&str>, limits: Limits) -> io::Result<EngineStream> {
        let mut server = locked(&self.0.server);
        if server.switches.refuse_connections {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let session = server.open(label, limits);
        let (id, connection) = (session.id, session.connection.clone());
        drop(server);
        Ok(EngineStream::new(self.clone(), id, connection))
    }

    /// Runs one command at once, as an administrator: it is not counted in [`Stats`], and no fault applies. The
    /// reply has the types of RESP3. Cannot subscribe.
    pub fn execute<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        let mut request = Request::default();
        for argument in args {
            request.push(argument.as_ref());
        }
        if request.args().is_empty() {
            return Reply::Error("ERR no command".to_owned());
        }
        let mut executor = locked(&self.0.executor);
        let mut replies = self.0.run(&mut executor.scripts, ADMIN, &request);
        locked(&self.0.server).tell_written(ADMIN, &request.args()[0]);
        drop(executor);
        self.0.wake_readers();
        match replies.len() {
            1 => replies.remove(0),
            _ => Reply::Array(replies),
        }
    }

    /// Returns the switches that make this server misbehave.
    #[must_use]
    pub fn faults(&self) -> Faults {
        Faults::new(self.clone())
    }

    /// Limits the memory of the keys to about `bytes`, as `CONFIG SET maxmemory` does; 0 removes the limit, and there is none at
    /// first.
    ///
    /// At the limit a command that may use memory is refused with `OOM`, as in Redis under `noeviction`, also as the first write of
    /// a script. A script that has begun to write goes on, but for 16 MiB at most. [`Engine::execute`] is not refused.
    ///
    /// ```
    /// # use stanchion_embedded::Engine;
    /// let engine = Engine::new();
    /// engine.limit_memory(256 * 1024 * 1024);
    /// ```
    pub fn limit_memory(&self, bytes: u64) {
        self.0.change(|server| server.limit_memory(bytes));
    }

    /// Returns the counters of the work done for connections.
    #[must_use]
    pub fn stats(&self) -> Stats {
        locked(&self.0.server).stats()
    }

    /// Returns the live keys of database 0, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let mut server = locked(&self.0.server);
        let now = server.clock.now().millis();
        let keyspace = &mut server.databases[0];
        keyspace.now_ms = now;
        keyspace.keys()
    }

    /// Removes expired keys from all databases, and returns whether `wanted` accepts one of the keys that remain.
    /// An expired key is invisible without this call, too, but takes memory until a command reads it. `wanted` is called
    /// under the engine's locks and must not use the engine.
    pub fn any_key(&self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        locked(&self.0.server).any_key(wanted)
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Core {
    /// Executes the whole commands that a connection has received.
    pub(crate) fn pump(&self, id: SessionId, connection: &Connection) {
        let mut guard = locked(&self.executor);
        let Executor { scripts, request } = &mut *guard;
        while connection.lock().next_command(request) {
            if locked(&self.server).is_held_back(request.args()) {
                connection.lock().hold_back(request);
                break;
            }
            if locked(&self.server).delays(id, &request.args()[0]) {
                connection.lock().delay_requests(request);
                break;
            }
            let replies = self.run(scripts, id, request);
            let mut server = locked(&self.server);
            let loss = server.switches.take_loss(&request.args()[0]);
            let Some(session) = server.sessions.get(&id) else {
                break;
            };
            let mut pipe = connection.lock();
            match loss {
                None => {
                    for reply in &replies {
                        pipe.send(reply, session.protocol);
                    }
                }
                Some(Loss::Close) => pipe.finish_sending(),
                Some(Loss::Silence) => pipe.silence(),
            }
            drop(pipe);
            server.tell_written(id, &request.args()[0]);
        }
        let reader = connection.lock().take_reader();
        drop(guard);
        if let Some(reader) = reader {
            reader.wake();
        }
        self.wake_readers();
    }

    /// Runs one command and returns its reply, or several replies for a command about several channels.
    fn run(&self, scripts: &mut Scripts, id: SessionId, request: &Request) -> Vec<Reply> {
        let args = request.args();
        let dispatched = locked(&self.server).dispatch(id, args);
        match dispatched {
            Dispatched::Done(reply) => vec![reply],
            Dispatched::DoneMany(replies) => replies,
            Dispatched::Script(command) => vec![scripts.run(command, id, args)],
        }
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Server) -> T) -> T {
        let executor = locked(&self.executor);
        let result = change(&mut locked(&self.server));
        drop(executor);
        self.wake_readers();
        result
    }

    /// Executes the commands that were held back in these connections.
    pub(crate) fn resume(&self, sessions: &[SessionId]) {
        for &id in sessions {
            let (connection, is_orphan) = match locked(&self.server).sessions.get(&id) {
                Some(session) => (session.connection.clone(), session.is_orphan),
                None => continue,
            };
            self.pump(id, &connection);
            if is_orphan {
                locked(&self.server).close(id);
            }
        }
    }

    pub(crate) fn change_scripts(&self, from: &str, to: &str) {
        locked(&self.executor).scripts.change(from, to);
    }

    pub(crate) fn flush_scripts(&self) {
        locked(&self.executor).scripts.flush();
    }

    /// Returns the remaining time of `CLIENT PAUSE`.
    pub(crate) fn pause_left(&self) -> Option<Duration> {
        let mut server = locked(&self.server);
        let pause = server.pause_now()?;
        let left = pause.until.micros - server.clock.now().micros;
        Some(Duration::from_micros(
            u64::try_from(left).unwrap_or_default(),
        ))
    }

    /// Closes the session of a client that has disconnected. Bytes that it sent into a frozen connection stay under way, and
    /// the session stays as an orphan until they are executed.
    pub(crate) fn disconnect(&self, id: SessionId) {
        let mut server = locked(&self.server);
        let Some(session) = server.sessions.get(&id) else {
            return;
        };
        let pipe = session.connection.lock();
        let is_under_way = pipe.flow == Flow::Frozen && pipe.has_input();
        drop(pipe);
        if !is_under_way {
            return server.close(id);
        }
        server.channels.remove_session(id);
        server.shard_channels.remove_session(id);
        if let Some(session) = server.sessions.get_mut(&id) {
            session.is_orphan = true;
        }
    }

    fn wake_readers(&self) {
        let readers = std::mem::take(&mut locked(&self.server).to_wake);
        for reader in readers {
            reader.wake();
        }
    }
}
