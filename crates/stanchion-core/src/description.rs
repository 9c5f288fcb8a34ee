//! The description of a synchronizer: the questions that the core asks a primitive, and the answers it reads.
//!
//! Nothing here knows clients, holds or waiters.
//!
//! Long: one convention, and all that is asked by it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::dated::Dated;
use crate::fact::Facts;
use crate::field::renew_field;
use crate::hint::Hint;
use crate::holders::Holders;
use crate::lease::Lease;
use crate::line::{Approach, Reason};
use crate::name::Name;
use crate::token::FencingToken;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Call, Item, Reply};

/// The parameters of a request: its owner, its lease, and the end of the time in which it may run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The owner that asks.
    pub owner: &'a WireOwner,
    /// The lease of the hold.
    pub lease: Lease,
    /// Server time in µs after which the script must refuse (P3).
    pub not_after: u64,
    /// Server time in µs when the caller's call began, or a little earlier.
    pub since: u64,
    /// True when the caller waits after a refusal. The script may then leave a mark of that on the server.
    pub waits: bool,
    /// For [`Sharing::Permits`]: true when no other waiter of this process is ahead. Only then may the script give it a place in
    /// line, so that the order on the server is that of this process.
    pub first: bool,
    /// True when the server has answered this owner before, and gave it a place in its queue or line.
    pub queued: bool,
    /// With a line: the way in which this request asks.
    pub approach: Approach,
    /// For a shared hold: the owner of the exclusive hold of the same name that the same actor has (a writer that also reads).
    pub within: Option<&'a WireOwner>,
    /// The owner of a detached hold that this request takes over, and nothing else: see [`HoldTicket`](crate::HoldTicket).
    pub from: Option<&'a WireOwner>,
}

impl Request<'_> {
    /// The words by which the scripts of a line know how a request asks.
    #[must_use]
    pub fn ask(&self) -> Cow<'static, str> {
        let Approach {
            arrived,
            reason,
            polls,
            hears,
            ..
        } = self.approach;
        if !self.waits {
            "try".into()
        } else if polls {
            "poll".into()
        } else {
            let ask = match reason {
                // What another waiter of this process was told, or came to look at, is not lost when one without a place asks.
                Reason::Told => "ask",
                Reason::Look => "look",
                Reason::Turn | Reason::Reply if arrived > 0 => "ask",
                Reason::Reply => "join",
                Reason::Turn | Reason::Anew => "new",
            };
            let hears = u8::from(hears);
            match arrived {
                0 if ask == "new" || ask == "join" => ask.into(),
                0 => format!("{ask}  {hears}").into(),
                _ => format!("{ask} {arrived} {hears}").into(),
            }
        }
    }
}

/// The way in which holders share, and so in which the waiters of one process take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// One holder at a time. Only the first waiter asks.
    Exclusive,
    /// Any number of holders of this kind, while there is no exclusive one: a grant to one waiter lets those behind it ask.
    Together,
    /// The given number of permits, out of a limited total. A message says how many are free.
    Permits(u32),
    /// No holders: an event that one waiter sees has happened for all of them.
    Event,
    /// One holder at a time, from a queue that the server keeps: every waiter asks for itself, and grants come by message.
    Queued,
}

impl Sharing {
    /// Returns whether there is at most one holder.
    pub(crate) const fn has_one_holder(self) -> bool {
        matches!(self, Self::Exclusive | Self::Queued)
    }
}

/// The identity of a locked thing, apart from its server: the key of the local queues and of an owner's seats.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    family: &'static str,
    name: Name,
}

impl Subject {
    pub(crate) fn of(sync: &dyn Synchronizer) -> Self {
        Self::named(sync, sync.name())
    }

    pub(crate) const fn name(&self) -> &Name {
        &self.name
    }

    /// Makes the subject of `name` in the family of `sync`.
    pub(crate) fn named(sync: &dyn Synchronizer, name: &Name) -> Self {
        Self {
            family: sync.kind().family(),
            name: name.clone(),
        }
    }
}

