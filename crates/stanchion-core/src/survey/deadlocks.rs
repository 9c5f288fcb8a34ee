//! Deadlocks across names and processes: found in what the processes tell, and confirmed by what they tell next.
//!
//! An acquire is not tied to what else its caller holds. What ties them is the actor: an explicit owner, by its user's word, or the task
//! that acquired, which is a guess.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use super::graph::{self, Need};
use super::{Survey, SurveyedClient, SurveyedHold, SurveyedWait, text};
use crate::client::Client;
use crate::error::QueryError;
use crate::millis::as_millis;

/// The time between the two looks of [`Client::deadlocks`]: within it each process that lives has told anew.
const APART: Duration = Duration::from_millis(11_500);

/// Certainty that those who wait, wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Certainty {
    /// Every actor is an explicit owner, and every name has one holder or is read by known ones.
    Certain,
    /// A task was taken for an actor, though its guards may have been moved, or it does several things at once; or permits are waited
    /// for, of which others may hold some.
    Suspected,
}

/// A deadlock: nobody in it goes on unless somebody gives up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Deadlock {
    /// Certainty.
    pub certainty: Certainty,
    /// The time after which it ends by itself, because a call gives up or a lease without renewal ends. `None`: never.
    #[serde(rename = "until_ms", serialize_with = "as_millis")]
    pub until: Option<Duration>,
    /// The waits of which it is made.
    pub edges: Vec<DeadlockEdge>,
}

/// One waits for what another holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadlockEdge {
    /// The client that waits.
    #[serde(serialize_with = "text")]
    pub waiter: Uuid,
    /// The name of its application.
    pub waiter_app: String,
    /// Its wait.
    pub wait: SurveyedWait,
    /// The client that holds.
    #[serde(serialize_with = "text")]
    pub holder: Uuid,
    /// The name of its application.
    pub holder_app: String,
    /// The hold that is in the way.
    pub hold: SurveyedHold,
}

impl Client {
    /// Looks for deadlocks: calls in one or several processes that wait for each other for ever.
    ///
    /// Takes [surveys](Client::survey) some 12 s apart, and returns what is the same in both: the same calls wait for the same holds,
    /// and every process has told so anew in between. So what is returned existed when the first was taken.
    ///
    /// Not found: what waits for less than a second, what passes through a lock of something else (a row in a database), through
    /// Redisson's clients or through clients that tell nothing, and readers that wait behind a writer for each other's lock.
    ///
    /// # Errors
    /// [`QueryError`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn deadlocks(&self) -> Result<Vec<Deadlock>, QueryError> {
        let before = self.survey().await?;
        if before.deadlocks().is_empty() {
            return Ok(Vec::new());
        }
        let began = self.now();
        self.core().runner.sleep(APART).await;
        let after = self.survey().await?;
        let between = self.now().since(began);
        Ok(after.confirmed(&before, between))
    }
}

/// One hold or wait of a survey, with its client.
type Place<'a, T> = (&'a SurveyedClient, &'a T);

/// A hold with the number of its actor; `None`: nobody known, who will leave some day.
type Held<'a> = (Option<usize>, Place<'a, SurveyedHold>);

/// One who acts: an explicit owner is the same actor whichever client it acquires with, a task's number is one of its process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who<'a> {
    Owner(&'a str),
    Task(Uuid, &'a str),
}

impl<'a> Who<'a> {
    fn of(client: &SurveyedClient, actor: Option<&'a str>) -> Option<Self> {
        let actor = actor?;
        Some(if actor.starts_with('o') {
            Self::Owner(actor)
        } else {
            Self::Task(client.client, actor)
        })
    }
}

/// Kinds that exclude each other: a plain, a fair and a multi-lock of one name, and a job, are one lock.
fn family(kind: &str) -> &str {
    match kind {
        "lock" | "fair lock" | "multilock" | "job" => "lock",
        "rwlock_read" | "rwlock_write" => "rwlock",
        other => other,
    }
}

fn has_permits(kind: &str) -> bool {
    matches!(kind, "semaphore" | "leased_semaphore")
}

/// Returns whether a hold of this kind is in the way of a wait of that kind, for one name.
fn is_in_the_way(hold: &str, wait: &str) -> bool {
    !(hold == "rwlock_read" && wait == "rwlock_read")
}

impl Survey {
    /// Returns the deadlocks in what this survey tells. Its parts were told within some 10 s of each other and not at one moment, so a
    /// deadlock may have ended, or never have been: [`Client::deadlocks`] looks twice.
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        let graph = Graph::of(self);
        let certain = graph.find(Certainty::Certain);
        let mut found = certain.clone();
        // Those with guesses, but for what is certain without them.
        for deadlock in graph.find(Certainty::Suspected) {
            let known = |edge: &DeadlockEdge| certain.iter().any(|it| it.edges.contains(edge));
            if !deadlock.edges.iter().any(known) {
                found.push(deadlock);
            }
        }
        found
    }

    /// Returns the deadlocks that were there in `before` already, if all of their processes have told anew in the time `between`.
    fn confirmed(&self, before: &Self, between: Duration) -> Vec<Deadlock> {
        let old = before.deadlocks();
        let same = |edge: &DeadlockEdge| {
            let is_old = |it: &DeadlockEdge| {
                (it.waiter, it.wait.began, &it.wait.name)
                    == (edge.waiter, edge.wait.began, &edge.wait.name)
                    && (&it.hold.owner, it.hold.token) == (&edge.hold.owner, edge.hold.token)
            };
            let told_anew = |id: Uuid| {
                let client = self.clients.iter().find(|it| it.client == id);
                client.is_some_and(|it| it.age < between)
            };
            old.iter().flat_map(|it| &it.edges).any(is_old)
                && told_anew(edge.waiter)
                && told_anew(edge.holder)
        };
        let mut found = self.deadlocks();
        found.retain(|deadlock| deadlock.edges.iter().all(same));
        found
    }
}

