//! The keys, fields and channel of a read-write lock on the server.

use stanchion_client::primitive::{Arg, Call, Handle, Kind, Line, Reply, Request, Script, Visible};
use stanchion_client::{Fencing, Name, NameState, QueryError, WireOwner, noticing};

use crate::preference::Preference;
use crate::status::RwLockStatus;

static STATUS: Script<4, 2> = Script::new("rwlock/status", include_str!("../lua/status.lua"));
static FORCE_RELEASE: Script<8, 4> = Script::new(
    "rwlock/force_release",
    in_line!(noticing!(include_str!("../lua/force_release.lua"))),
);
static TEND: Script<7, 3> = Script::new("rwlock/tend", in_line!(include_str!("../lua/tend.lua")));

/// Milliseconds for which one request of a waiter holds other requests off. A waiter sends two requests in that time.
const GRACE: u64 = 2_000;

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
    pub(crate) name: Name,
    pub(crate) line: Line,
    /// The key of the wait set of readers.
    crowd: Vec<u8>,
    pub(crate) preference: Preference,
    /// The counter of the tokens; the name itself where no tokens are minted.
    fence: Vec<u8>,
    mark: Vec<u8>,
    /// The readers, ordered by the end of their leases.
    readers: Vec<u8>,
    turn: Vec<u8>,
    /// The prefix of every hold key.
    hold_keys: Vec<u8>,
    /// Beginning of the channels of holders.
    notice: Vec<u8>,
}

impl Visible for Layout {
    fn subject(&self) -> (Kind, &Name) {
        (Kind::new("rwlock"), &self.name)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        vec![self.main().to_vec(), self.readers.clone()]
    }

    fn look(&self) -> Call {
        self.status(RwLockStatus::MOST)
    }

    fn see(&self, reply: &Reply) -> Result<NameState, QueryError> {
        Ok(RwLockStatus::read(reply)?.seen())
    }
}

impl Layout {
    /// The line of waiting processes, and the wait set of the readers that share one place in it.
    pub(crate) fn waiting(&self) -> (&Line, &[u8]) {
        (&self.line, &self.crowd)
    }

    pub(crate) fn new(
        handle: &Handle,
        name: Name,
        fencing: Fencing,
        preference: Preference,
    ) -> Self {
        Self {
            line: Line::of_family(
                handle,
                &name,
                "redisson_rwlock",
                "stanchion_rwlock_line",
                "stanchion_rwlock_wake",
            ),
            crowd: name.prefixed_alone("stanchion_rwlock_crowd"),
            fence: fencing.key(&name),
            mark: name.prefixed("stanchion_rwlock_writer"),
            readers: name.prefixed("stanchion_rwlock_readers"),
            turn: name.prefixed("stanchion_rwlock_turn"),
            hold_keys: name.suffixed(""),
            notice: handle.notice(&name),
            preference,
            name,
        }
    }

    /// The key of the hash.
    pub(crate) fn main(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// The counter of the writers' tokens, if they have any.
    pub(crate) fn fence(&self) -> Option<&[u8]> {
        (self.fence != self.main()).then_some(&self.fence)
    }

    /// The counter of the writers' tokens; the name itself where no tokens are minted.
    pub(crate) fn fence_key(&self) -> &[u8] {
        &self.fence
    }

    /// The key with which a waiting writer holds readers off; the hash itself where writers have no preference.
    pub(crate) fn mark(&self) -> &[u8] {
        match self.preference {
            Preference::Redisson => self.main(),
            Preference::Writer => &self.mark,
        }
    }

    /// The key with which a waiting reader requests a turn between two writers; the hash itself where writers have no
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

    /// The time for which a refused request leaves a mark for its waiter.
    pub(crate) fn grace(&self, request: &Request<'_>) -> Arg<'static> {
        match self.preference {
            // A request that does not wait holds no other request off.
            Preference::Writer if request.waits => GRACE.into(),
            _ => 0.into(),
        }
    }

    /// The key that lasts as long as a reader's lease.
    ///
    /// Redisson has one for each hold of a reader, from 1 to its count, and the longest decides. One is enough here, because
    /// all holds of a stanchion owner have the same lease.
    pub(crate) fn hold_key(&self, reader: &WireOwner) -> Vec<u8> {
        self.name
            .suffixed(&[reader.as_str(), ":rwlock_timeout:1"].concat())
    }

    pub(crate) fn hold_keys(&self) -> Arg<'_> {
        self.hold_keys.as_slice().into()
    }

    /// Redisson's channel, and the command that publishes to Redisson's clients.
    pub(crate) fn base(&self) -> [Arg<'_>; 2] {
        [self.line.base.as_slice().into(), self.line.publish.into()]
    }

    /// The keys of the scripts that may grant to a writer.
    pub(crate) fn keys(&self) -> [&[u8]; 7] {
        let [line, wake, crowd, mark, turn] = self.line_keys();
        [self.main(), &self.fence, line, wake, crowd, mark, turn]
    }

    /// The keys of the line, and those by which the two sides take turns.
    pub(crate) fn line_keys(&self) -> [&[u8]; 5] {
        let Line { line, wake, .. } = &self.line;
        [line, wake, &self.crowd, self.mark(), self.turn()]
    }

    /// See [`ServerLine::tend`](stanchion_client::primitive::ServerLine::tend).
    pub(crate) fn tend(&self, heard: bool) -> Call {
        let [base, publish] = self.base();
        let sentry = if heard { self.line.client.as_str() } else { "" };
        TEND.call(self.keys(), [base, publish, sentry.into()])
    }

    /// See [`ServerLine::neighbours`](stanchion_client::primitive::ServerLine::neighbours).
    pub(crate) fn neighbours(&self, name: &Name) -> Option<&[u8]> {
        (*name == self.name).then_some(self.line.base.as_slice())
    }

    /// `most`: the largest number of holders to list.
    pub(crate) fn status(&self, most: u32) -> Call {
        STATUS.call(
            [self.main(), &self.fence, &self.mark, &self.readers],
            [u64::from(most).into(), self.hold_keys()],
        )
    }

    /// `side`: `read` or `write`, to free it only if that side holds; or nothing.
    pub(crate) fn force_release(&self, side: &'static str) -> Call {
        let [lock, fence, line, wake, crowd, ..] = self.keys();
        let (mark, turn, readers) = (&*self.mark, &*self.turn, &*self.readers);
        // P4: the caller's preference may differ from that of the waiters. Their marks end with the grant, so the script always gets the marks' keys.
        let keys = [lock, fence, line, wake, crowd, mark, turn, readers];
        let [base, publish] = self.base();
        FORCE_RELEASE.call(
            keys,
            [base, publish, self.notice.as_slice().into(), side.into()],
        )
    }
}

/// The field of a write hold.
pub(crate) fn write_field(owner: &WireOwner) -> String {
    [owner.as_str(), WRITE].concat()
}

/// The suffix that only the field of a write hold has.
pub(crate) const WRITE: &str = ":write";
