//! The properties of a synchronizer that never change.

use std::slice;
use std::sync::Arc;

use crate::holders::Holders;
use crate::name::Name;

/// The kind of a synchronizer. Waiters of one kind may be handed each other's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    name: &'static str,
    family: &'static str,
    plain: bool,
}

impl Kind {
    /// Creates a kind with a family of its own. `name` is the label of its metrics, such as `lock`.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            family: name,
            plain: false,
        }
    }

    /// Puts the kind into a family. Synchronizers of one family and name lock the same object: their waiters share a queue, and an owner has one
    /// seat there. Example: the two sides of a read-write lock.
    #[must_use]
    pub const fn of_family(mut self, family: &'static str) -> Self {
        self.family = family;
        self
    }

    /// Declares that a hold is one field of the hash `name` and nothing else, and that a client may acquire if this key does not exist. A multi-lock
    /// acquires several such locks in one script.
    #[must_use]
    pub const fn plain(mut self) -> Self {
        self.plain = true;
        self
    }

    /// The metrics label of this kind.
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

/// The way in which holders share, which also decides how the waiters of one process take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// One holder at a time. Only the first waiter sends requests.
    Exclusive,
    /// Any number of holders of this kind while no exclusive one exists. A grant to one waiter lets the waiters behind it send requests.
    Together,
    /// The given number of permits, out of a limited total. A message contains the number of free permits.
    Permits(u32),
    /// No holders. An event that one waiter observes has occurred for all of them.
    Event,
    /// One holder at a time, from a queue that the server keeps. Every waiter sends its own request, and grants arrive as messages.
    Queued,
}

impl Sharing {
    /// Returns whether there is at most one holder.
    #[must_use]
    pub const fn has_one_holder(self) -> bool {
        matches!(self, Self::Exclusive | Self::Queued)
    }

    /// Returns whether this is the hold of a reader.
    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Together)
    }

    /// The number of permits.
    #[must_use]
    pub const fn permits(self) -> Option<u32> {
        match self {
            Self::Permits(count) => Some(count),
            Self::Exclusive | Self::Together | Self::Event | Self::Queued => None,
        }
    }

    /// Returns whether each waiter has an entry in the queue on the server. Otherwise a process has one for all its waiters.
    pub(crate) const fn keeps_each_waiter(self) -> bool {
        matches!(self, Self::Queued)
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

/// The properties of a synchronizer that never change.
#[derive(Clone, Debug)]
pub struct About {
    /// The kind of synchronizer.
    pub kind: Kind,
    /// The name that is synchronized on.
    pub name: Name,
    /// The names of a hold that may cover several; empty for a hold of one name. An entry in a queue is then for all of them.
    pub names: Arc<[Name]>,
    /// The channel on which releases are published. Several names may share one, as `x` and `{x}` do.
    pub channel: Arc<[u8]>,
    /// The way in which its holders share.
    pub sharing: Sharing,
    /// True if a hold has a lease. Otherwise only a release ends it.
    pub is_leased: bool,
    /// The key of the counter that its fencing tokens come from.
    pub fence: Option<Arc<[u8]>>,
    /// The way to read the current holders from the server, unless its sharing says it. A wait for a name with unreadable holders is in no certain
    /// deadlock.
    pub holders: Option<Holders>,
    /// The channel that notifies all holders when some of their holds were taken by force. Permits need it, because a script finds them by their ids
    /// and cannot know the holder. By default a holder is notified on the channel of its client.
    pub notices: Option<Arc<[u8]>>,
    /// True if the caller gets a grant even if its reply took longer than the lease. Needed if a grant carries lasting information, such as
    /// an arrival that has completed a round. The caller finds the hold lost, and releases it before it retries. For other primitives the core
    /// releases and retries concurrently, with a new owner.
    pub keeps_late_grants: bool,
    /// True if a refused request of a waiting caller leaves a sign on the server, without an entry in a queue. The core
    /// [abandons](crate::primitive::Holdable::abandon) the request when the waiter leaves.
    pub leaves_sign: bool,
}

impl About {
    /// Makes the properties of an exclusive hold with a lease.
    #[must_use]
    pub fn new(kind: Kind, name: Name, channel: impl Into<Arc<[u8]>>) -> Self {
        Self {
            kind,
            name,
            names: Arc::default(),
            channel: channel.into(),
            sharing: Sharing::Exclusive,
            is_leased: true,
            fence: None,
            holders: None,
            notices: None,
            keeps_late_grants: false,
            leaves_sign: false,
        }
    }

    /// The key of the counter for the scripts. Without tokens it is the name itself, which they read as "mint none".
    #[must_use]
    pub fn fence_key(&self) -> &[u8] {
        self.fence.as_deref().unwrap_or(self.name.as_bytes())
    }

    /// All names that a hold covers. Deadlock detection and the hand-off read them.
    pub(crate) fn names(&self) -> &[Name] {
        match &*self.names {
            [] => slice::from_ref(&self.name),
            names => names,
        }
    }

    /// Returns whether a hold consists of several entries on the server, some of which may remain when others are gone.
    pub(crate) fn in_parts(&self) -> bool {
        self.names.len() > 1 || matches!(self.sharing, Sharing::Permits(2..))
    }

    pub(crate) fn holders(&self) -> Holders {
        match (&self.holders, self.sharing) {
            (Some(holders), _) => holders.clone(),
            (None, Sharing::Permits(_)) => Holders::Permits,
            _ if self.kind.is_plain() => Holders::One,
            _ => Holders::Untold,
        }
    }

    /// Returns whether an entry in the queue on the server is valid for every synchronizer of this kind, name and counter.
    pub(crate) fn has_common_entry(&self) -> bool {
        self.names.is_empty() && !self.sharing.keeps_each_waiter()
    }
}
