//! Survey of this process, without the network.

use std::collections::HashMap;
use std::time::Duration;

use stanchion_core::primitive::{ActorId, Handle, HeldHere, Subject, Synchronizer, Waiting};
use stanchion_core::{OnDeadlock, SurveyedName};
use stanchion_transport::Moment;

use crate::{Site, SurveyedClient, SurveyedHold, SurveyedWait};

/// The waits of one queue: their number, and the start of the longest.
type Behind = (usize, Moment);

/// Returns the current holds and waits of a client, without network requests: see `Client::local_survey`.
#[must_use]
pub fn local_survey(handle: &Handle) -> SurveyedClient {
    look_now(&Site::of(handle))
}

/// Reads all holds and waits of this process.
pub(crate) fn look_now(site: &Site) -> SurveyedClient {
    look(site, site.now(), usize::MAX, usize::MAX)
}

/// Reads the oldest holds and waits of this process, at most so many of each. Durations count until or since `now`.
pub(crate) fn look(
    site: &Site,
    now: Moment,
    most_holds: usize,
    most_waits: usize,
) -> SurveyedClient {
    let mut waits = Vec::new();
    let mut more_waits = 0;
    let mut behind: HashMap<Subject, Behind> = HashMap::new();
    site.waits(most_waits, |name, waiting, rest| {
        more_waits += rest;
        if let Some(first) = waiting.first() {
            let longest = waiting.iter().map(|it| it.began).min().unwrap_or(now);
            let subject = Subject::named(&*first.sync, name);
            // Several queues may wait for one name.
            let (count, since) = behind.entry(subject).or_insert((0, longest));
            *count += waiting.len() + rest;
            *since = longest.min(*since);
        }
        waits.extend(waiting.into_iter().map(|it| (name.clone(), it)));
    });
    // The same order each time: otherwise the text of an unchanged record would differ.
    waits.sort_by(|(a, at), (b, bt)| (at.began, a.as_bytes()).cmp(&(bt.began, b.as_bytes())));
    more_waits += waits.len().saturating_sub(most_waits);
    waits.truncate(most_waits);
    let mut holds = site.holds();
    holds.retain(|hold| hold.sync().hold().is_some() && hold.is_held() && !hold.is_of_a_wait());
    holds.sort_by(|a, b| {
        let number = |it: &HeldHere| it.owner().as_str().len();
        (a.began(), number(a), a.owner().as_str()).cmp(&(b.began(), number(b), b.owner().as_str()))
    });
    // Granted, but for a moment in the future: the caller still waits.
    let (mut booked, mut holds): (Vec<_>, Vec<_>) =
        (holds.into_iter()).partition(|hold| hold.due() > now);
    let room = most_waits.saturating_sub(waits.len());
    more_waits += booked.len().saturating_sub(room);
    booked.truncate(room);
    let more_holds = holds.len().saturating_sub(most_holds);
    holds.truncate(most_holds);
    let held = holds.iter().flat_map(|hold| held(site, hold, &behind, now));
    SurveyedClient {
        client: site.id(),
        app: site.config().app(),
        host: stanchion_transport::host().map(str::to_owned),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        connected: now.since(site.surveys.announcer.since().unwrap_or(now)),
        age: Duration::ZERO,
        holds: held.collect(),
        waits: (waits.into_iter())
            .map(|(name, it)| wait(site, name.as_bytes(), &it, now))
            .chain(booked.iter().map(|hold| booking(site, hold, now)))
            .collect(),
        more_holds,
        more_waits,
    }
}

fn held(
    site: &Site,
    hold: &HeldHere,
    behind: &HashMap<Subject, Behind>,
    now: Moment,
) -> Vec<SurveyedHold> {
    let of_name = |name| {
        let waits = behind.get(&Subject::named(&**hold.sync(), name));
        let until = hold.valid_until();
        SurveyedHold {
            name: SurveyedName::new(name.as_bytes()),
            kind: hold.sync().kind().name().to_owned(),
            owner: hold.owner().to_string(),
            count: match hold.sync().sharing().permits() {
                Some(permits) => permits,
                // Unknown while an operation changes the count. The hold has at least one guard then.
                None => hold.guards().unwrap_or(1),
            },
            token: hold.token(),
            held: now.since(hold.began()),
            lease_left: (until != Moment::FAR).then(|| until.since(now)),
            ends_in: hold.ends().map(|end| end.since(now)),
            waiters: waits.map_or(0, |(count, _)| *count),
            longest_wait: waits.map(|(_, began)| now.since(*began)),
            actor: hold.actor().map(|actor| actor.to_string()),
            label: label(site, hold.actor()),
            holders: hold.sync().holders(),
        }
    };
    hold.sync().names().iter().map(of_name).collect()
}

/// Returns the wait for the start of a booking.
fn booking(site: &Site, hold: &HeldHere, now: Moment) -> SurveyedWait {
    SurveyedWait {
        name: SurveyedName::new(hold.sync().name().as_bytes()),
        kind: hold.sync().kind().name().to_owned(),
        owner: hold.owner().to_string(),
        wanted: wanted(&**hold.sync()),
        waiting: now.since(hold.began()),
        gives_up_in: None,
        actor: hold.actor().map(|actor| actor.to_string()),
        label: label(site, hold.actor()),
        fails_on_deadlock: false,
        holders: hold.sync().holders(),
        began: hold.began().micros(),
    }
}

fn wait(site: &Site, name: &[u8], waiting: &Waiting, now: Moment) -> SurveyedWait {
    SurveyedWait {
        name: SurveyedName::new(name),
        kind: waiting.sync.kind().name().to_owned(),
        owner: waiting.owner.to_string(),
        wanted: wanted(&*waiting.sync),
        waiting: now.since(waiting.began),
        gives_up_in: (waiting.deadline != Moment::FAR).then(|| waiting.deadline.since(now)),
        actor: waiting.actor.map(|actor| actor.to_string()),
        label: label(site, waiting.actor),
        fails_on_deadlock: waiting.on_deadlock == OnDeadlock::Fail,
        holders: waiting.sync.holders(),
        began: waiting.began.micros(),
    }
}

fn label(site: &Site, actor: Option<ActorId>) -> Option<String> {
    site.surveys.labels.of(actor?)
}

fn wanted(sync: &dyn Synchronizer) -> u32 {
    sync.sharing().permits().unwrap_or(1)
}