/// The effect of a grant on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tenure {
    /// A hold with a lease.
    Leased,
    /// A hold that only a release ends.
    Unleased,
    /// No hold.
    Nothing,
}

/// The kind of a synchronizer. Waiters of one kind may be handed each other's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    name: &'static str,
    family: &'static str,
    plain: bool,
}

impl Kind {
    /// A kind that is a family of its own. `name`: the label of its metrics, as `lock`.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            family: name,
            plain: false,
        }
    }

    /// Puts it into a family. Synchronizers of one family and name are one thing: their waiters share a queue, and an owner has
    /// one seat there. Example: the two sides of a read-write lock.
    #[must_use]
    pub const fn of_family(mut self, family: &'static str) -> Self {
        self.family = family;
        self
    }

    /// Declares that a hold is one field of the hash `name` and nothing else, and that whoever finds no such key may hold. A
    /// multi-lock takes several of them in one script.
    #[must_use]
    pub const fn plain(mut self) -> Self {
        self.plain = true;
        self
    }

    /// The label of its metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The family.
    #[must_use]
    pub const fn family(self) -> &'static str {
        self.family
    }

    /// Returns whether a hold is one field of the hash `name`: see [`Kind::plain`].
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.plain
    }
}

/// The description of a synchronizer: its scripts, and the properties that the core needs to know.
///
/// All scripts answer by one convention, read by [`Verdict`]: a number, or an array whose first element is that number
/// and whose second is the server's time in µs.
///
/// | reply | acquire, re-enter, hand-off, downgrade | release, abandon |
/// |---|---|---|
/// | n > 0 | done, n is the fencing token; for [`Sharing::Permits`], the number still free | done, n subscribers notified |
/// | 0 | done, no token | done, nobody notified |
/// | −1 | too late, not done (a hand-off has released instead) | done, the message could not be sent |
/// | −2 | the owner holds nothing; the object waited for is deleted | the owner holds nothing |
/// | n ≤ −3 | busy, ask again after −4 − n ms (−3: the time is not known) | – |
///
/// The elements from the third on: of a busy reply see [`Synchronizer::hint`], of a grant [`Synchronizer::dated`]; of a release, the ms
/// after which [`ServerQueue::tend`] is due, and with a [`ServerQueue`] a grant to a waiter of this client, as its message would be.
///
/// A script that frees something may meet more dead processes than it removes in one run. Then it replies `{ "tend", ms, reply }`, and
/// [`ServerLine::tend`] is sent after that time.
///
/// The core may call these methods while it has a local queue locked: they must not block, nor call the client.
pub trait Synchronizer: fmt::Debug + Send + Sync + 'static {
    /// The kind of synchronizer.
    fn kind(&self) -> Kind;

    /// The name that is synchronized on.
    fn name(&self) -> &Name;

    /// All names that it holds: for those who look who holds what.
    fn names(&self) -> Vec<&Name> {
        vec![self.name()]
    }

    /// The channel on which releases are published. Several names may share one, as `x` and `{x}` do.
    fn channel(&self) -> &[u8];

    /// The way in which its holders share.
    fn sharing(&self) -> Sharing {
        Sharing::Exclusive
    }

    /// The effect of a grant on the server.
    fn tenure(&self) -> Tenure {
        Tenure::Leased
    }

    /// Returns whether a grant is the caller's also when its answer took longer than the lease. For what a grant tells that lasts, as an
    /// arrival that has completed a round; the caller finds the hold lost, and gives it back before it asks again. Elsewhere the core does
    /// both, at the same time, with a fresh owner.
    fn keeps_late_grants(&self) -> bool {
        false
    }

    /// Returns whether a hold is several entries on the server, of which some may exist when others are gone.
    fn in_parts(&self) -> bool {
        matches!(self.sharing(), Sharing::Permits(2..))
    }

    /// Where the server keeps who holds. Those who wait for what it does not tell are in no certain deadlock.
    fn holders(&self) -> Holders {
        match self.sharing() {
            Sharing::Permits(_) => Holders::Permits,
            _ if self.kind().is_plain() => Holders::One,
            _ => Holders::Untold,
        }
    }

    /// The script of one attempt. Run twice for one owner, it has the effect of once (P6).
    fn acquire(&self, request: &Request<'_>) -> Call;

    /// The script that goes from `count` holds to `count` − 1; the last one frees and publishes. `None`, which is never sent,
    /// with [`Tenure::Nothing`].
    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Option<Call>;

    /// The script that ends the last hold with the keys of the hold alone, and grants to nobody: for a slot in migration, where a script
    /// whose keys are on two nodes is refused. `None` where that is what `release` does.
    fn release_alone(&self, _owner: &WireOwner) -> Option<Call> {
        None
    }

    /// The script that undoes the requests of `owner`: a hold, a place in a queue on the server.
    fn abandon(&self, owner: &WireOwner, lease: Lease) -> Option<Call> {
        self.release(owner, 1, lease)
    }

    /// Returns whether a refused request that waits leaves something on the server: a place in a queue, a mark. The core then
    /// [abandons](Synchronizer::abandon) it when the waiter leaves.
    fn leaves_sign(&self) -> bool {
        self.sharing() == Sharing::Queued
    }

    /// The key of the counter that its fencing tokens come from.
    fn fence(&self) -> Option<&[u8]> {
        None
    }

    /// The script that goes from `count` holds to `count` + 1; `None` where re-entry is not supported.
    fn reenter(&self, _request: &Request<'_>, _count: u32) -> Option<Call> {
        None
    }

    /// The hand-off inside a process, where a hold may go directly to the next waiter of the same kind.
    fn hand_off(&self) -> Option<&dyn HandOff> {
        None
    }

    /// The script that turns the exclusive hold of `from` into a shared hold of the requester, in one step.
    fn downgrade(&self, _from: &WireOwner, _to: &Request<'_>) -> Option<Call> {
        None
    }

    /// The items that the watchdog sends for a hold. The hold is renewed when every item is.
    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        vec![renew_field(self.name(), owner.as_str(), lease)]
    }

    /// The channel on which all holders are told that some of them were forced away, where a script cannot know whose hold it
    /// takes: permits by their ids. By default a holder is told on the channel of its client.
    fn notices(&self) -> Option<Vec<u8>> {
        None
    }

    /// The script that frees it, whoever holds, and tells those who held: 1 if there were any. It is sent once only.
    fn force_release(&self) -> Option<Call> {
        None
    }

    /// Reads the elements of a busy reply from the third on.
    fn hint(&self, _rest: &[Reply]) -> Hint {
        Hint::default()
    }

    /// Reads the elements of a granted reply from the third on.
    fn dated(&self, _rest: &[Reply]) -> Dated {
        Dated::default()
    }

    /// The script that asks whether the grant of `owner`, which was dated, still stands after this `wait`. Its reply is 1, or 0: then
    /// the acquire begins anew. `None` where that need not be asked.
    fn confirm(&self, _owner: &WireOwner, _wait: Duration) -> Option<Call> {
        None
    }

    /// The queue that the server keeps, with [`Sharing::Queued`].
    fn server_queue(&self) -> Option<&dyn ServerQueue> {
        None
    }

    /// With [`Sharing::Event`]: messages are facts. `None` where they are hints, after which somebody asks.
    fn facts(&self) -> Option<&dyn Facts> {
        None
    }

    /// The line of processes that the server keeps; with [`Sharing::Permits`] the crowd of those that it tells of free permits.
    fn line(&self) -> Option<&dyn ServerLine> {
        None
    }
}

