//! What the tasks of a process want, if they differ.

use stanchion_explorer::Micros;

use super::line::Subscribed;
use super::model::moment;
use super::{Client, Hold, Kind};

impl<K: Kind> Client<K> {
    /// The tasks of this process acquire these, in this order, each in its own time. The client is subscribed to all names already.
    pub(crate) fn with_tasks_for(self, others: &[K]) -> Self {
        let mut client = self.with_tasks(others.len());
        client.acquires = u8::try_from(others.len()).unwrap_or(u8::MAX);
        client.others = others.to_vec();
        for line in &mut client.lines {
            line.subscribed = Subscribed::Confirmed;
        }
        client
    }

    /// The client subscribes at its first refusal.
    pub(crate) fn unsubscribe(&mut self) {
        for line in &mut self.lines {
            line.subscribed = Subscribed::No;
        }
    }

    /// What `owner` acquires or holds.
    pub(super) fn kind_of(&self, owner: u64) -> K {
        self.wants.get(&owner).copied().unwrap_or(self.kind)
    }

    /// Records what `owner` acquires.
    pub(super) fn set_kind(&mut self, owner: u64, kind: K) {
        if kind != self.kind {
            self.wants.insert(owner, kind);
        } else {
            self.wants.remove(&owner);
        }
    }

    /// What the waiters wait for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = K> {
        self.waiters.iter().map(|it| it.kind)
    }

    /// What the user holds, each with its owner.
    pub(crate) fn holdings(&self, now: Micros) -> impl Iterator<Item = (K, String)> {
        let held = move |hold: &&Hold| hold.is_taken() && moment(now) < hold.life.valid_until();
        let holds = self.holds.iter().filter(held);
        holds.map(|it| (self.kind_of(it.owner), self.wire(it.owner)))
    }
}