/// The waits of a survey whose actors are known, each with the holds in its way.
struct Graph<'a> {
    actors: usize,
    waits: Vec<Edges<'a>>,
}

struct Edges<'a> {
    actor: usize,
    certain: bool,
    wait: Place<'a, SurveyedWait>,
    /// The holds in its way.
    holds: Vec<Held<'a>>,
}

impl<'a> Graph<'a> {
    fn of(survey: &'a Survey) -> Self {
        let mut numbers: HashMap<Who<'a>, usize> = HashMap::new();
        let mut number = |who: Who<'a>| {
            let next = numbers.len();
            *numbers.entry(who).or_insert(next)
        };
        let mut held: HashMap<(&str, &[u8]), Vec<Held<'a>>> = HashMap::new();
        for client in &survey.clients {
            for hold in &client.holds {
                let actor = Who::of(client, hold.actor.as_deref()).map(&mut number);
                let key = (family(&hold.kind), hold.name.as_bytes());
                held.entry(key).or_default().push((actor, (client, hold)));
            }
        }
        let mut waits = Vec::new();
        for client in &survey.clients {
            for wait in &client.waits {
                let Some(who) = Who::of(client, wait.actor.as_deref()) else {
                    continue;
                };
                let certain = matches!(who, Who::Owner(_)) && !has_permits(&wait.kind);
                let key = (family(&wait.kind), wait.name.as_bytes());
                let holds = held.get(&key).map(Vec::as_slice).unwrap_or_default();
                waits.push(Edges {
                    actor: number(who),
                    certain,
                    wait: (client, wait),
                    holds: holds
                        .iter()
                        .filter(|(_, (_, hold))| is_in_the_way(&hold.kind, &wait.kind))
                        .copied()
                        .collect(),
                });
            }
        }
        Self {
            actors: numbers.len(),
            waits,
        }
    }

    /// The need of a wait. `lasting`: what ends by itself does not count.
    fn need(&self, edges: &Edges<'_>, sure: bool, lasting: bool) -> Need {
        let (_, wait) = edges.wait;
        let ends = lasting && wait.gives_up_in.is_some() || sure && !edges.certain;
        let part = |hold: &SurveyedHold| match has_permits(&hold.kind) {
            true => u64::from(hold.count),
            false => 1,
        };
        let stays = |(actor, (_, hold)): &Held<'_>| {
            let leaves = lasting && hold.ends_in.is_some();
            actor.filter(|_| !leaves).map(|actor| (actor, part(hold)))
        };
        let all: u64 = edges.holds.iter().map(|(_, (_, hold))| part(hold)).sum();
        let blockers: Vec<(usize, u64)> = edges.holds.iter().filter_map(stays).collect();
        // Those whose actor is not known will leave.
        let left = all - blockers.iter().map(|(_, part)| part).sum::<u64>();
        let wanted = match has_permits(&wait.kind) {
            true => u64::from(wait.wanted).min(all),
            false => all,
        };
        Need {
            actor: edges.actor,
            blockers,
            wanted: if ends { 0 } else { wanted.saturating_sub(left) },
        }
    }

    fn find(&self, certainty: Certainty) -> Vec<Deadlock> {
        let sure = certainty == Certainty::Certain;
        let needs = |lasting| -> Vec<Need> {
            let need = |edges| self.need(edges, sure, lasting);
            self.waits.iter().map(need).collect()
        };
        let all = needs(false);
        let knots = graph::knots(&graph::stuck(self.actors, &all), &all);
        let for_ever = graph::stuck(self.actors, &needs(true));
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
            let (waiter, wait) = edges.wait;
            let ends = |deadlock: &mut Deadlock, end: Option<Duration>| {
                if !for_ever[edges.actor]
                    && let Some(end) = end
                {
                    deadlock.until = Some(deadlock.until.map_or(end, |until| until.min(end)));
                }
            };
            ends(deadlock, wait.gives_up_in);
            for (actor, (holder, hold)) in &edges.holds {
                if actor.is_none_or(|actor| knots[actor] != Some(knot)) {
                    continue;
                }
                ends(deadlock, hold.ends_in);
                deadlock.edges.push(DeadlockEdge {
                    waiter: waiter.client,
                    waiter_app: waiter.app.clone(),
                    wait: wait.clone(),
                    holder: holder.client,
                    holder_app: holder.app.clone(),
                    hold: (*hold).clone(),
                });
            }
        }
        found.into_values().collect()
    }
}