/// The line of the processes that wait for a name: see [`Synchronizer::line`].
///
/// A process has one place in it, whichever of its waiters asked. A release grants to the head of the line by message, and the
/// process gives the hold to its first waiter; or the head is told to ask.
pub trait ServerLine {
    /// The channel on which Redisson's clients publish releases of `name`. [`Synchronizer::channel`] is the one of this process.
    fn neighbours(&self, name: &Name) -> Option<&[u8]>;

    /// Returns whether a place serves every synchronizer of this kind, name and counter. It does not where it is for several names.
    fn is_common(&self) -> bool {
        true
    }

    /// The script that looks after what is free: `heard` after a message on [`ServerLine::neighbours`], otherwise because the reply of
    /// another script says so. `None` if it is heard, where several names are taken together.
    fn tend(&self, heard: bool) -> Option<Call>;

    /// The script that takes this process out of a crowd: its last waiter has left.
    fn leave(&self) -> Option<Call> {
        None
    }

    /// The script that releases for `from` and puts the requester into the line; it may be granted at once.
    fn pass_on(&self, _from: &WireOwner, _to: &Request<'_>) -> Option<Call> {
        None
    }
}

/// The hand-off of a synchronizer: see [`Synchronizer::hand_off`].
pub trait HandOff {
    /// The script that releases for `from` and acquires for the requester, in one step.
    fn hand_off(&self, from: &WireOwner, to: &Request<'_>) -> Call;
}

/// The queue of a synchronizer that the server keeps: see [`Synchronizer::server_queue`].
pub trait ServerQueue {
    /// Reads a message: a grant to one waiter, or a hint to try.
    fn hear<'a>(&self, payload: &'a [u8]) -> Heard<'a>;

