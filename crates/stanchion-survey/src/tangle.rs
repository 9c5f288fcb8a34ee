//! The graph of a scene: the blockers of each waiting call.
//!
//! An acquire is not tied to the other holds of its caller by its owner. The actor ties them: a scope or an explicit owner, which the user
//! declares, or the task that acquired, which is a guess. For Redisson, the actor is the owner: an instance and a thread.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use uuid::Uuid;

use stanchion_core::primitive::{ActorId, Holders};
use stanchion_core::{DeadlockEdge, DeadlockParty, InTheWay, SurveyedName, client_of};

use crate::deadlocks::{self, Certainty, Deadlock};
use crate::graph::{self, Need};
use crate::holders::{Held, Seen, tells};
use crate::{SurveyedClient, SurveyedHold, SurveyedWait};

/// A hold or a wait, with the client that reported it.
type Reported<'a, T> = (&'a SurveyedClient, &'a T);

/// An actor. A scope or an explicit owner is the same actor in all clients; the number of a task identifies it only within its process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who<'a> {
    Certain(&'a str),
    Task(Uuid, &'a str),
    /// Redisson's instance and thread.
    Foreign(&'a str),
}

impl<'a> Who<'a> {
    fn of(client: &SurveyedClient, actor: Option<&'a str>) -> Option<Self> {
        let actor = actor?;
        Some(if ActorId::is_certain_as(actor) {
            Self::Certain(actor)
        } else {
            Self::Task(client.client, actor)
        })
    }
}

/// Returns whether `owner` belongs to a client without records: Redisson's ids have another UUID version than those of this library.
pub(crate) fn is_foreign(owner: &str) -> bool {
    client_of(owner).is_some_and(|client| client.get_version_num() != 8)
}

/// A party that blocks a wait.
#[derive(Clone, Copy, Debug)]
struct Blocker<'a> {
    /// The number of its actor. `None`: the actor is unknown, and is assumed to leave some day.
    actor: Option<usize>,
    by: By<'a>,
}

#[derive(Clone, Copy, Debug)]
enum By<'a> {
    Hold(Reported<'a, SurveyedHold>),
    /// A wait that comes first.
    Wait(Reported<'a, SurveyedWait>),
    /// A party that reports nothing.
    Silent(&'a str, InTheWay),
}

impl By<'_> {
    /// Returns the amount that the blocker gives back when it leaves.
    fn part(&self) -> u64 {
        match self {
            Self::Hold((_, hold)) if hold.holders == Holders::Permits => u64::from(hold.count),
            _ => 1,
        }
    }

    /// Returns the time after which the blocker leaves without a release.
    const fn ends_in(&self) -> Option<Duration> {
        match self {
            Self::Hold((_, hold)) => hold.ends_in,
            Self::Wait((_, wait)) => wait.gives_up_in,
            Self::Silent(..) => None,
        }
    }

    fn party(&self) -> DeadlockParty {
        match self {
            Self::Hold((client, hold)) => deadlocks::holds(client, hold),
            Self::Wait((client, wait)) => deadlocks::waits(client, wait),
            Self::Silent(owner, _) => DeadlockParty::new(owner),
        }
    }

    const fn way(&self) -> InTheWay {
        match self {
            Self::Hold(_) => InTheWay::Holds,
            Self::Wait(_) => InTheWay::Ahead,
            Self::Silent(_, way) => *way,
        }
    }
}

/// A wait whose actor is known, with its blockers.
struct Edges<'a> {
    actor: usize,
    certain: bool,
    name: &'a [u8],
    /// `None` for a party that reports nothing.
    wait: Option<Reported<'a, SurveyedWait>>,
    owner: &'a str,
    blockers: Vec<Blocker<'a>>,
}

/// The waits of a scene.
pub(crate) struct Graph<'a> {
    actors: usize,
    waits: Vec<Edges<'a>>,
}

/// A name; for permits also the kind.
type Place<'a> = (Option<&'a str>, &'a [u8]);

/// The known owners and actors.
#[derive(Default)]
struct Index<'a> {
    numbers: HashMap<Who<'a>, usize>,
    holds: HashMap<&'a str, Reported<'a, SurveyedHold>>,
    by_name: HashMap<Place<'a>, Vec<Reported<'a, SurveyedHold>>>,
    waits: HashMap<&'a str, Reported<'a, SurveyedWait>>,
    /// The waits for write locks, by name.
    writers: HashMap<&'a [u8], Vec<Reported<'a, SurveyedWait>>>,
}

