//! A server for state exploration: a program saves its state, restores it, and compares it with other states.
//!
//! Everything is synchronous, without sockets and without tokio. The caller sets the clock, chooses when a command runs, and
//! carries the messages of `PUBLISH` to their connections. The compiled scripts stay in the interpreter when a state is restored.
//!
//! ```
//! use stanchion_embedded::Reply;
//! use stanchion_embedded::explore::ExploredServer;
//!
//! # fn main() -> Result<(), Reply> {
//! let server = ExploredServer::new(1_800_000_000_000_000);
//! let sha = server.load("return redis.call('INCR', KEYS[1])")?;
//! let empty = server.save();
//! assert_eq!(server.run(&["EVALSHA", &sha, "1", "n"]), Reply::Int(1));
//! server.restore(&empty);
//! assert_eq!(server.run(&["EVALSHA", &sha, "1", "n"]), Reply::Int(1));
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::Engine;
use crate::keyspace::number::format_double;
use crate::keyspace::{Entry, Keyspace, Value};
use crate::reply::Reply;
use crate::server::pubsub::Subscriptions;

/// A server whose state can be saved and restored. Subscriptions belong to connections that the caller numbers.
#[derive(Debug)]
pub struct ExploredServer {
    engine: Engine,
    micros: Arc<AtomicU64>,
}

/// A message of `PUBLISH` to one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of the subscribed connection.
    pub connection: u64,
    /// The channel.
    pub channel: Vec<u8>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// The state of a server: the keys of database 0, the subscriptions and the clock. A clone shares the state.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<State>);

#[derive(Debug)]
struct State {
    keyspace: Keyspace,
    channels: Subscriptions,
    micros: u64,
}

impl ExploredServer {
    /// Starts an empty server. `micros` is its clock, in microseconds since the Unix epoch.
    #[must_use]
    pub fn new(micros: u64) -> Self {
        let micros = Arc::new(AtomicU64::new(micros));
        let clock = Arc::clone(&micros);
        let read = move || Duration::from_micros(clock.load(Ordering::Relaxed));
        let engine = Engine::with_clock(read);
        engine
            .core()
            .change(|server| server.outbox = Some(Vec::new()));
        Self { engine, micros }
    }

    /// Sets the clock, in microseconds since the Unix epoch. The clock does not move otherwise.
    pub fn set_clock(&self, micros: u64) {
        self.micros.store(micros, Ordering::Relaxed);
    }

    /// Compiles a script. Returns its digest for `EVALSHA`.
    ///
    /// # Errors
    /// The reply of the server, if the script does not compile.
    pub fn load(&self, script: &str) -> Result<String, Reply> {
        match self.run(&["SCRIPT", "LOAD", script]) {
            Reply::Bulk(digest) => Ok(String::from_utf8_lossy(&digest).into_owned()),
            other => Err(other),
        }
    }

    /// Runs one command. `SUBSCRIBE` has a method of its own.
    pub fn run<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        self.engine.execute(args)
    }

    /// Subscribes a connection to a channel.
    pub fn subscribe(&self, connection: u64, channel: &[u8]) {
        self.engine
            .core()
            .change(|server| server.channels.add(channel, connection));
    }

    /// Ends one subscription of a connection.
    pub fn unsubscribe(&self, connection: u64, channel: &[u8]) {
        self.engine
            .core()
            .change(|server| server.channels.remove(channel, connection));
    }

    /// Ends all subscriptions of a connection.
    pub fn disconnect(&self, connection: u64) {
        self.engine
            .core()
            .change(|server| server.channels.remove_session(connection));
    }

    /// Takes the messages that were published since the last call, in order.
    #[must_use]
    pub fn take_messages(&self) -> Vec<Message> {
        let outbox = |server: &mut crate::server::Server| {
            std::mem::take(server.outbox.get_or_insert_default())
        };
        let messages = self.engine.core().change(outbox).into_iter();
        messages
            .map(|(connection, channel, payload)| Message {
                connection,
                channel,
                payload,
            })
            .collect()
    }

    /// Saves the state. Expired keys are removed first.
    #[must_use]
    pub fn save(&self) -> Snapshot {
        self.engine.core().change(|server| {
            let now = server.clock.now();
            let keyspace = &mut server.databases[0];
            keyspace.now_ms = now.millis();
            keyspace.purge();
            Snapshot(Arc::new(State {
                keyspace: keyspace.clone(),
                channels: server.channels.clone(),
                micros: self.micros.load(Ordering::Relaxed),
            }))
        })
    }

    /// Restores a state with its clock. Messages that were not taken are dropped.
    ///
    /// Random choices of commands start again, so that the same command in the same state always does the same.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.engine.core().change(|server| {
            server.databases[0] = snapshot.0.keyspace.clone();
            server.channels = snapshot.0.channels.clone();
            server.outbox = Some(Vec::new());
            server.draws = 0;
        });
        self.set_clock(snapshot.0.micros);
    }
}

