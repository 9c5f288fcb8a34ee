//! For the crates of the family: how a synchronizer describes itself to the core.
//!
//! A primitive is its scripts plus an implementation of [`Synchronizer`]. The loop that waits, the guard, renewal,
//! clean-up and cancellation are here in the core, once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::error::AcquireError;
use crate::lease::Lease;
use crate::name::Name;
use crate::options::AcquireOptions;
use crate::owner::WireOwner;
use crate::token::FencingToken;

pub use crate::client::{Operation, Resend};
pub use crate::hold::Hold;
pub use crate::holdset::HoldSet;
pub use crate::watchdog::renew_field;
pub use stanchion_transport::{Arg, Item};
pub use stanchion_transport::{Call, Reply, Script};

/// Who asks, for how long, and until when the request may run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The owner to be.
    pub owner: &'a WireOwner,
    /// Its lease.
    pub lease: Lease,
    /// Server time in µs after which the script must refuse (P3).
    pub not_after: u64,
    /// Server time in µs when the caller's call began, or a little earlier.
    pub since: u64,
    /// Whether the caller goes on waiting when it is refused, and so may leave a sign of that on the server.
    pub waits: bool,
    /// For [`Sharing::Permits`]: no other waiter of this process comes before it. Only such a one may take a place in line on the
    /// server: the order there and here is then the same.
    pub first: bool,
    /// For [`Sharing::Queued`]: the server has answered this owner before, and gave it a place in its queue.
    pub queued: bool,
    /// For a shared hold: the exclusive hold of the same name that its owner has (a writer that reads).
    pub within: Option<&'a WireOwner>,
}

/// How holders, and the waiters of one process, get along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// One holder. Only the first waiter asks.
    Exclusive,
    /// Holders of this kind hold together, beside no exclusive one: a grant to one waiter lets those behind it ask.
    Together,
    /// So many permits of a limited number. A message says how many are free.
    Permits(u32),
    /// What one waiter sees has happened for all of them.
    Event,
    /// The server keeps the queue: every waiter asks for itself, and grants come by message.
    Queued,
}

/// What is locked, apart from the server that it is on: local waiters queue by it, and an owner's holds are found by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    family: &'static str,
    name: Name,
}

impl Subject {
    pub(crate) fn of(sync: &dyn Synchronizer) -> Self {
        Self::named(sync, sync.name())
    }

    /// `name`, of the family of `sync`.
    pub(crate) fn named(sync: &dyn Synchronizer, name: &Name) -> Self {
        Self {
            family: sync.family(),
            name: name.clone(),
        }
    }
}

/// What a grant leaves on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tenure {
    /// A hold with a lease.
    Leased,
    /// A hold that only a release ends.
    Unleased,
    /// Nothing.
    Nothing,
}