    /// A channel on which one waiter alone is woken to try.
    fn channel_of(&self, owner: &WireOwner) -> Vec<u8>;

    /// The interval at which [`ServerQueue::heartbeat`] is sent while there are waiters.
    fn beat(&self) -> Duration;

    /// The heartbeat of the process, on behalf of its first waiter. Sent from the background, where a stalled executor cannot
    /// delay it. The script answers as if that waiter had asked and been refused.
    fn heartbeat(&self, first: &Request<'_>) -> Call;

    /// The script that releases the last hold of `from`, and acquires for the requester, a newcomer of this client that waits. It replies
    /// with the two replies; the second is nil where that part failed, and the requester has to ask for itself.
    fn release_and_acquire(&self, from: &WireOwner, to: &Request<'_>) -> Call;

    /// The script to run later, when a release's reply says so. It answers the ms until the next run, or −1.
    fn tend(&self) -> Call;
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
    /// The lease of the grant. It is short, and must be renewed soon.
    pub lease: Duration,
    /// The counter that the token comes from, `-` for none; `None` where the message does not say.
    pub fence: Option<&'a str>,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard<'a> {
    /// A hint to try: up to this number of permits may be free.
    Free(u32),
    /// A grant to a waiter of this process.
    Granted(Granted<'a>),
    /// This process is the head of the line: look when this time has passed.
    Head(Duration),
    /// Ask when this time has passed: others have a head start.
    Open(Duration),
    /// Hear Redisson's releases for all that wait.
    Hear,
}

impl Heard<'_> {
    /// Reads a decimal number of permits; anything else counts as one.
    #[must_use]
    pub fn free(payload: &[u8]) -> Self {
        let count = std::str::from_utf8(payload)
            .ok()
            .and_then(|text| text.parse::<u32>().ok());
        Self::Free(count.unwrap_or(1).max(1))
    }
}

/// A reply of a script, read by the convention of [`Synchronizer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The request was granted.
    Granted(Option<FencingToken>),
    /// The request reached the server after its `not_after`.
    Late,
    /// The owner holds nothing (any more), or the object that was waited for is deleted.
    Gone,
    /// Another owner holds; ask again after this number of ms, if it is known.
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

    #[test]
    fn a_message_that_is_no_number_is_a_wake_for_one() {
        assert_eq!(Heard::free(b"3"), Heard::Free(3));
        for odd in [&b"0"[..], b"", b"-1", b"x", b"1.5"] {
            assert_eq!(Heard::free(odd), Heard::Free(1), "{odd:?}");
        }
    }
}
