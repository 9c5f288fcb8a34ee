//! The keys of one semaphore.

use stanchion_core::primitive::{Arg, Call, Handle, Line, Operation, ServerLine, whole_millis};
use stanchion_core::{IdleExpiry, InvalidName, Name};

use crate::scripts::pool;

/// The keys and the channel of a semaphore of either kind.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The number of free permits.
    pub(crate) name: Name,
    /// The processes that wait, and the channels on which they are told.
    pub(crate) crowd: Line,
    /// The held permits: the ledger of plain ones, or the leases.
    pub(crate) held: Vec<u8>,
    pub(crate) line: Vec<u8>,
    /// The holders that kept their permits through a whole turn of the first in line.
    pub(crate) slow: Vec<u8>,
    /// The total of plain permits, where it is known. Leased permits need none: the name again.
    pub(crate) total: Vec<u8>,
    /// The key beside a semaphore that ends when nobody uses it.
    pub(crate) idle: Vec<u8>,
    /// For how long each question of a waiter keeps such a semaphore, in ms.
    pub(crate) kept: u64,
    /// The semaphore that a handle makes where there is none.
    pub(crate) ephemeral: Option<Ephemeral>,
}

/// A semaphore that ends when nobody uses it, as a handle makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ephemeral {
    pub(crate) permits: u32,
    pub(crate) expiry: IdleExpiry,
}

impl Ephemeral {
    /// The argument `made` of the scripts.
    pub(crate) fn text(self) -> String {
        format!("{} {}", self.expiry.millis(), self.permits)
    }
}

impl Keys {
    pub(crate) fn plain(handle: &Handle, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = handle.client().name(name)?;
        let ledger = name.prefixed_alone("stanchion_permits");
        let total = name.prefixed_alone("stanchion_semaphore_total");
        Ok(Self::new(handle, name, ledger, total))
    }

    pub(crate) fn leased(handle: &Handle, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = handle.client().name(name)?;
        let leases = name.suffixed("timeout");
        let total = name.as_bytes().to_vec();
        Ok(Self::new(handle, name, leases, total))
    }

    fn new(handle: &Handle, name: Name, held: Vec<u8>, total: Vec<u8>) -> Self {
        // A waiter asks again within these two, or gives up; twice, so that no question comes at the end.
        let asks = handle.poll_interval() + handle.outage_tolerance();
        Self {
            idle: name.prefixed_alone("stanchion_semaphore_idle"),
            kept: whole_millis(asks.saturating_mul(2)),
            ephemeral: None,
            crowd: Line::of_family(
                handle,
                &name,
                "redisson_sc",
                "stanchion_semaphore_crowd",
                "stanchion_semaphore_wake",
            ),
            held,
            line: name.prefixed_alone("stanchion_semaphore_line"),
            slow: name.prefixed_alone("stanchion_semaphore_slow"),
            total,
            name,
        }
    }

    /// The key beside plain permits that end, for a script that looks after both kinds; of leased ones the name, which means none.
    pub(crate) fn idle_of_plain(&self) -> &[u8] {
        if self.is_leased() {
            self.name.as_bytes()
        } else {
            &self.idle
        }
    }

    /// The keys of the scripts that make permits free.
    pub(crate) fn releasing(&self) -> [&[u8]; 5] {
        let Line {
            line: crowd, wake, ..
        } = &self.crowd;
        [self.name.as_bytes(), &self.held, &self.line, crowd, wake]
    }

    /// The keys of the scripts that end a hold.
    pub(crate) fn returning(&self) -> [&[u8]; 6] {
        let [free, held, line, crowd, wake] = self.releasing();
        [free, held, line, crowd, wake, &self.idle]
    }

    /// The same for a release that touches those of the hold alone.
    pub(crate) fn alone(&self) -> [&[u8]; 6] {
        let name = self.name.as_bytes();
        [name, &self.held, name, name, name, name]
    }

    /// The argument of a script that makes a missing semaphore; empty: it makes none.
    pub(crate) fn made(&self) -> String {
        self.ephemeral.map(Ephemeral::text).unwrap_or_default()
    }

    /// Returns whether its permits have leases.
    fn is_leased(&self) -> bool {
        self.total == self.name.as_bytes()
    }

    /// The arguments by which a script tells those who wait: the channel, and the command that publishes.
    pub(crate) fn common(&self) -> [Arg<'_>; 2] {
        [self.crowd.base.as_slice().into(), self.crowd.publish.into()]
    }

    /// The channel on which the holders of leased permits are told that some were taken away. Scripts derive it in the same way.
    pub(crate) fn held_channel(&self) -> Vec<u8> {
        [&self.crowd.base, b":held".as_slice()].concat()
    }

    /// Returns the key that stores the result of an operation.
    pub(crate) fn once(&self, operation: &Operation) -> Vec<u8> {
        let mut key = self.name.prefixed("stanchion_once");
        key.push(b':');
        key.extend_from_slice(operation.id.as_str().as_bytes());
        key
    }
}

/// The processes that wait are told of free permits one by one.
impl ServerLine for Keys {
    fn neighbours(&self, name: &Name) -> Option<&[u8]> {
        (*name == self.name).then_some(self.crowd.base.as_slice())
    }

    fn tend(&self, _heard: bool) -> Option<Call> {
        Some(pool::tend(self))
    }

    fn leave(&self) -> Option<Call> {
        Some(pool::leave(self))
    }
}