/// What a synchronizer tells the core about itself.
///
/// All scripts answer by one convention, read by [`Verdict`]: a number, or an array whose first element is that number
/// and whose second is the server's time in µs.
///
/// | reply | acquire, re-enter, hand-off, downgrade | release, abandon |
/// |---|---|---|
/// | n > 0 | done, n is the fencing token; of [`Sharing::Permits`], how many more there are | done, n subscribers were told |
/// | 0 | done, no token | done, nobody was told |
/// | −1 | too late, not done (a hand-off then released) | done, the message could not be sent |
/// | −2 | the owner holds nothing; what is waited for is gone | the owner holds nothing |
/// | n ≤ −3 | busy, ask again after −4 − n ms (−3: nothing is known) | – |
///
/// A third element: for busy replies see [`Synchronizer::hint`]; of a release, the ms after which
/// [`Synchronizer::tend`] is due.
pub trait Synchronizer: fmt::Debug + Send + Sync + 'static {
    /// The kind of synchronizer, for metrics: `lock`.
    fn kind(&self) -> &'static str;

    /// Kinds of one family that have one name are one thing: their waiters share a queue, and an owner one seat. The two
    /// sides of a read-write lock are.
    fn family(&self) -> &'static str {
        self.kind()
    }

    /// What is being synchronized on.
    fn name(&self) -> &Name;

    /// The channel that tells of a release. Several names may share one, as `x` and `{x}` do.
    fn channel(&self) -> &[u8];

    /// How its holders get along.
    fn sharing(&self) -> Sharing {
        Sharing::Exclusive
    }

    /// What a grant leaves on the server.
    fn tenure(&self) -> Tenure {
        Tenure::Leased
    }

    /// Whether a hold is several things on the server, of which some may be there when others have gone.
    fn in_parts(&self) -> bool {
        matches!(self.sharing(), Sharing::Permits(2..))
    }

    /// One attempt. Run twice for one owner, it has the effect of once (P6).
    fn acquire(&self, request: &Request<'_>) -> Call;

    /// From `count` holds to `count` − 1; the last one frees and publishes. `None`, never asked for, with
    /// [`Tenure::Nothing`].
    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Option<Call>;

    /// Undoes whatever requests of `owner` have done: a hold, a place in a queue on the server.
    fn abandon(&self, owner: &WireOwner, lease: Lease) -> Option<Call> {
        self.release(owner, 1, lease)
    }

    /// Whether a request that was refused and goes on waiting leaves something on the server: a place in a queue, a mark.
    /// The core then [abandons](Synchronizer::abandon) it when the waiter goes away.
    fn leaves_sign(&self) -> bool {
        self.sharing() == Sharing::Queued
    }

    /// The key of the counter its fencing tokens come from.
    fn fence(&self) -> Option<&[u8]> {
        None
    }

    /// From `count` holds to `count` + 1; `None` where nobody re-enters.
    fn reenter(&self, _request: &Request<'_>, _count: u32) -> Option<Call> {
        None
    }

    /// Whether a hold may pass straight to the next waiter of the same kind in this process, by
    /// [`Synchronizer::hand_off`].
    fn hands_off(&self) -> bool {
        false
    }

    /// Release by `from` and acquire by the requester, in one step.
    fn hand_off(&self, _from: &WireOwner, _to: &Request<'_>) -> Option<Call> {
        None
    }

    /// From the exclusive hold of `from` to a shared hold of the requester, in one step.
    fn downgrade(&self, _from: &WireOwner, _to: &Request<'_>) -> Option<Call> {
        None
    }

    /// What the watchdog sends for a hold: it is renewed when every item is.
    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        vec![renew_field(self.name(), owner.as_str(), lease)]
    }

    /// What a message says.
    fn hear<'a>(&self, payload: &'a [u8]) -> Heard<'a> {
        Heard::free(payload)
    }

    /// What a busy reply says beyond its number: the elements from the third on.
    fn hint(&self, _rest: &[Reply]) -> Hint {
        Hint::default()
    }

    /// For [`Sharing::Queued`]: a channel on which one waiter alone is woken to try.
    fn channel_of(&self, _owner: &WireOwner) -> Option<Vec<u8>> {
        None
    }

    /// For [`Sharing::Queued`]: how often [`Synchronizer::attend`] is sent while anybody waits.
    fn beat(&self) -> Duration {
        Duration::MAX
    }

    /// For [`Sharing::Queued`]: a sign of life of the process, for its first waiter. It is sent where a stalled executor
    /// cannot keep it, and answers as if that waiter had asked and been refused.
    fn attend(&self, _first: &Request<'_>) -> Option<Call> {
        None
    }

    /// What is to be done later, when a release said so; it answers the ms to the next time, or −1.
    fn tend(&self) -> Option<Call> {
        None
    }
}

/// What a multi-lock may be made of: locks, fair locks, the sides of read-write locks.
pub trait Lockable: fmt::Debug {
    /// What the multi-lock needs to know.
    fn part(&self) -> Part;
}

/// A synchronizer together with the client and the lease it was made with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Part {
    /// Whose it is.
    pub client: Client,
    /// What it is.
    pub sync: Arc<dyn Synchronizer>,
    /// The lease of an acquire that names none.
    pub lease: Lease,
}

impl Part {
    /// Puts the three together.
    #[must_use]
    pub fn new(client: &Client, sync: &Arc<dyn Synchronizer>, lease: Lease) -> Self {
        Self {
            client: client.clone(),
            sync: Arc::clone(sync),
            lease,
        }
    }

