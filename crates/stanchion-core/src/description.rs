//! The description of a synchronizer: the scripts and properties that a primitive supplies to the core, and the readers of its replies.
//!
//! This module does not depend on clients, holds or waiters.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::about::{About, Kind, Sharing, Tenure};
use crate::dated::Dated;
use crate::fact::Facts;
use crate::field::renew_field;
use crate::hint::Hint;
use crate::holders::Holders;
use crate::lease::Lease;
use crate::line::{Approach, Placed, Reason, Yields};
use crate::name::Name;
use crate::token::FencingToken;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Call, Item, Reply};

/// The parameters of a request: its owner, its lease, and the end of the time in which it may run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The owner that sends the request.
    pub owner: &'a WireOwner,
    /// The lease of the hold.
    pub lease: Lease,
    /// Server time in µs after which the script must refuse (P3).
    pub not_after: u64,
    /// Server time in µs when the caller's call began, or a little earlier.
    pub since: u64,
    /// True if the caller waits after a refusal. The script may then leave an entry of the caller on the server.
    pub waits: bool,
    /// For [`Sharing::Permits`]: true if no other waiter of this process is ahead. Only then may the script put the request into the queue, so
    /// that the order on the server is the order in this process.
    pub first: bool,
    /// With a queue on the server: the entry and the reason of this request, and how this client receives messages.
    pub approach: Approach,
    /// For a shared hold: the owner of the exclusive hold that the same actor has on this name (a writer that also reads).
    pub within: Option<&'a WireOwner>,
    /// The owner of the detached hold that this request takes over. Such a request acquires nothing else: see [`HoldTicket`](crate::HoldTicket).
    pub from: Option<&'a WireOwner>,
    /// For a hand-off: the clients that come first.
    pub yields: Yields,
}

impl Request<'_> {
    /// Returns the argument that describes this request to the scripts of a queue: a word, the arrival, and flags for [`Approach::hears`]
    /// and [`Approach::polls`].
    #[must_use]
    pub fn ask(&self) -> Cow<'static, str> {
        let Approach {
            arrived,
            reason,
            polls,
            hears,
        } = self.approach;
        if !self.waits || !self.first {
            return "try".into();
        }
        let word = match reason {
            // The reason of another waiter of this process, a wake-up or a due poll, is kept if this request has no entry.
            Reason::Told => "ask",
            Reason::Look => "look",
            Reason::Turn if arrived > 0 => "ask",
            Reason::Turn | Reason::Resubscribed => "new",
        };
        let polls = if polls { "?" } else { "" };
        let hears = u8::from(hears);
        match arrived {
            0 if word == "new" && polls.is_empty() => word.into(),
            0 => format!("{word}  {hears} {polls}").into(),
            _ => format!("{word} {arrived} {hears} {polls}").into(),
        }
    }
}

/// The identity of a locked object, without its server: the key of the local queues and of an owner's seats.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    family: &'static str,
    name: Name,
    /// Of a local queue: the number of permits that its waiters want, where the server orders the requests. Otherwise 0.
    permits: u32,
}

impl Subject {
    pub(crate) fn of(sync: &dyn Synchronizer) -> Self {
        Self::named(sync, sync.name())
    }

    pub(crate) const fn name(&self) -> &Name {
        &self.name
    }

    /// Makes the subject of `name` in the family of `sync`.
    #[must_use]
    pub fn named(sync: &dyn Synchronizer, name: &Name) -> Self {
        Self {
            family: sync.kind().family(),
            name: name.clone(),
            permits: 0,
        }
    }

    /// Makes the subject of the local queue in which `sync` waits for `name`. Requests for different numbers of permits wait in different queues,
    /// because the server may let one of them pass the other.
    pub(crate) fn queue_of(sync: &dyn Synchronizer, name: &Name) -> Self {
        let permits = sync.server_queue().and_then(|_| sync.sharing().permits());
        Self {
            permits: permits.unwrap_or(0),
            ..Self::named(sync, name)
        }
    }
}

