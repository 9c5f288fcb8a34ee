//! The keys, fields and channel of a read-write lock on the server.

use stanchion_core::primitive::{Arg, Call, Handle, Request, Script};
use stanchion_core::{Fencing, Name, WireOwner};

use crate::preference::Preference;

static STATUS: Script<4, 2> = Script::new("rwlock/status", include_str!("../lua/status.lua"));
static FORCE_RELEASE: Script<2, 2> = Script::new(
    "rwlock/force_release",
    include_str!("../lua/force_release.lua"),
);

/// The time in ms for which one request of a waiter holds the others off. A waiter asks twice in that time.
const GRACE: u64 = 2_000;

/// A script in three parts: its header; the functions for dead readers, which all share; its own work.
macro_rules! with_dead {
    ($name:literal) => {
        concat!(
            include_str!(concat!("../lua/", $name, ".lua")),
            include_str!("../lua/dead.lua"),
            include_str!(concat!("../lua/", $name, "_on.lua")),
        )
    };
}
pub(crate) use with_dead;

/// The parts of a lock that both sides share.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) name: Name,
    pub(crate) channel: Vec<u8>,
    pub(crate) preference: Preference,
    /// The counter of the tokens; the name itself where no tokens are minted.
    fence: Vec<u8>,
    mark: Vec<u8>,
    /// The readers, ordered by the end of their leases.
    readers: Vec<u8>,
    turn: Vec<u8>,
    /// The prefix of every hold key.
    hold_keys: Vec<u8>,
    publish: &'static str,
}

impl Layout {
    pub(crate) fn new(
        handle: &Handle,
        name: Name,
        fencing: Fencing,
        preference: Preference,
    ) -> Self {
        Self {
            channel: name.prefixed("redisson_rwlock"),
            fence: fencing.key(&name),
            mark: name.prefixed("stanchion_rwlock_writer"),
            readers: name.prefixed("stanchion_rwlock_readers"),
            turn: name.prefixed("stanchion_rwlock_turn"),
            hold_keys: name.suffixed(""),
            publish: handle.publish_command(),
            preference,
            name,
        }
    }

    /// The key of the hash.
    pub(crate) fn main(&self) -> &[u8] {
        self.name.as_bytes()
    }

    pub(crate) fn fence(&self) -> &[u8] {
        &self.fence
    }

    /// The key with which a waiting writer holds readers off; the hash itself where writers have no preference.
    pub(crate) fn mark(&self) -> &[u8] {
        match self.preference {
            Preference::Redisson => self.main(),
            Preference::Writer => &self.mark,
        }
    }

    /// The key with which a waiting reader asks for a turn between two writers; the hash itself where writers have no
    /// preference.
    pub(crate) fn turn(&self) -> &[u8] {
        match self.preference {
            Preference::Redisson => self.main(),
            Preference::Writer => &self.turn,
        }
    }

    pub(crate) fn readers(&self) -> &[u8] {
        &self.readers
    }

    /// The time for which a refused request leaves a mark that it waits.
    pub(crate) fn grace(&self, request: &Request<'_>) -> Arg<'static> {
        match self.preference {
            // A request that does not wait holds nobody off.
            Preference::Writer if request.waits => GRACE.into(),
            _ => 0.into(),
        }
    }

    /// The key that lasts as long as a reader's lease.
    ///
    /// Redisson has one for each hold of a reader, from 1 to its count, and the longest decides. One is enough here, because
    /// all holds of a stanchion owner have the same lease.
    pub(crate) fn hold_key(&self, reader: &WireOwner) -> Vec<u8> {
        self.name.suffixed(&format!("{reader}:rwlock_timeout:1"))
    }

    pub(crate) fn hold_keys(&self) -> Arg<'_> {
        self.hold_keys.as_slice().into()
    }

    pub(crate) fn channel(&self) -> Arg<'_> {
        self.channel.as_slice().into()
    }

    pub(crate) fn publish(&self) -> Arg<'_> {
        self.publish.into()
    }

    /// `most`: the largest number of holders to list.
    pub(crate) fn status(&self, most: u32) -> Call {
        STATUS.call(
            [self.main(), &self.fence, &self.mark, &self.readers],
            [u64::from(most).into(), self.hold_keys()],
        )
    }

    pub(crate) fn force_release(&self) -> Call {
        FORCE_RELEASE.call(
            [self.main(), &self.readers],
            [self.channel(), self.publish()],
        )
    }
}

/// The field of a write hold.
pub(crate) fn write_field(owner: &WireOwner) -> String {
    format!("{owner}{WRITE}")
}

/// The suffix that only the field of a write hold has.
pub(crate) const WRITE: &str = ":write";
