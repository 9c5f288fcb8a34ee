//! The keys of one semaphore.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Arg, Call, Handle, Kind, Line, Operation, Reply, ServerQueue, Sharing, Yields,
    whole_millis,
};
use stanchion_client::{IdleExpiry, InvalidName, Name};

use crate::scripts::pool;

/// The keys and the channel of a semaphore of either kind.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The number of free permits.
    pub(crate) name: Name,
    /// The queue of processes, and the channels on which they receive messages.
    pub(crate) queue: Line,
    /// The held permits: the ledger of plain ones, or the leases.
    pub(crate) held: Vec<u8>,
    /// The plain permits that were granted by message and not confirmed yet. Leased permits need none: the name again.
    pub(crate) granted: Vec<u8>,
    /// The total of plain permits, where it is known. Leased permits need none: the name again.
    pub(crate) total: Vec<u8>,
    /// The key next to an ephemeral semaphore, with its idle time.
    pub(crate) idle: Vec<u8>,
    /// Milliseconds for which each request of a waiter keeps an ephemeral semaphore.
    pub(crate) kept: u64,
    /// The settings with which a handle creates a missing semaphore.
    pub(crate) ephemeral: Option<Ephemeral>,
}

/// Reads from the elements of a busy reply whether the semaphore exists. A waiter for one that does not waits until some process creates it,
/// which is a mistake more often than not.
pub(crate) fn remark(rest: &[Reply]) -> Option<&'static str> {
    let missing = rest.last().and_then(Reply::as_text) == Some("none");
    missing.then_some("the semaphore has no permits: call `init`")
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
        let granted = name.prefixed_alone("stanchion_semaphore_granted");
        let total = name.prefixed_alone("stanchion_semaphore_total");
        let queue = ["stanchion_semaphore_line", "stanchion_semaphore_wake"];
        Ok(Self::new(handle, name, queue, [ledger, granted, total]))
    }

    pub(crate) fn leased(handle: &Handle, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = handle.name(name)?;
        let leases = name.suffixed("timeout");
        let none = name.as_bytes().to_vec();
        let queue = ["stanchion_leased_line", "stanchion_leased_wake"];
        Ok(Self::new(handle, name, queue, [leases, none.clone(), none]))
    }

    fn new(
        handle: &Handle,
        name: Name,
        [line, wake]: [&str; 2],
        [held, granted, total]: [Vec<u8>; 3],
    ) -> Self {
        // A waiter sends its next request within these two times, or gives up. Twice the sum, so that no request comes just at the end.
        let asks = handle.poll_interval() + handle.outage_tolerance();
        let queue = Line::of_family(handle, &name, "redisson_sc", line, wake);
        Self {
            queue,
            idle: name.prefixed_alone("stanchion_semaphore_idle"),
            kept: whole_millis(asks.saturating_mul(2)),
            ephemeral: None,
            held,
            granted,
            total,
            name,
        }
    }

    /// The properties of a request for so many permits.
    pub(crate) fn about(&self, kind: &'static str, permits: u32) -> About {
        About {
            sharing: Sharing::Permits(permits),
            ..About::new(
                Kind::new(kind),
                self.name.clone(),
                Arc::clone(&self.queue.channel),
            )
        }
    }

    /// The keys of the scripts of plain permits that serve the queue.
    pub(crate) fn serving(&self) -> [&[u8]; 6] {
        let Line { line, wake, .. } = &self.queue;
        [
            self.name.as_bytes(),
            &self.held,
            line,
            wake,
            &self.granted,
            &self.idle,
        ]
    }

    /// The same for leased permits.
    pub(crate) fn serving_leased(&self) -> [&[u8]; 5] {
        let [free, held, line, wake, _, idle] = self.serving();
        [free, held, line, wake, idle]
    }

    /// The same keys for a release that touches only those of the hold.
    pub(crate) fn alone<const N: usize>(&self) -> [&[u8]; N] {
        let mut keys = [self.name.as_bytes(); N];
        if let Some(held) = keys.get_mut(1) {
            *held = &self.held;
        }
        keys
    }

    /// The argument of a script that creates a missing semaphore; empty: it creates none.
    pub(crate) fn made(&self) -> String {
        self.ephemeral.map(Ephemeral::text).unwrap_or_default()
    }

    /// The arguments with which a script notifies waiters: the channel, and the command that publishes.
    pub(crate) fn common(&self) -> [Arg<'_>; 2] {
        [self.queue.base.as_slice().into(), self.queue.publish.into()]
    }

    /// The argument of a hand-off for those that come first.
    pub(crate) fn yields(&self, yields: Yields) -> Arg<'_> {
        match yields {
            Yields::No => "".into(),
            Yields::Outside => "outside".into(),
            Yields::All => self.queue.client().into(),
        }
    }

    /// The channel on which holders of leased permits learn that some were taken away. Scripts derive it in the same way.
    pub(crate) fn held_channel(&self) -> Vec<u8> {
        [&self.queue.base, b":held".as_slice()].concat()
    }

    /// Returns the key that stores the result of an operation.
    pub(crate) fn once(&self, operation: &Operation) -> Vec<u8> {
        let mut key = self.name.prefixed("stanchion_once");
        key.push(b':');
        key.extend_from_slice(operation.id.as_str().as_bytes());
        key
    }
}

impl ServerQueue for Keys {
    fn neighbours(&self, name: &Name) -> Option<&[u8]> {
        (*name == self.name).then_some(self.queue.base.as_slice())
    }

    fn tend(&self, heard: bool) -> Option<Call> {
        Some(pool::tend(self, heard))
    }
}