/// The description of a synchronizer: its scripts, and the properties that the core needs to know.
///
/// All scripts reply in one format, which [`Verdict`] reads: a number, or an array whose first element is that number and whose second is the
/// server's time in µs.
///
/// | reply | acquire, re-enter, hand-off, downgrade | release, abandon |
/// |---|---|---|
/// | n > 0 | done, n is the fencing token; for [`Sharing::Permits`], the number still free | done, n subscribers notified |
/// | 0 | done, no token | done, no subscriber notified |
/// | −1 | too late, not done | done, the message could not be sent |
/// | −2 | the owner holds nothing; the object waited for is deleted | the owner holds nothing |
/// | n ≤ −3 | busy, retry after −4 − n ms (−3: the time is not known) | – |
///
/// From the third element on, [`Synchronizer::hint`] reads a busy reply, and [`Synchronizer::dated`] a grant. In the reply to a release, this
/// element is, with [`Sharing::Queued`], a grant to a waiter of this client, as in a message.
///
/// A script that frees something may find more dead processes than it removes in one run. Then it replies `{ "tend", ms, reply }`, and the client
/// sends [`ServerQueue::tend`] after that time.
///
/// The core may call these methods while it has a local queue locked, so they must not block or call the client.
pub trait Synchronizer: fmt::Debug + Send + Sync + 'static {
    /// The properties that never change.
    fn about(&self) -> &About;

    /// The script of one attempt. Running it twice for one owner has the effect of running it once (P6).
    fn acquire(&self, request: &Request<'_>) -> Call;

    /// The hold that a grant leaves on the server; `None` if a grant leaves nothing there: what one can only wait for.
    fn hold(&self) -> Option<&dyn Holdable> {
        None
    }

    /// The queue that the server keeps for the name.
    fn server_queue(&self) -> Option<&dyn ServerQueue> {
        None
    }

    /// With [`Sharing::Event`]: the reader of messages that report final events. `None` if a message is only a hint to send a request.
    fn facts(&self) -> Option<&dyn Facts> {
        None
    }

    /// Reads the elements of a busy reply from the third on. With a queue on the server they are those of [`Placed`].
    fn hint(&self, rest: &[Reply]) -> Hint {
        let placed = self.server_queue().and_then(|_| Placed::read(rest));
        placed.map_or(Hint::None, Hint::Placed)
    }

    /// Reads from the same elements a state of the name that a wait cannot end: for the error of a timeout.
    fn remark(&self, _rest: &[Reply]) -> Option<&'static str> {
        None
    }

    /// Reads the elements of a granted reply from the third on.
    fn dated(&self, _rest: &[Reply]) -> Dated {
        Dated::default()
    }
}

impl<'a> dyn Synchronizer + 'a {
    /// The kind of synchronizer.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.about().kind
    }

    /// The name that is synchronized on.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.about().name
    }

    /// All names that a hold covers.
    #[must_use]
    pub fn names(&self) -> &[Name] {
        self.about().names()
    }

    /// The way in which its holders share.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.about().sharing
    }

    /// The key of the counter that its fencing tokens come from.
    #[must_use]
    pub fn fence(&self) -> Option<&[u8]> {
        self.about().fence.as_deref()
    }

    /// The way to read the current holders from the server.
    #[must_use]
    pub fn holders(&self) -> Holders {
        self.about().holders()
    }

    /// The effect of a grant on the server.
    #[must_use]
    pub fn tenure(&self) -> Tenure {
        match self.hold() {
            None => Tenure::Nothing,
            Some(_) if self.about().is_leased => Tenure::Leased,
            Some(_) => Tenure::Unleased,
        }
    }
}

/// The hold of a synchronizer: see [`Synchronizer::hold`].
pub trait Holdable: Synchronizer {
    /// The script that lowers the hold count from `count` to `count` − 1. The release of the last hold frees the name and publishes.
    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Call;

    /// The script that ends the last hold with the keys of the hold alone, and grants to no waiter. Needed for a slot in migration, where a script
    /// is refused if its keys are on two nodes. `None` if `release` already does this.
    fn release_alone(&self, _owner: &WireOwner) -> Option<Call> {
        None
    }

    /// The script that undoes the requests of `owner`: it removes a hold, or a place in a queue on the server.
    fn abandon(&self, owner: &WireOwner, lease: Lease) -> Call {
        self.release(owner, 1, lease)
    }

    /// The script that raises the hold count from `count` to `count` + 1; `None` if re-entry is not supported.
    fn reenter(&self, _request: &Request<'_>, _count: u32) -> Option<Call> {
        None
    }

    /// The hand-off inside a process, if a hold may go directly to the next waiter of the same kind.
    fn hand_off(&self) -> Option<&dyn HandOff> {
        None
    }

    /// The script that turns the exclusive hold of `from` into a shared hold of the requester, in one step.
    fn downgrade(&self, _from: &WireOwner, _to: &Request<'_>) -> Option<Call> {
        None
    }

