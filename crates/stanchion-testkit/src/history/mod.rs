//! A log of the operations of lock users and their results.

mod check;
mod holds;
mod liveness;
mod rules;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use check::{Summary, check};
pub use rules::{Rule, Rules, Violation};

/// One line of a history.
///
/// A task has at most one operation or hold of a name at a time; a concurrent one needs another task number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time, on the clock that all recorders share.
    #[serde(with = "nanos")]
    pub at: Duration,
    /// The number of the process.
    pub process: u32,
    /// The number of the task in the process.
    pub task: u32,
    /// The lock's name.
    pub name: String,
    /// The kind of event.
    pub kind: Kind,
    /// The mode in which the lock is, or will be, held.
    pub mode: Mode,
    /// The fencing token of a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The time until which the client relies on its hold. An event that carries it moves the hold's end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe_nanos")]
    pub safe_until: Option<Duration>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// An acquire begins.
    Invoke,
    /// The acquire got the lock.
    Granted,
    /// The acquire reached its time limit, without the lock.
    TimedOut,
    /// The acquire failed, certainly without the lock.
    Failed,
    /// The acquire failed, and the server may hold the lock for it until `safe_until`.
    Ambiguous,
    /// The hold was renewed until `safe_until`.
    Renewed,
    /// The guard reported that the hold is lost.
    Lost,
    /// A release begins.
    ReleaseInvoke,
    /// The release succeeded.
    Released,
    /// The protected work begins.
    Enter,
    /// The protected work ended.
    Exit,
}

/// The mode in which a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Exclusive.
    Write,
    /// Shared with other readers.
    Read,
    /// This many of the name's permits.
    Permits(u32),
}

/// A recorder that threads share; recording is a push under a mutex.
///
/// Events with equal times keep the order in which they were recorded.
#[derive(Default)]
pub struct History {
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    /// The file to which each event is also written at once, so that it survives a kill.
    file: Option<File>,
}

impl History {
    /// Returns an empty history in memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a history that also appends each event to a file at once, for a process that will be killed.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn streaming(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let history = Self::new();
        history.log.lock().unwrap().file = Some(file);
        Ok(history)
    }

    /// Adds an event.
    ///
    /// # Panics
    /// If a streaming history's file cannot be written.
    pub fn record(&self, event: Event) {
        let mut log = self.log.lock().unwrap();
        if let Some(file) = &mut log.file {
            // One write per line: a kill between events leaves no partial line.
            file.write_all(&json_line(&event))
                .expect("the history's file");
        }
        log.events.push(event);
    }

    /// Returns a handle that fills in process, task, name, mode and time; `clock` is read at each event.
    pub fn lane<'a>(
        &'a self,
        (process, task): (u32, u32),
        name: &str,
        mode: Mode,
        clock: impl Fn() -> Duration + Send + Sync + 'a,
    ) -> Lane<'a> {
        Lane {
            history: self,
            process,
            task,
            name: name.to_owned(),
            mode,
            clock: Box::new(clock),
        }
    }

    /// Adds the events of another history.
    pub fn merge(&self, other: &Self) {
        // Copied first, so that the two locks are never held together.
        let events = other.log.lock().unwrap().events.clone();
        self.log.lock().unwrap().events.extend(events);
    }

    /// Returns the events in order of time.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.log.lock().unwrap().events.clone();
        events.sort_by_key(|e| e.at);
        events
    }

    /// Returns the number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.log.lock().unwrap().events.len()
    }

    /// Returns whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes one JSON object per line.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn to_json_lines(&self, mut out: impl Write) -> io::Result<()> {
        let log = self.log.lock().unwrap();
        log.events
            .iter()
            .try_for_each(|e| out.write_all(&json_line(e)))
    }

    /// Reads the output of [`History::to_json_lines`] or of a streaming history; skips an incomplete last line.
    ///
    /// # Errors
    /// The errors of the reader, and `InvalidData` for a line that is not an event.
    pub fn from_json_lines(input: impl BufRead) -> io::Result<Self> {
        let history = Self::new();
        for line in input.split(b'\n') {
            let line = line?;
            match serde_json::from_slice(&line) {
                Ok(event) => history.record(event),
                Err(e) if e.is_eof() => {}
                Err(e) => return Err(io::Error::new(io::ErrorKind::InvalidData, e)),
            }
        }
        Ok(history)
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History")
            .field("events", &self.len())
            .finish_non_exhaustive()
    }
}

fn json_line(event: &Event) -> Vec<u8> {
    let mut line = serde_json::to_vec(event).expect("an event is plain data");
    line.push(b'\n');
    line
}

/// A recorder for one task, name and mode; created by [`History::lane`].
pub struct Lane<'a> {
    history: &'a History,
    process: u32,
    task: u32,
    name: String,
    mode: Mode,
    clock: Box<dyn Fn() -> Duration + Send + Sync + 'a>,
}

impl Lane<'_> {
    /// Records an event without a token and without an end of the hold.
    pub fn record(&self, kind: Kind) {
        self.record_with(kind, None, None);
    }

    /// Records [`Kind::Granted`].
    pub fn granted(&self, token: Option<u64>, safe_until: Option<Duration>) {
        self.record_with(Kind::Granted, token, safe_until);
    }

    /// Records any event.
    pub fn record_with(&self, kind: Kind, token: Option<u64>, safe_until: Option<Duration>) {
        self.history.record(Event {
            at: (self.clock)(),
            process: self.process,
            task: self.task,
            name: self.name.clone(),
            kind,
            mode: self.mode,
            token,
            safe_until,
        });
    }
}

impl fmt::Debug for Lane<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            process,
            task,
            name,
            mode,
            ..
        } = self;
        write!(f, "Lane({process}/{task} {name} {mode:?})")
    }
}

/// Durations as nanoseconds: short lines, exact values.
mod nanos {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}

/// Optional durations, as in [`nanos`].
mod maybe_nanos {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::nanos::serialize(value, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_nanos))
    }
}

#[cfg(test)]
mod tests;
