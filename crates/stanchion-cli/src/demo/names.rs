//! The names that the workers contend for, as `top` shows them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use stanchion::Client;

use super::meter::CommandMeter;
use super::primitive::Primitive;
use super::{LETTERS, PREFIX};
use crate::entry::Entry;
use crate::exit::Failure;
use crate::ls::{Heard, heard_of, look_at};
use crate::people::People;

/// Reads the holders and waiters of the names. Holds and waits as short as these are not published on the server, so the local state of
/// each client is used instead.
#[derive(Debug)]
pub(super) struct Names {
    /// The clients, each of which simulates a process. For a RedLock, the clients of its first server.
    clients: Vec<Client>,
    primitive: Primitive,
    /// The number of names that stay; a latch has a new one in each round.
    fixed: u16,
    /// The names looked at so far: commands that are not the workers'.
    looked: AtomicU64,
}

impl Names {
    pub(super) fn new(primitive: Primitive, names: u16, clients: &[Vec<Client>]) -> Self {
        let fixed = if primitive == Primitive::Latch {
            0
        } else {
            names
        };
        Self {
            clients: clients.iter().map(|servers| servers[0].clone()).collect(),
            primitive,
            fixed,
            looked: AtomicU64::new(0),
        }
    }

    /// Returns an entry for each name, in order.
    pub(super) async fn look(&self) -> Result<Vec<Entry>, Failure> {
        let called = LETTERS.map(|letter| format!("client {letter}"));
        let people = People::here(self.clients.iter().zip(called));
        let mut names = people
            .survey
            .as_ref()
            .map_or_else(BTreeMap::new, |told| heard_of(told, "*"));
        for number in 1..=self.fixed {
            let name = format!("{PREFIX}{}-{number}", self.primitive.noun());
            names.entry(name.into_bytes()).or_default().kind = Some(self.primitive.kind());
        }
        self.ask(names, people).await
    }

    async fn ask(
        &self,
        names: BTreeMap<Vec<u8>, Heard>,
        people: People,
    ) -> Result<Vec<Entry>, Failure> {
        let many = names.len() as u64;
        self.looked.fetch_add(many, Ordering::Relaxed);
        let looked = look_at(&self.clients[0], names, PREFIX, people).await?;
        let mut entries = looked.entries;
        for entry in &mut entries {
            entry.key.drain(..PREFIX.len());
        }
        // As numbers: 2 before 10.
        entries.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
        Ok(entries)
    }

    /// Measures the commands of one poll of one name, while no other client sends requests.
    pub(super) async fn cost(&self, meter: &CommandMeter) -> Result<u64, Failure> {
        let some = || {
            let mut names = BTreeMap::new();
            let heard: &mut Heard = names
                .entry(format!("{PREFIX}cost").into_bytes())
                .or_default();
            heard.kind = Some(self.primitive.kind());
            names
        };
        // The first poll loads the scripts into the server.
        self.ask(some(), People::default()).await?;
        let before = meter.commands();
        self.ask(some(), People::default()).await?;
        let cost = meter.commands() - before;
        self.looked.store(0, Ordering::Relaxed);
        Ok(cost)
    }

    /// The number of names looked at so far.
    pub(super) fn looked(&self) -> u64 {
        self.looked.load(Ordering::Relaxed)
    }
}
