//! The server's state: databases, sessions, subscriptions, switches.

pub(crate) mod dispatch;
pub(crate) mod pubsub;
pub(crate) mod session;
pub(crate) mod tracking;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use crate::clock::{Clock, Now};
use crate::connection::Limits;
use crate::keyspace::Keyspace;
use crate::reply::Protocol;
use crate::stats::Stats;
use crate::switches::Switches;
use pubsub::{Published, Subscriptions};
pub(crate) use session::{Session, SessionId};
use tracking::Tracking;

/// The number of servers that this process has started.
static SERVERS: AtomicU64 = AtomicU64::new(0);

/// The number of databases that a client can `SELECT`.
pub(crate) const DATABASES: usize = 16;

/// The memory of a server without keys.
const EMPTY: usize = 1_000_000;
/// The memory beyond `maxmemory` for a script that has begun to write below it. Scripts of locks need kilobytes.
const SLACK: usize = 16 * 1024 * 1024;

/// The session of [`Engine::execute`](crate::Engine::execute): always there, never counted.
pub(crate) const ADMIN: SessionId = 0;

/// Commands held back by `CLIENT PAUSE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) until: Now,
    pub(crate) writes_only: bool,
}

/// The state of a running script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptRun {
    pub(crate) session: SessionId,
    pub(crate) db: usize,
    pub(crate) now: Now,
    /// True once it has called a write command: running out of memory no longer stops it.
    pub(crate) has_written: bool,
    /// True while its slot is moving away: the server refuses a command with a missing key, which may be on the other node.
    pub(crate) in_migration: bool,
}

/// The whole server except the Lua interpreter, which calls back into it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) databases: Vec<Keyspace>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) channels: Subscriptions,
    pub(crate) shard_channels: Subscriptions,
    pub(crate) tracking: Tracking,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) clock: Clock,
    pub(crate) started: Now,
    pub(crate) run_id: String,
    pub(crate) switches: Switches,
    pub(crate) pause: Option<Pause>,
    pub(crate) script: Option<ScriptRun>,
    pub(crate) stats: Stats,
    /// `maxmemory` in bytes; 0: no limit.
    max_memory: usize,
    /// Readers with new output, to be woken once no lock is held.
    pub(crate) to_wake: Vec<Waker>,
    /// If set, messages are collected here with their listener and channel, and not sent to connections.
    pub(crate) outbox: Option<Vec<Published>>,
    next_session: SessionId,
    restarts: u64,
    /// The number of random choices so far.
    pub(crate) draws: u64,
    /// The number of this server among those of the process.
    number: u64,
}

impl Server {
    pub(crate) fn new(clock: Clock) -> Self {
        let started = clock.now();
        let config = [
            ("appendonly", "no"),
            ("databases", "16"),
            ("dir", ""),
            // Sizes up to which Redis packs values: accepted, as clients see no difference.
            ("hash-max-listpack-entries", "512"),
            ("hash-max-listpack-value", "64"),
            ("hash-max-ziplist-entries", "512"),
            ("hash-max-ziplist-value", "64"),
            ("list-compress-depth", "0"),
            ("list-max-listpack-size", "-2"),
            ("list-max-ziplist-size", "-2"),
            ("zset-max-listpack-entries", "128"),
            ("zset-max-listpack-value", "64"),
            ("zset-max-ziplist-entries", "128"),
            ("zset-max-ziplist-value", "64"),
            ("maxmemory", "0"),
            ("maxmemory-policy", "noeviction"),
            ("notify-keyspace-events", ""),
            ("requirepass", ""),
            ("save", ""),
            ("timeout", "0"),
        ];
        let mut server = Self {
            databases: (0..DATABASES).map(|_| Keyspace::default()).collect(),
            sessions: BTreeMap::new(),
            channels: Subscriptions::default(),
            shard_channels: Subscriptions::default(),
            tracking: Tracking::default(),
            config: config.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            clock,
            started,
            run_id: String::new(),
            switches: Switches::default(),
            pause: None,
            script: None,
            stats: Stats::default(),
            max_memory: 0,
            to_wake: Vec::new(),
            outbox: None,
            next_session: ADMIN,
            restarts: 0,
            draws: 0,
            number: SERVERS.fetch_add(1, Ordering::Relaxed),
        };
        server.new_run_id();
        server.open_admin();
        server
    }

    fn open_admin(&mut self) {
        self.next_session = self.next_session.max(ADMIN + 1);
        let mut admin = Session::new(ADMIN, None, self.clock.now(), &self.switches, Limits::NONE);
        admin.protocol = Protocol::Resp3;
        admin.is_authenticated = true;
        self.sessions.insert(ADMIN, admin);
    }

    /// Creates a run id that differs between servers and between their restarts: a digest of the server's number, its start
    /// time and its restarts.
    fn new_run_id(&mut self) {
        let seed = format!("{}:{}:{}", self.number, self.started.micros, self.restarts);
        self.run_id = sha1_smol::Sha1::from(seed).digest().to_string();
    }