/// Returns the scope of exclusion: the name for locks of all kinds that are one hash, the name and the kind for permits.
fn place<'a>(kind: &'a str, holders: &Holders, name: &'a [u8]) -> Place<'a> {
    let alone = matches!(holders, Holders::Untold | Holders::Permits);
    (alone.then_some(kind), name)
}

impl<'a> Index<'a> {
    fn of(clients: &'a [SurveyedClient]) -> Self {
        let mut index = Self::default();
        for client in clients {
            for hold in &client.holds {
                // An owner is used for one hold. A hold of several names has one owner.
                index.holds.entry(&hold.owner).or_insert((client, hold));
                let place = place(&hold.kind, &hold.holders, hold.name.as_bytes());
                index.by_name.entry(place).or_default().push((client, hold));
            }
            for wait in &client.waits {
                index.waits.insert(&wait.owner, (client, wait));
                if wait.holders == Holders::Writer {
                    let name = wait.name.as_bytes();
                    index.writers.entry(name).or_default().push((client, wait));
                }
            }
        }
        index
    }

    fn number(&mut self, who: Option<Who<'a>>) -> Option<usize> {
        let next = self.numbers.len();
        Some(*self.numbers.entry(who?).or_insert(next))
    }

    fn hold(&mut self, (client, hold): Reported<'a, SurveyedHold>) -> Blocker<'a> {
        Blocker {
            actor: self.number(Who::of(client, hold.actor.as_deref())),
            by: By::Hold((client, hold)),
        }
    }

    fn wait(&mut self, (client, wait): Reported<'a, SurveyedWait>) -> Blocker<'a> {
        Blocker {
            actor: self.number(Who::of(client, wait.actor.as_deref())),
            by: By::Wait((client, wait)),
        }
    }

    fn silent(&mut self, owner: &'a str, way: InTheWay) -> Blocker<'a> {
        Blocker {
            actor: self.number(is_foreign(owner).then_some(Who::Foreign(owner))),
            by: By::Silent(owner, way),
        }
    }

    fn holder(&mut self, owner: &'a str) -> Blocker<'a> {
        match self.holds.get(owner) {
            Some(told) => self.hold(*told),
            None => self.silent(owner, InTheWay::Holds),
        }
    }

    fn ahead(&mut self, owner: &'a str) -> Blocker<'a> {
        match self.waits.get(owner) {
            Some(told) => self.wait(*told),
            None => self.silent(owner, InTheWay::Ahead),
        }
    }

    /// Returns the blockers of a wait, from the lock itself.
    fn seen(
        &mut self,
        (client, wait): Reported<'a, SurveyedWait>,
        seen: &'a Seen,
    ) -> Vec<Blocker<'a>> {
        let reads = wait.holders == Holders::Readers;
        let in_the_way = seen.holders.iter().filter(|it| !(reads && it.reads));
        let mut blockers: Vec<Blocker<'a>> = in_the_way.map(|it| self.holder(&it.owner)).collect();
        if reads && blockers.is_empty() && !seen.holders.is_empty() {
            blockers = self.writers_before((client, wait));
        }
        let queued = seen.queue.iter();
        let place = seen.queue.iter().position(|owner| *owner == wait.owner);
        // An owner that is not listed is behind all listed owners, if the queue is longer.
        let ahead = place.unwrap_or(if seen.more_queued {
            seen.queue.len()
        } else {
            0
        });
        blockers.extend(queued.take(ahead).map(|owner| self.ahead(owner)));
        blockers
    }

    /// Returns the blockers of a wait, from the records.
    fn told(&mut self, (client, wait): Reported<'a, SurveyedWait>) -> Vec<Blocker<'a>> {
        let place = place(&wait.kind, &wait.holders, wait.name.as_bytes());
        let holds = self.by_name.get(&place).cloned().unwrap_or_default();
        let reads = |holders: &Holders| *holders == Holders::Readers;
        let both_read =
            |(_, hold): &Reported<'a, SurveyedHold>| reads(&hold.holders) && reads(&wait.holders);
        let in_the_way = holds.iter().filter(|it| !both_read(it));
        let blockers: Vec<Blocker<'a>> = in_the_way.map(|it| self.hold(*it)).collect();
        if blockers.is_empty() && !holds.is_empty() {
            return self.writers_before((client, wait));
        }
        blockers
    }

    /// Returns the writers before a reader: while others read, it waits behind the writers that began to wait earlier.
    fn writers_before(&mut self, (_, wait): Reported<'a, SurveyedWait>) -> Vec<Blocker<'a>> {
        let writers = self.writers.get(wait.name.as_bytes());
        let mut before = writers.cloned().unwrap_or_default();
        before.retain(|(_, writer)| writer.waiting >= wait.waiting);
        before.into_iter().map(|it| self.wait(it)).collect()
    }
}

impl<'a> Graph<'a> {
    /// Makes the graph of the records of `clients`, with the holders of those names that were read.
    pub(crate) fn of(clients: &'a [SurveyedClient], held: &'a Held) -> Self {
        let mut index = Index::of(clients);
        let mut waits = Vec::new();
        for client in clients {
            for wait in &client.waits {
                let who = Who::of(client, wait.actor.as_deref());
                let certain = matches!(who, Some(Who::Certain(_)))
                    && !matches!(wait.holders, Holders::Untold | Holders::Permits);
                let Some(actor) = index.number(who) else {
                    continue;
                };
                let name = wait.name.as_bytes();
                let seen = held.get(name).filter(|_| tells(&wait.name, &wait.holders));
                let mut blockers = match seen {
                    Some(seen) => index.seen((client, wait), seen),
                    None => index.told((client, wait)),
                };
                // Another queue entry of the same actor does not block this wait.
                blockers.retain(|it| it.actor != Some(actor) || it.by.way() == InTheWay::Holds);
                waits.push(Edges {
                    actor,
                    certain,
                    name,
                    wait: Some((client, wait)),
                    owner: &wait.owner,
                    blockers,
                });
            }
        }
        for (name, seen) in held {
            for (place, owner) in seen.queue.iter().enumerate() {
                if !is_foreign(owner) {
                    continue;
                }
                let Some(actor) = index.number(Some(Who::Foreign(owner))) else {
                    continue;
                };
                let holders = seen.holders.iter().map(|it| index.holder(&it.owner));
                let mut blockers: Vec<Blocker<'a>> = holders.collect();
                blockers.extend(seen.queue[..place].iter().map(|it| index.ahead(it)));
                waits.push(Edges {
                    actor,
                    certain: true,
                    name,
                    wait: None,
                    owner,
                    blockers,
                });
            }
        }
        Self {
            actors: index.numbers.len(),
            waits,
        }
    }

    /// Returns the need of a wait. With `lasting`, waits and holds that end without a release do not count.
    fn need(edges: &Edges<'_>, sure: bool, lasting: bool) -> Need {
        let gives_up = edges
            .wait
            .is_some_and(|(_, wait)| wait.gives_up_in.is_some());
        let ends = lasting && gives_up || sure && !edges.certain;
        let stays = |it: &Blocker<'_>| {
            let leaves = lasting && it.by.ends_in().is_some();
            it.actor
                .filter(|_| !leaves)
                .map(|actor| (actor, it.by.part()))
        };
        let all: u64 = edges.blockers.iter().map(|it| it.by.part()).sum();
        let blockers: Vec<(usize, u64)> = edges.blockers.iter().filter_map(stays).collect();
        // Blockers whose actor is unknown are assumed to leave.
        let left = all - blockers.iter().map(|(_, part)| part).sum::<u64>();
        let wanted = match edges.wait {
            Some((_, wait)) if wait.holders == Holders::Permits => u64::from(wait.wanted).min(all),
            _ => all,
        };
        Need {
            actor: edges.actor,
            blockers,
            wanted: if ends { 0 } else { wanted.saturating_sub(left) },
        }
    }

    fn needs(&self, sure: bool, lasting: bool) -> Vec<Need> {
        let need = |edges| Self::need(edges, sure, lasting);
        self.waits.iter().map(need).collect()
    }

    fn knots(&self, needs: &[Need]) -> Vec<Option<usize>> {
        graph::knots(&graph::stuck(self.actors, needs), needs)
    }

    /// Finds the certain deadlocks, and the suspected ones in addition to these.
    pub(crate) fn deadlocks(&self) -> Vec<Deadlock> {
        let certain = self.find(Certainty::Certain);
        let mut found = certain.clone();
        // Suspected deadlocks, without those that are certain already.
        for deadlock in self.find(Certainty::Suspected) {
            let known = |edge: &DeadlockEdge| certain.iter().any(|it| it.edges.contains(edge));
            if !deadlock.edges.iter().any(known) {
                found.push(deadlock);
            }
        }
        found
    }

    fn find(&self, certainty: Certainty) -> Vec<Deadlock> {
        let sure = certainty == Certainty::Certain;
        let knots = self.knots(&self.needs(sure, false));
        let for_ever = graph::stuck(self.actors, &self.needs(sure, true));
        let mut found: BTreeMap<usize, Deadlock> = BTreeMap::new();
        for edges in &self.waits {
            let Some(knot) = knots[edges.actor] else {
                continue;
            };
            let deadlock = found.entry(knot).or_insert_with(|| Deadlock {
                certainty,
                until: None,
                edges: Vec::new(),
            });
            let mut ends = |end: Option<Duration>| {
                if !for_ever[edges.actor]
                    && let Some(end) = end
                {
                    deadlock.until = Some(deadlock.until.map_or(end, |until| until.min(end)));
                }
            };
            ends(edges.wait.and_then(|(_, wait)| wait.gives_up_in));
            for blocker in &edges.blockers {
                if blocker
                    .actor
                    .is_some_and(|actor| knots[actor] == Some(knot))
                {
                    ends(blocker.by.ends_in());
                }
            }
            deadlock.edges.extend(edges.within(&knots, knot));
        }
        found.into_values().collect()
    }

    /// Finds the certain deadlock in which `mine` is a wait that may give up. Returns the number of waits that give up before it, and the
    /// edges of the deadlock. All clients that read the same data compute the same order.
    pub(crate) fn to_give_up(
        &self,
        mine: impl Fn(&SurveyedClient, &SurveyedWait) -> bool,
    ) -> Option<(u32, Vec<DeadlockEdge>)> {
        let needs = self.needs(true, false);
        let knots = self.knots(&needs);
        let is_mine = |(client, wait): Reported<'a, SurveyedWait>| mine(client, wait);
        let own = self.waits.iter().find(|it| it.wait.is_some_and(is_mine))?;
        let knot = knots[own.actor]?;
        let mut may: Vec<Reported<'a, SurveyedWait>> = Vec::new();
        for (at, edges) in self.waits.iter().enumerate() {
            let Some((client, wait)) = edges.wait else {
                continue;
            };
            let inside = knots[edges.actor] == Some(knot);
            // Another actor must be able to continue: it is useless to end a wait that blocks no other actor.
            if inside && wait.fails_on_deadlock && edges.certain && self.helps(&needs, &knots, at) {
                may.push((client, wait));
            }
        }
        // The youngest first. `began` and the name distinguish waits of one client.
        may.sort_by_key(|(client, wait)| (wait.waiting, client.client, wait.began, &wait.name));
        let rank = may.iter().position(|it| is_mine(*it))?;
        let edges = self.waits.iter().filter(|it| knots[it.actor] == Some(knot));
        let edges = edges.flat_map(|it| it.within(&knots, knot)).collect();
        Some((u32::try_from(rank).unwrap_or(u32::MAX), edges))
    }

    /// Returns whether another actor of the same knot can continue when the wait `at` ends and its actor leaves.
    fn helps(&self, needs: &[Need], knots: &[Option<usize>], at: usize) -> bool {
        let mut without = needs.to_vec();
        let actor = without.remove(at).actor;
        let stuck = graph::stuck(self.actors, &without);
        let freed = |other: usize| other != actor && knots[other] == knots[actor] && !stuck[other];
        (0..self.actors).any(freed)
    }
}

impl Edges<'_> {
    /// Returns the edges to actors of the same knot.
    fn within(&self, knots: &[Option<usize>], knot: usize) -> Vec<DeadlockEdge> {
        let inside = |it: &&Blocker<'_>| it.actor.is_some_and(|actor| knots[actor] == Some(knot));
        let edge = |blocker: &Blocker<'_>| {
            let waiter = match self.wait {
                Some((client, wait)) => deadlocks::waits(client, wait),
                None => DeadlockParty::new(self.owner),
            };
            let name = SurveyedName::new(self.name);
            DeadlockEdge::new(name, waiter, blocker.by.party(), blocker.by.way())
        };
        self.blockers.iter().filter(inside).map(edge).collect()
    }
}
