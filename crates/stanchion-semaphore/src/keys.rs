//! The keys of one semaphore.

use stanchion_client::primitive::{Arg, Call, Handle, Line, Operation, ServerLine, whole_millis};
use stanchion_client::{IdleExpiry, InvalidName, Name};

use crate::scripts::pool;

/// The keys and the channel of a semaphore of either kind.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The number of free permits.
    pub(crate) name: Name,
    /// The wait set of processes, and the channels on which they receive messages.
    pub(crate) crowd: Line,
    /// The held permits: the ledger of plain ones, or the leases.
    pub(crate) held: Vec<u8>,
    pub(crate) line: Vec<u8>,
    /// The holders that kept their permits through a whole turn of the first request in the line.
    pub(crate) slow: Vec<u8>,
    /// The total of plain permits, where it is known. Leased permits need none: the name again.
    pub(crate) total: Vec<u8>,
    /// The key next to an ephemeral semaphore, with its idle time.
    pub(crate) idle: Vec<u8>,
    /// Milliseconds for which each request of a waiter keeps an ephemeral semaphore.
    pub(crate) kept: u64,
    /// The settings with which a handle creates a missing semaphore.
    pub(crate) ephemeral: Option<Ephemeral>,
}

/// The settings of an ephemeral semaphore, with which a handle creates it.
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
        let name = handle.name(name)?;
        let ledger = name.prefixed_alone("stanchion_permits");
        let total = name.prefixed_alone("stanchion_semaphore_total");
        Ok(Self::new(handle, name, ledger, total))
    }

    pub(crate) fn leased(handle: &Handle, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = handle.name(name)?;
        let leases = name.suffixed("timeout");
        let total = name.as_bytes().to_vec();
        Ok(Self::new(handle, name, leases, total))
    }

    fn new(handle: &Handle, name: Name, held: Vec<u8>, total: Vec<u8>) -> Self {
        // A waiter sends its next request within these two times, or gives up. Twice the sum, so that no request comes just at the end.
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

    /// The idle key of plain permits, for a script that serves both kinds; of leased permits the name, which stands for no key.
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

    /// The same for a release that touches only the keys of the hold.
    pub(crate) fn alone(&self) -> [&[u8]; 6] {
        let name = self.name.as_bytes();
        [name, &self.held, name, name, name, name]
    }

    /// The argument of a script that creates a missing semaphore; empty: it creates none.
    pub(crate) fn made(&self) -> String {
        self.ephemeral.map(Ephemeral::text).unwrap_or_default()
    }

    /// Returns whether its permits have leases.
    fn is_leased(&self) -> bool {
        self.total == self.name.as_bytes()
    }

    /// The arguments with which a script notifies waiters: the channel, and the command that publishes.
    pub(crate) fn common(&self) -> [Arg<'_>; 2] {
        [self.crowd.base.as_slice().into(), self.crowd.publish.into()]
    }

    /// The channel on which holders of leased permits learn that some were taken away. Scripts derive it in the same way.
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

/// Each process in the wait set gets its own message about free permits.
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
