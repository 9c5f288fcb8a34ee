//! The keys, fields and channel of a read-write lock on the server.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Arg, Call, Handle, Holders, Kind, Line, Reply, Script, Sharing, Visible,
};
use stanchion_client::{Fencing, Name, NameState, QueryError, WireOwner, noticing};

use crate::preference::Preference;
use crate::status::RwLockStatus;

pub static STATUS: Script<4, 2> = Script::new("rwlock/status", include_str!("../lua/status.lua"));
pub static FORCE_RELEASE: Script<5, 5> = Script::new(
    "rwlock/force_release",
    in_line!(noticing!(include_str!("../lua/force_release.lua"))),
);
pub static TEND: Script<5, 4> =
    Script::new("rwlock/tend", in_line!(include_str!("../lua/tend.lua")));

/// The text of a script with the functions for the line of a read-write lock in the place of its mark.
macro_rules! in_line {
    ($text:expr) => {
        stanchion_client::in_line!($text, of include_str!("../lua/line_of_rwlock.lua"))
    };
}
pub(crate) use in_line;

/// The text of a script with the functions for dead readers in the place of its line `-- @dead.lua`.
macro_rules! with_dead {
    ($text:expr) => {
        stanchion_client::woven!(
            $text,
            stanchion_client::primitive::LuaPart::new(
                "-- @dead.lua\n",
                include_str!("../lua/dead.lua")
            )
        )
    };
}
pub(crate) use with_dead;

/// The parts of a lock that both sides share.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The properties of the two sides.
    pub(crate) readers: About,
    pub(crate) writers: About,
    pub(crate) line: Line,
    pub(crate) preference: Preference,
    /// The key of the readers, ordered by the end of their leases.
    by_end: Vec<u8>,
    /// The prefix of every hold key.
    hold_keys: Vec<u8>,
    /// Beginning of the channels of holders.
    notice: Vec<u8>,
}

impl Visible for Layout {
    fn subject(&self) -> (Kind, &Name) {
        (Kind::new("rwlock"), self.name())
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        vec![self.main().to_vec(), self.by_end.clone()]
    }

    fn look(&self) -> Call {
        self.status(RwLockStatus::MOST)
    }

    fn see(&self, reply: &Reply) -> Result<NameState, QueryError> {
        Ok(RwLockStatus::read(reply)?.seen())
    }
}

impl Layout {
    pub(crate) fn new(
        handle: &Handle,
        name: Name,
        fencing: Fencing,
        preference: Preference,
    ) -> Self {
        let line = Line::of_family(
            handle,
            &name,
            "redisson_rwlock",
            "stanchion_rwlock_line",
            "stanchion_rwlock_wake",
        );
        let side = |kind| {
            let kind = Kind::new(kind).of_family("rwlock");
            About::new(kind, name.clone(), Arc::clone(&line.channel))
        };
        Self {
            readers: About {
                sharing: Sharing::Together,
                holders: Some(Holders::Readers),
                ..side("rwlock_read")
            },
            writers: About {
                fence: fencing.counter(&name),
                holders: Some(Holders::Writer),
                ..side("rwlock_write")
            },
            line,
            by_end: name.prefixed("stanchion_rwlock_readers"),
            hold_keys: name.suffixed(""),
            notice: handle.notice(&name),
            preference,
        }
    }

    /// The key of the hash.
    pub(crate) fn main(&self) -> &[u8] {
        self.name().as_bytes()
    }

    pub(crate) const fn name(&self) -> &Name {
        &self.writers.name
    }

    /// What follows the owner of a reader in an entry of the queue: see `line_of_rwlock.lua`.
    pub(crate) const fn side_of_readers(&self) -> &'static str {
        match self.preference {
            Preference::Redisson => "r",
            Preference::Writer => "R",
        }
    }

    pub(crate) fn by_end(&self) -> &[u8] {
        &self.by_end
    }

    /// The key that lasts as long as a reader's lease.
    ///
    /// Redisson has one for each hold of a reader, from 1 to its count, and the longest decides. One is enough here, because
    /// all holds of a stanchion owner have the same lease.
    pub(crate) fn hold_key(&self, reader: &WireOwner) -> Vec<u8> {
        self.name()
            .suffixed(&[reader.as_str(), ":rwlock_timeout:1"].concat())
    }

    pub(crate) fn hold_keys(&self) -> Arg<'_> {
        self.hold_keys.as_slice().into()
    }

    /// Redisson's channel, and the command that publishes to Redisson's clients.
    pub(crate) fn base(&self) -> [Arg<'_>; 2] {
        [self.line.base.as_slice().into(), self.line.publish.into()]
    }

    /// The keys of the scripts that serve the queue.
    pub(crate) fn keys(&self) -> [&[u8]; 5] {
        let Line { line, wake, .. } = &self.line;
        [
            self.main(),
            self.writers.fence_key(),
            line,
            wake,
            &self.by_end,
        ]
    }

    /// See [`ServerQueue::tend`](stanchion_client::primitive::ServerQueue::tend).
    pub(crate) fn tend(&self, heard: bool) -> Call {
        let [base, publish] = self.base();
        let sentry = if heard { self.line.client() } else { b"" };
        TEND.call(
            self.keys(),
            [base, publish, sentry.into(), self.hold_keys()],
        )
    }

    /// See [`ServerQueue::neighbours`](stanchion_client::primitive::ServerQueue::neighbours).
    pub(crate) fn neighbours(&self, name: &Name) -> Option<&[u8]> {
        (name == self.name()).then_some(self.line.base.as_slice())
    }

    /// `most`: the largest number of holders to list.
    pub(crate) fn status(&self, most: u32) -> Call {
        STATUS.call(
            [
                self.main(),
                self.writers.fence_key(),
                &self.line.line,
                &self.by_end,
            ],
            [u64::from(most).into(), self.hold_keys()],
        )
    }

    /// `side`: `read` or `write`, to free it only if that side holds; or nothing.
    pub(crate) fn force_release(&self, side: &'static str) -> Call {
        let [base, publish] = self.base();
        FORCE_RELEASE.call(
            self.keys(),
            [
                base,
                publish,
                self.notice.as_slice().into(),
                side.into(),
                self.hold_keys(),
            ],
        )
    }
}

/// The field of a write hold.
pub(crate) fn write_field(owner: &WireOwner) -> String {
    [owner.as_str(), WRITE].concat()
}

/// The suffix that only the field of a write hold has.
pub(crate) const WRITE: &str = ":write";