    /// Acquires it, waiting as `options` say. Borrows nothing.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn acquire(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Hold, AcquireError>> + Send + 'static {
        let part = self.clone();
        async move { part.client.acquire(&part.sync, options, part.lease).await }
    }

    /// Asks once; `None` when somebody else holds. Borrows nothing.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn try_acquire(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<Hold>, AcquireError>> + Send + 'static {
        let part = self.clone();
        async move {
            let asking = part.client.try_acquire(&part.sync, options, part.lease);
            asking.await
        }
    }
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard<'a> {
    /// A hint to try: for so many permits there may be room.
    Free(u32),
    /// A waiter of this process has been granted.
    Granted {
        /// To whom.
        owner: &'a str,
        /// Its token.
        token: Option<FencingToken>,
        /// Server time of the grant, µs.
        now: u64,
        /// The lease of the grant, to be renewed at once or soon.
        lease: Duration,
    },
}

impl Heard<'_> {
    /// A decimal number of permits; anything else is one.
    #[must_use]
    pub fn free(payload: &[u8]) -> Self {
        let count = std::str::from_utf8(payload)
            .ok()
            .and_then(|text| text.parse::<u32>().ok());
        Self::Free(count.unwrap_or(1).max(1))
    }
}

/// What a busy reply says beyond its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hint {
    /// The holder is this waiter of this process: its grant's message may be lost.
    pub granted: Option<String>,
    /// The server had forgotten the queue: everybody is to ask again.
    pub forgotten: bool,
    /// Somebody who grants to nobody is ahead: listen to [`Synchronizer::channel_of`] too.
    pub foreign: bool,
    /// Wait for this name of the same family instead, on this channel.
    pub elsewhere: Option<(Name, Vec<u8>)>,
    /// This refused request left something on the server, where not all do: see [`Synchronizer::leaves_sign`].
    pub queued: bool,
    /// For [`Sharing::Permits`]: as things are it cannot be served, so those behind it go on without it.
    pub passed: bool,
}

/// A reply of a script, read by the convention of [`Synchronizer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Done.
    Granted(Option<FencingToken>),
    /// The request came after its `not_after`.
    Late,
    /// The owner holds nothing (any more); what was waited for is gone.
    Gone,
    /// Somebody else holds; ask again after so many ms if that is known.
    Busy(Option<u64>),
}

impl Verdict {
    /// Reads a reply; `None` when it breaks the convention.
    #[must_use]
    pub fn read(reply: &Reply) -> Option<Self> {
        let n = code_of(reply)?;
        Some(match n {
            0.. => Self::Granted(FencingToken::new(n.unsigned_abs())),
            -1 => Self::Late,
            -2 => Self::Gone,
            -3 => Self::Busy(None),
            _ => Self::Busy(Some((n + 4).unsigned_abs())),
        })
    }
}

/// The number a reply begins with.
pub(crate) fn code_of(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Int(n) => Some(*n),
        Reply::Array(items) => items.first().and_then(Reply::as_int),
        _ => None,
    }
}

/// The server's time in a reply that tells it, in µs.
pub(crate) fn now_of(reply: &Reply) -> Option<u64> {
    let now = reply.as_array()?.get(1)?.as_int()?;
    u64::try_from(now).ok()
}

/// What follows number and time.
pub(crate) fn rest_of(reply: &Reply) -> &[Reply] {
    reply
        .as_array()
        .and_then(|items| items.get(2..))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_by_the_convention() {
        let read = |n| Verdict::read(&Reply::Int(n)).unwrap();
        assert_eq!(read(17), Verdict::Granted(FencingToken::new(17)));
        assert_eq!(read(0), Verdict::Granted(None));
        assert_eq!(read(-1), Verdict::Late);
        assert_eq!(read(-2), Verdict::Gone);
        assert_eq!(read(-3), Verdict::Busy(None));
        assert_eq!(read(-4), Verdict::Busy(Some(0)));
        assert_eq!(read(-1004), Verdict::Busy(Some(1000)));
        assert_eq!(Verdict::read(&Reply::Nil), None);
        let long = Reply::Array(vec![Reply::Int(-14), Reply::Int(5_000), Reply::Int(7)]);
        assert_eq!(Verdict::read(&long), Some(Verdict::Busy(Some(10))));
        assert_eq!(now_of(&long), Some(5_000));
        assert_eq!(rest_of(&long), [Reply::Int(7)]);
        assert_eq!(rest_of(&Reply::Int(1)), []);
    }

    #[test]
    fn a_message_that_is_no_number_is_a_wake_for_one() {
        assert_eq!(Heard::free(b"3"), Heard::Free(3));
        for odd in [&b"0"[..], b"", b"-1", b"x", b"1.5"] {
            assert_eq!(Heard::free(odd), Heard::Free(1), "{odd:?}");
        }
    }
}