    /// Makes the run id independent of the process's other servers.
    pub(crate) fn renumber(&mut self, number: u64) {
        self.number = number;
        self.new_run_id();
    }

    /// Returns whether a fault holds this command of a connection back, and marks the session if so.
    pub(crate) fn delays(&mut self, id: SessionId, command: &[u8]) -> bool {
        let delays = self.switches.take_delayed_request(command);
        if let Some(session) = self.sessions.get_mut(&id).filter(|_| delays) {
            session.is_delayed = true;
        }
        delays
    }

    /// Returns a seed for one random choice: a new one each time, but the same sequence in every run.
    pub(crate) fn random(&mut self) -> u64 {
        self.draws += 1;
        self.draws
    }

    /// Opens a session for a new connection.
    pub(crate) fn open(&mut self, label: Option<&str>, limits: Limits) -> &Session {
        let id = self.next_session;
        self.next_session += 1;
        let session = Session::new(id, label, self.clock.now(), &self.switches, limits);
        self.sessions.entry(id).or_insert(session)
    }

    /// Removes a session and its subscriptions.
    pub(crate) fn close(&mut self, id: SessionId) {
        self.channels.remove_session(id);
        self.shard_channels.remove_session(id);
        self.tracking.remove_session(id);
        self.sessions.remove(&id);
    }

    /// Returns the sessions of open connections, without the administrator's.
    pub(crate) fn open_sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions
            .values()
            .filter(|s| s.id != ADMIN && s.is_open())
    }

    /// Marks all readers to be woken. Each checks whether its commands may run now.
    pub(crate) fn wake_all(&mut self) {
        for session in self.sessions.values() {
            self.to_wake.extend(session.connection.lock().take_reader());
        }
    }

    /// Cuts the connections that `chosen` picks: their subscriptions end, their readers see the end. Returns their number.
    pub(crate) fn kill(&mut self, chosen: impl Fn(&Session) -> bool) -> usize {
        let doomed: Vec<_> = self
            .open_sessions()
            .filter(|s| chosen(s))
            .map(|s| s.id)
            .collect();
        for &id in &doomed {
            if let Some(session) = self.sessions.get(&id) {
                let mut pipe = session.connection.lock();
                pipe.cut();
                self.to_wake.extend(pipe.take_reader());
            }
            self.close(id);
        }
        doomed.len()
    }

    /// Removes expired keys. Returns whether `wanted` accepts one of the others.
    pub(crate) fn any_key(&mut self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        let now = self.clock.now().millis();
        let mut found = false;
        for database in &mut self.databases {
            database.now_ms = now;
            database.purge();
            found |= database.any(&wanted);
        }
        found
    }

    pub(crate) fn flush_all(&mut self) {
        for database in &mut self.databases {
            database.notes.is_on = self.tracking.is_on();
            database.clear();
        }
    }

    /// Applies the configuration.
    pub(crate) fn apply_config(&mut self) {
        let value = |name: &str| self.config.get(name).cloned().unwrap_or_default();
        self.max_memory = value("maxmemory").parse().unwrap_or_default();
        let password = value("requirepass");
        self.switches.password = (!password.is_empty()).then_some(password);
    }

    /// Sets `maxmemory`.
    pub(crate) fn limit_memory(&mut self, bytes: u64) {
        self.config
            .insert("maxmemory".to_owned(), bytes.to_string());
        self.apply_config();
    }

    /// Returns the memory in use, about: that of the keys, and what an empty Redis uses.
    pub(crate) fn memory(&mut self) -> usize {
        EMPTY
            + self
                .databases
                .iter_mut()
                .map(Keyspace::memory)
                .sum::<usize>()
    }

    /// Returns whether commands that may use memory are refused. A script that has begun to write continues, within a
    /// limit: it must not end half done.
    pub(crate) fn is_out_of_memory(&mut self, has_written: bool) -> bool {
        if self.switches.out_of_memory && !has_written {
            return true;
        }
        let slack = if has_written { SLACK } else { 0 };
        self.max_memory > 0 && self.memory() > self.max_memory.saturating_add(slack)
    }

    /// Restarts as a new process, without connections. The caller keeps or deletes the data.
    pub(crate) fn restart(&mut self) {
        self.kill(|_| true);
        // Also drops orphans: bytes kept in frozen connections end with the process.
        self.sessions.clear();
        self.open_admin();
        self.restarts += 1;
        self.started = self.clock.now();
        self.pause = None;
        self.new_run_id();
    }

    /// Returns the pause in force now, if any.
    pub(crate) fn pause_now(&mut self) -> Option<Pause> {
        let now = self.clock.now().micros;
        self.pause = self.pause.filter(|pause| pause.until.micros > now);
        self.pause
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.connections = self.open_sessions().count();
        stats.subscriptions = self.open_sessions().map(Session::subscriptions).sum();
        stats
    }
}
