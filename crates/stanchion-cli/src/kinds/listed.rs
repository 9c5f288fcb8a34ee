//! The kinds of this folder in lists of names.

use stanchion::Client;

use super::Facts;
use crate::entry::Entry;
use crate::holder::HolderSeen;
use crate::look::Kind;
use crate::output;
use crate::people::People;
use crate::trouble::Trouble;

impl Entry {
    /// Adds the facts of a kind of the folder `kinds`.
    pub(crate) fn add_facts(&mut self, facts: &Facts, people: &People) {
        self.kind = Some(facts.kind);
        self.owners = facts.holders.iter().map(|it| it.owner.clone()).collect();
        self.owners.sort_unstable();
        self.holders = facts.holders.len() as u64;
        self.held = self.holders > 0;
        self.waiting = facts.waiting;
        self.state.clone_from(&facts.brief);
        // The facts describe the current hold; the findings of the scan may be older.
        let of_holds = |trouble: &Trouble| matches!(trouble, Trouble::NoTtl | Trouble::HolderGone);
        self.trouble.retain(|trouble| !of_holds(trouble));
        self.holder = None;
        let Some(held) = facts.holders.first() else {
            return;
        };
        let holder = HolderSeen::new(&held.owner, held.count.into(), people);
        let since = held.since.or_else(|| people.held(&held.owner));
        self.held_ms = since.map(output::whole_millis);
        self.lease_ms = held.left.map(output::whole_millis);
        if held.left.is_none() {
            self.trouble.push(Trouble::NoTtl);
        }
        if holder.is_gone() {
            self.trouble.push(Trouble::HolderGone);
        }
        self.holder = Some(holder);
    }

    /// Returns the name without the prefix, if its status must be read because the scan has not found all of it. A name that cannot be
    /// read is marked with a trouble.
    pub(crate) fn question(&mut self, client: &Client, prefix: &str) -> Option<Vec<u8>> {
        let asks = match self.kind? {
            Kind::Semaphore
            | Kind::LeasedSemaphore
            | Kind::Election
            | Kind::RateLimiter
            | Kind::Barrier
            | Kind::DoubleBarrier => true,
            // There may be many jobs that do not run, and such jobs are not listed.
            Kind::Job => self.held,
            Kind::Lock | Kind::Fair | Kind::Rwlock | Kind::Latch | Kind::TokenBucket => false,
        };
        if !asks {
            return None;
        }
        let given = self.key.strip_prefix(prefix.as_bytes())?.to_vec();
        if let Err(error) = client.name(&given) {
            self.trouble.push(Trouble::Unusable(error.rule.to_string()));
            return None;
        }
        Some(given)
    }

    /// Returns whether it is of a kind of the folder `kinds`.
    pub(crate) fn is_told(&self) -> bool {
        let kinds = [
            Kind::Election,
            Kind::Job,
            Kind::RateLimiter,
            Kind::TokenBucket,
            Kind::Barrier,
            Kind::DoubleBarrier,
        ];
        self.kind.is_some_and(|kind| kinds.contains(&kind))
    }
}
