//! Survey of this process, without the network.

use std::collections::HashMap;
use std::time::Duration;

use super::{SurveyedClient, SurveyedHold, SurveyedName, SurveyedWait};
use crate::actor::ActorId;
use crate::client::Client;
use crate::description::{Sharing, Subject, Synchronizer, Tenure};
use crate::hold::state::HoldState;
use crate::options::OnDeadlock;
use crate::shared::Core;
use crate::waiting::Waiting;
use stanchion_transport::Moment;

/// The waits of one queue: their number, and the start of the longest.
type Behind = (usize, Moment);

impl Client {
    /// Returns the current holds and waits of this client, without network requests: for a debug page, a health check, or a log line when
    /// something hangs.
    ///
    /// Locks each queue for a short time, one after the other, so this is not a snapshot of one moment. The cost grows with the number of holds
    /// and waits.
    ///
    /// ```
    /// # use stanchion_core::Client;
    /// # async fn example(client: &Client) {
    /// for hold in client.local_survey().holds {
    ///     println!("{} for {:?}, {} wait here", hold.name, hold.held, hold.waiters);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn local_survey(&self) -> SurveyedClient {
        look_now(self.core())
    }
}

/// Reads all holds and waits of this process.
pub(super) fn look_now(core: &Core) -> SurveyedClient {
    look(core, core.clock.now(), usize::MAX, usize::MAX)
}

/// Reads the oldest holds and waits of this process, at most so many of each. Durations count until or since `now`.
pub(super) fn look(
    core: &Core,
    now: Moment,
    most_holds: usize,
    most_waits: usize,
) -> SurveyedClient {
    let mut waits = Vec::new();
    let mut more_waits = 0;
    let mut behind: HashMap<Subject, Behind> = HashMap::new();
    core.entries.survey(most_waits, |name, waiting, rest| {
        more_waits += rest;
        if let Some(first) = waiting.first() {
            let longest = waiting.iter().map(|it| it.began).min().unwrap_or(now);
            let subject = Subject::named(&*first.sync, name);
            behind.insert(subject, (waiting.len() + rest, longest));
        }
        waits.extend(waiting.into_iter().map(|it| (name.clone(), it)));
    });
    // The same order each time: otherwise the text of an unchanged record would differ.
    waits.sort_by(|(a, at), (b, bt)| (at.began, a.as_bytes()).cmp(&(bt.began, b.as_bytes())));
    more_waits += waits.len().saturating_sub(most_waits);
    waits.truncate(most_waits);
    let mut holds = core.timetable.holds();
    holds.retain(|hold| {
        hold.sync.tenure() != Tenure::Nothing && hold.is_held() && !hold.is_of_a_wait()
    });
    holds.sort_by(|a, b| {
        let number = |it: &HoldState| it.owner.as_str().len();
        let (a, b) = (&**a, &**b);
        (a.began(), number(a), a.owner.as_str()).cmp(&(b.began(), number(b), b.owner.as_str()))
    });
    // Granted, but for a moment in the future: the caller still waits.
    let (mut booked, mut holds): (Vec<_>, Vec<_>) =
        (holds.into_iter()).partition(|hold| hold.dates().0 > now);
    let room = most_waits.saturating_sub(waits.len());
    more_waits += booked.len().saturating_sub(room);
    booked.truncate(room);
    let more_holds = holds.len().saturating_sub(most_holds);
    holds.truncate(most_holds);
    let held = holds.iter().flat_map(|hold| held(hold, &behind, now));
    SurveyedClient {
        client: core.id,
        app: core.config.app(),
        host: core.presence.host(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        connected: now.since(core.presence.since()),
        age: Duration::ZERO,
        holds: held.collect(),
        waits: (waits.into_iter())
            .map(|(name, it)| wait(core, name.as_bytes(), &it, now))
            .chain(booked.iter().map(|hold| booking(hold, now)))
            .collect(),
        more_holds,
        more_waits,
    }
}

fn held(hold: &HoldState, behind: &HashMap<Subject, Behind>, now: Moment) -> Vec<SurveyedHold> {
    let of_name = |name| {
        let waits = behind.get(&Subject::named(&*hold.sync, name));
        let until = hold.valid_until();
        SurveyedHold {
            name: SurveyedName::new(name.as_bytes()),
            kind: hold.sync.kind().name().to_owned(),
            owner: hold.owner.to_string(),
            count: match hold.sync.sharing() {
                Sharing::Permits(permits) => permits,
                // Unknown while an operation changes the count. The hold has at least one guard then.
                _ => hold.guards().unwrap_or(1),
            },
            token: hold.token(),
            held: now.since(hold.began()),
            lease_left: (until != Moment::FAR).then(|| until.since(now)),
            ends_in: hold.ends().map(|end| end.since(now)),
            waiters: waits.map_or(0, |(count, _)| *count),
            longest_wait: waits.map(|(_, began)| now.since(*began)),
            actor: hold.terms.actor.map(|actor| actor.to_string()),
            label: label(&hold.core, hold.terms.actor),
            holders: hold.sync.holders(),
        }
    };
    hold.sync.names().into_iter().map(of_name).collect()
}

/// Returns the wait for the start of a booking.
fn booking(hold: &HoldState, now: Moment) -> SurveyedWait {
    SurveyedWait {
        name: SurveyedName::new(hold.sync.name().as_bytes()),
        kind: hold.sync.kind().name().to_owned(),
        owner: hold.owner.to_string(),
        wanted: wanted(&*hold.sync),
        waiting: now.since(hold.began()),
        gives_up_in: None,
        actor: hold.terms.actor.map(|actor| actor.to_string()),
        label: label(&hold.core, hold.terms.actor),
        fails_on_deadlock: false,
        holders: hold.sync.holders(),
        began: hold.began().micros(),
    }
}

fn wait(core: &Core, name: &[u8], waiting: &Waiting, now: Moment) -> SurveyedWait {
    SurveyedWait {
        name: SurveyedName::new(name),
        kind: waiting.sync.kind().name().to_owned(),
        owner: waiting.owner.to_string(),
        wanted: wanted(&*waiting.sync),
        waiting: now.since(waiting.began),
        gives_up_in: (waiting.deadline != Moment::FAR).then(|| waiting.deadline.since(now)),
        actor: waiting.actor.map(|actor| actor.to_string()),
        label: label(core, waiting.actor),
        fails_on_deadlock: waiting.on_deadlock == OnDeadlock::Fail,
        holders: waiting.sync.holders(),
        began: waiting.began.micros(),
    }
}

fn label(core: &Core, actor: Option<ActorId>) -> Option<String> {
    core.labels.of(actor?)
}

fn wanted(sync: &dyn Synchronizer) -> u32 {
    match sync.sharing() {
        Sharing::Permits(permits) => permits,
        _ => 1,
    }
}