impl Snapshot {
    /// Returns the clock, in microseconds since the Unix epoch.
    #[must_use]
    pub fn micros(&self) -> u64 {
        self.0.micros
    }

    /// Returns the keys, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<&[u8]> {
        let mut keys: Vec<_> = self.0.keyspace.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the content of a key as text, or nothing if the key is absent: field and value, member and score (in the order of scores),
    /// or a pair without a first part for each element of a list and for a string.
    #[must_use]
    pub fn content(&self, key: &[u8]) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let Some((_, entry)) = self.0.keyspace.iter().find(|(name, _)| *name == key) else {
            return Vec::new();
        };
        match &entry.value {
            Value::Str(value) => vec![(String::new(), text(value))],
            Value::List(list) => list.iter().map(|e| (String::new(), text(e))).collect(),
            Value::Hash(hash) => hash.iter().map(|(f, v)| (text(f), text(v))).collect(),
            Value::Zset(zset) => {
                let pair = |(member, score)| (text(member), format_double(score));
                zset.iter().map(pair).collect()
            }
        }
    }

    /// Returns the remaining time of each key that expires, in milliseconds.
    pub fn ttls(&self) -> impl Iterator<Item = i64> {
        let now = self.millis();
        let ends = self.0.keyspace.iter().filter_map(|(_, e)| e.expire_at);
        ends.map(move |end| end - now)
    }

    /// Returns the remaining time of a key in milliseconds, if the key expires.
    #[must_use]
    pub fn ttl(&self, key: &[u8]) -> Option<i64> {
        let mut entries = self.0.keyspace.iter();
        let (_, entry) = entries.find(|(name, _)| *name == key)?;
        Some(entry.expire_at? - self.millis())
    }

    /// Returns the number of connections that are subscribed to a channel.
    #[must_use]
    pub fn listeners(&self, channel: &[u8]) -> usize {
        self.0.channels.listeners(channel)
    }

    /// Appends the canonical form of the keys and subscriptions to `out`: equal states have equal bytes.
    ///
    /// Each key and each channel is one line. Keys and the fields of a hash are sorted. Ends of keys are relative to the clock. Values are
    /// not changed: where a value is a time, the caller replaces it. `label` renames connections.
    pub fn canonical(&self, label: &dyn Fn(u64) -> u64, out: &mut Vec<u8>) {
        let mut entries: Vec<_> = self.0.keyspace.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        for (key, entry) in entries {
            part(out, key);
            self.canonical_entry(entry, out);
            out.push(b'\n');
        }
        for channel in self.0.channels.channels() {
            part(out, channel);
            for connection in self.0.channels.connections(channel) {
                part(out, label(connection).to_string().as_bytes());
            }
            out.push(b'\n');
        }
    }

    fn canonical_entry(&self, entry: &Entry, out: &mut Vec<u8>) {
        part(out, entry.value.type_name().as_bytes());
        if let Some(end) = entry.expire_at {
            part(out, (end - self.millis()).to_string().as_bytes());
        }
        match &entry.value {
            Value::Str(value) => part(out, value),
            Value::List(list) => list.iter().for_each(|element| part(out, element)),
            Value::Hash(hash) => {
                let mut fields: Vec<_> = hash.iter().collect();
                fields.sort_unstable();
                for (field, value) in fields {
                    part(out, field);
                    part(out, value);
                }
            }
            Value::Zset(zset) => {
                for (member, score) in zset.iter() {
                    part(out, member);
                    part(out, format_double(score).as_bytes());
                }
            }
        }
    }

    fn millis(&self) -> i64 {
        i64::try_from(self.0.micros / 1000).unwrap_or(i64::MAX)
    }
}

/// Appends one part of a canonical form, and a byte that does not occur in texts.
fn part(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.push(0x1f);
}
