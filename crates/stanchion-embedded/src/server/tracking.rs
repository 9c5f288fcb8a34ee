//! `CLIENT TRACKING`: sessions are notified when a key is written.
//!
//! As in Redis, a session is notified once of each key that it has read, and not again until it reads the key again. The default mode only:
//! no prefixes, no redirection. An expired key is announced when a command finds it expired: the engine does not search for such keys.

use std::collections::{BTreeSet, HashMap};

use super::{Server, SessionId};
use crate::commands::{self, WRITE};
use crate::reply::{Protocol, Reply};

/// The keys that sessions have read.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    sessions: BTreeSet<SessionId>,
    by_key: HashMap<Vec<u8>, BTreeSet<SessionId>>,
}

/// The keys of a database that commands have read and written, recorded while a session tracks writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    pub(crate) is_on: bool,
    read: Vec<Vec<u8>>,
    written: Vec<Vec<u8>>,
    flushed: bool,
}

impl Notes {
    pub(crate) fn read(&mut self, key: &[u8]) {
        if self.is_on {
            self.read.push(key.to_vec());
        }
    }

    pub(crate) fn written(&mut self, key: &[u8]) {
        if self.is_on {
            self.written.push(key.to_vec());
        }
    }

    pub(crate) fn flushed(&mut self) {
        self.flushed = self.is_on;
    }

    fn is_empty(&self) -> bool {
        self.read.is_empty() && self.written.is_empty() && !self.flushed
    }
}

impl Tracking {
    pub(crate) fn is_on(&self) -> bool {
        !self.sessions.is_empty()
    }

    pub(crate) fn remove_session(&mut self, id: SessionId) {
        if self.sessions.remove(&id) {
            self.by_key.retain(|_, sessions| {
                sessions.remove(&id);
                !sessions.is_empty()
            });
        }
    }
}

impl Server {
    /// Begins to notify the session of writes.
    pub(crate) fn track(&mut self, id: SessionId) {
        self.tracking.sessions.insert(id);
    }

    /// Notifies sessions of the keys that `command`, or a whole script, has written, and records the keys that the session
    /// `id` has read. Called when the reply has been sent: the session receives messages about its own writes after it.
    pub(crate) fn tell_written(&mut self, id: SessionId, command: &[u8]) {
        if !self.tracking.is_on() {
            return;
        }
        let reads = commands::find(command).is_some_and(|spec| !spec.is(WRITE));
        // Once, whatever the number of databases.
        if self.databases.iter().any(|database| database.notes.flushed) {
            self.tracking.by_key.clear();
            for session in self.tracking.sessions.clone() {
                self.invalidate(session, Reply::Nil);
            }
        }
        for db in 0..self.databases.len() {
            let notes = &mut self.databases[db].notes;
            if notes.is_empty() {
                continue;
            }
            let notes = std::mem::take(notes);
            for key in notes.written {
                let told = self.tracking.by_key.remove(&key).unwrap_or_default();
                for session in told {
                    let keys = Reply::Array(vec![Reply::bulk(&key)]);
                    self.invalidate(session, keys);
                }
            }
            if reads && self.tracking.sessions.contains(&id) {
                for key in notes.read {
                    self.tracking.by_key.entry(key).or_default().insert(id);
                }
            }
        }
    }

    fn invalidate(&mut self, id: SessionId, keys: Reply) {
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        // RESP2 has no message for it.
        if session.protocol != Protocol::Resp3 {
            return;
        }
        let push = Reply::Push(vec![Reply::bulk("invalidate"), keys]);
        let mut pipe = session.connection.lock();
        pipe.send(&push, session.protocol);
        self.to_wake.extend(pipe.take_reader());
    }
}
