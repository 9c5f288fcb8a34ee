//! The holder of a name, and the process behind it.

use serde::Serialize;

use crate::people::People;
use crate::wording::{self, Owner};

/// Holders.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HolderSeen {
    pub(crate) owner: String,
    pub(crate) origin: wording::Origin,
    pub(crate) hold_count: u64,
    /// The process, if the server or a record shows it: `billing@web-2 pid 4711`.
    pub(crate) process: Option<String>,
    /// False: the server shows no connection of this client. `null`: not known.
    pub(crate) connected: Option<bool>,
}

/// Text for the holder of a job at rest.
const AT_REST: &str = "at rest";

impl HolderSeen {
    pub(crate) fn new(owner: &str, hold_count: u64, people: &People) -> Self {
        let taken = Owner::of(owner);
        Self {
            owner: owner.to_owned(),
            origin: taken.origin,
            hold_count,
            process: people.of(&taken),
            connected: people.is_connected(&taken),
        }
    }

    /// Returns whether no run is under way, and the name is kept for the rest of a job's least time.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.hold_count == 0
    }

    /// Returns whether the server shows that the holder's process has ended. A job at rest needs no process.
    pub(crate) fn is_gone(&self) -> bool {
        self.connected == Some(false) && !self.is_at_rest()
    }

    /// The process alone, without the owner.
    pub(crate) fn brief_process(&self) -> String {
        match (&self.process, self.connected, self.origin) {
            _ if self.is_at_rest() => AT_REST.into(),
            (Some(process), Some(false), _) => wording::not_seen(process),
            (Some(process), ..) => wording::printable(process.as_bytes()),
            (None, Some(false), _) => "not seen".into(),
            (None, _, wording::Origin::Redisson) => "java".into(),
            (None, ..) => "?".into(),
        }
    }

    /// A short text for the holder.
    pub(crate) fn brief(&self) -> String {
        let short = Owner::of(&self.owner).short();
        match (&self.process, self.connected) {
            _ if self.is_at_rest() => AT_REST.into(),
            (Some(process), Some(false)) => wording::not_seen(process),
            (Some(process), _) => wording::printable(process.as_bytes()),
            (None, Some(false)) => wording::not_seen(&short),
            (None, _) => short,
        }
    }
}