    /// The synchronizer of the shared hold that [`downgrade`](Holdable::downgrade) leaves. It uses the channel of this one.
    fn downgraded(&self) -> Option<Arc<dyn Synchronizer>> {
        None
    }

    /// The items that the watchdog sends to renew a hold. The hold is renewed if every item succeeds.
    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        let About {
            is_leased, name, ..
        } = self.about();
        let item = is_leased.then(|| renew_field(name, owner.as_str(), lease));
        item.into_iter().collect()
    }

    /// The script that frees the name regardless of its holders, and notifies them: 1 if there were any. Sent only once.
    fn force_release(&self) -> Option<Call> {
        None
    }

    /// The script that checks, after this `wait`, whether the dated grant of `owner` is still valid. A reply of 1 confirms the grant; after 0 the
    /// acquire starts again. `None` if no check is needed.
    fn confirm(&self, _owner: &WireOwner, _wait: Duration) -> Option<Call> {
        None
    }
}

/// The queue of the processes that wait for a name: see [`Synchronizer::server_queue`].
///
/// A process has one entry in it for all its waiters, or, with [`Sharing::Queued`], one for each waiter. A release grants to the head of the
/// queue by message; or the message only wakes the head, which then sends a request. A process with one entry gives the hold to its first
/// waiter.
pub trait ServerQueue {
    /// The channel on which Redisson's clients publish releases of `name`. [`About::channel`] is the channel of this process.
    fn neighbours(&self, _name: &Name) -> Option<&[u8]> {
        None
    }

    /// The channel on which Redisson's clients wake this waiter.
    fn channel_of(&self, _owner: &WireOwner) -> Option<Vec<u8>> {
        None
    }

    /// The script that serves the queue. `heard`: this client has heard a release of Redisson's.
    fn tend(&self, heard: bool) -> Option<Call>;

    /// With [`Sharing::Queued`]: the script that releases for `from` and makes the first request of a waiter. Its reply contains both replies. The
    /// second is nil if that part failed, and the waiter then has to send its own request.
    fn pass_on(&self, _from: &WireOwner, _to: &Request<'_>) -> Option<Call> {
        None
    }
}

/// Returns whether the process has one entry for all its waiters in the queue on the server.
pub(crate) fn has_one_entry(sync: &dyn Synchronizer) -> bool {
    sync.server_queue().is_some() && !sync.sharing().keeps_each_waiter()
}

/// The hand-off of a hold: see [`Holdable::hand_off`].
pub trait HandOff {
    /// The script that releases for `from` and acquires for the requester, in one step. If others come first, it may grant to them, and put the
    /// requester into the queue, or do nothing.
    fn hand_off(&self, from: &WireOwner, to: &Request<'_>) -> Call;
}

/// A grant by message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted<'a> {
    /// The owner that was granted.
    pub owner: &'a str,
    /// The fencing token of the grant.
    pub token: Option<FencingToken>,
    /// The server time of the grant, in µs.
    pub now: u64,
    /// The lease of the grant, which is short and must be renewed soon.
    pub lease: Duration,
    /// The counter that the token comes from, `-` for none.
    pub fence: &'a str,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard<'a> {
    /// A hint to try.
    Free,
    /// A grant to a waiter of this process.
    Granted(Granted<'a>),
    /// This process polls for the entry of this owner after this time.
    Head(&'a str, Duration),
    /// The process of the entry of this owner may send a request after this time. At once: the entry may be off the queue.
    Try(&'a str, Duration),
}

/// The end of a hold, as the server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A release was answered: the next waiter is notified by message.
    Released,
    /// No reply: perhaps no message was published.
    Unknown,
}

/// A reply of a script, read in the format of [`Synchronizer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The request was granted.
    Granted(Option<FencingToken>),
    /// The request reached the server after its `not_after`.
    Late,
    /// The owner holds nothing (any more), or the object that was waited for is deleted.
    Gone,
    /// Another owner holds the name; retry after this number of ms, if it is known.
    Busy(Option<u64>),
}

impl Verdict {
    /// Reads a reply; `None` if it breaks the format.
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

/// The number that a reply begins with.
pub(crate) fn code_of(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Int(n) => Some(*n),
        Reply::Array(items) => items.first().and_then(Reply::as_int),
        _ => None,
    }
}

/// The server's time, in µs, in a reply that contains it.
pub(crate) fn now_of(reply: &Reply) -> Option<u64> {
    let now = reply.as_array()?.get(1)?.as_int()?;
    u64::try_from(now).ok()
}

/// The elements after number and time.
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
}
