//! `stanchion watch`: shows the events of a name.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::console::Tracked;
use stanchion::{Client, Name};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::beside;
use crate::connect::ServerArgs;
use crate::duration;
use crate::exit::{Failure, Library, SUCCESS};
use crate::holder::HolderSeen;
use crate::look::{Kind, Seen, look};
use crate::messages;
use crate::output;
use crate::people::People;
use crate::wording::{Owner, age};

/// Print what happens to a name, until Ctrl-C.
///
/// A line for each acquire and release, and when the number of waiters changes. Reads the name whenever the server reports a write to one of its keys, and every second. A change that begins and ends between two
/// reads is not seen. If the server does not report writes (the right +client|tracking is missing), the name is read ten
/// times a second.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     stopped by Ctrl-C, or after --count
  2     the command line is wrong
  69    the server cannot be reached, when it starts; later it is waited for
  78    the server or the rules refuse (rights, a name that belongs to something else, …)

Examples:
  stanchion watch nightly-report
  stanchion watch nightly-report --json | jq -c 'select(.event == \"acquired\")'
  stanchion watch nightly-report --count 2 >/dev/null && echo it has changed")]
pub(crate) struct WatchArgs {
    /// The name.
    name: String,
    /// The name's kind. Detected if not given.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// The longest time between two reads, of 3 to 6 requests each [default: 1s; 100ms where the server does not report writes]
    #[arg(long, value_name = "TIME", value_parser = duration::at_least(LEAST_PAUSE))]
    every: Option<Duration>,
    /// End after this many events. The first shows the state at the start.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print a line of JSON for each event.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The shortest pause between two looks at a server.
pub(crate) const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// The part of a status from which events are derived.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    /// Holders: owners, or ids of permits.
    holders: Vec<String>,
    waiting: Option<u64>,
    /// Free permits, or the count of a latch.
    number: Option<i64>,
}

impl State {
    fn of(seen: &Seen) -> Self {
        let (holders, number) = match seen {
            Seen::Lock(_) | Seen::Fair(_) | Seen::Rwlock(_) => (seen.owners(), None),
            Seen::Semaphore(status) => {
                let holders = status.holders.iter().map(|holder| holder.owner.clone());
                (holders.collect(), Some(status.available))
            }
            Seen::Leased(status) => {
                let holders = status.permits.iter().map(|permit| permit.id.to_string());
                (holders.collect(), Some(status.available))
            }
            Seen::Latch(count) => (Vec::new(), i64::try_from(*count).ok()),
            Seen::Told(facts) => (seen.owners(), facts.number),
            Seen::Number(number) => (Vec::new(), Some(*number)),
        };
        Self {
            holders,
            waiting: seen.waiting(),
            number,
        }
    }

    /// The events since `before`, in the order in which they must have happened.
    fn since(&self, before: &Self) -> Vec<Event> {
        let mut events = Vec::new();
        let left = before
            .holders
            .iter()
            .filter(|owner| !self.holders.contains(owner));
        events.extend(left.cloned().map(Event::Released));
        let came = self
            .holders
            .iter()
            .filter(|owner| !before.holders.contains(owner));
        events.extend(came.cloned().map(Event::Acquired));
        if self.waiting != before.waiting
            && let Some(waiting) = self.waiting
        {
            events.push(Event::Waiting(waiting));
        }
        if self.number != before.number
            && let Some(number) = self.number
        {
            events.push(Event::Number(number));
        }
        events
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// State when the watch began.
    Start,
    Acquired(String),
    Released(String),
    Waiting(u64),
    /// Free permits, or the count of a latch.
    Number(i64),
    Unreachable(String),
    Reachable,
}

#[derive(Debug, Serialize)]
struct EventLine<'a> {
    /// Since the watch began.
    at_ms: u64,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a HolderSeen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
}

pub(crate) async fn watch(args: WatchArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = events(&client, &args) => ended?,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(SUCCESS)
}

/// The time between two polls while the server sends notices of writes. Changes without a notice are seen after this time.
const TOLD: Duration = Duration::from_secs(1);
const UNTOLD: Duration = Duration::from_millis(100);
/// The shortest time between two polls: for a name that is acquired and released all the time, some states are not shown.
const REST: Duration = Duration::from_millis(10);

/// Decides when to poll again.
struct Hints<'a> {
    client: &'a Client,
    name: Name,
    /// Every key that the name may have. Messages of a primitive would not do: only releases have one, and its subscribers count as
    /// waiters, so `watch` would change the number that it shows.
    keys: Vec<Vec<u8>>,
    every: Option<Duration>,
}

impl<'a> Hints<'a> {
    fn new(client: &'a Client, args: &WatchArgs) -> Result<Self, Failure> {
        let name = client.name(&args.name).map_err(Library)?;
        let own = std::iter::once(name.as_bytes().to_vec());
        Ok(Self {
            client,
            keys: own.chain(beside::keys_of(&name)).collect(),
            name,
            every: args.every,
        })
    }

    /// Requests a notice of the next write. Must be called before each poll, so that no write is missed in between.
    async fn listen(&self) -> Option<Tracked> {
        // In a cluster the owner of the slot may have changed.
        let console = self.client.console_of(self.name.as_bytes())?;
        // Refused, or no answer: then the poll that follows reports the error.
        console.track(&self.keys).await.ok()
    }

    /// Waits until the time of the next poll. The previous one began at `looked`.
    async fn wait(&self, tracked: Option<Tracked>, looked: Instant) {
        let usual = if tracked.is_some() { TOLD } else { UNTOLD };
        let most = self.every.unwrap_or(usual);
        match tracked {
            // OK: at the timeout the poll finds changes without a notice.
            Some(mut tracked) => drop(timeout_at(looked + most, tracked.written()).await),
            None => sleep_until(looked + most).await,
        }
        sleep_until(looked + REST).await;
    }
}

async fn events(client: &Client, args: &WatchArgs) -> Result<(), Failure> {
    let hints = Hints::new(client, args)?;
    let started = Instant::now();
    let mut known = Known::default();
    let mut before: Option<State> = None;
    let mut reachable = true;
    let mut count = 0;
    loop {
        let looked = Instant::now();
        let tracked = hints.listen().await;
        let (events, state) = match look(client, args.name.as_bytes(), args.kind).await {
            Ok(seen) => {
                let state = State::of(&seen);
                let mut events = match &before {
                    None => vec![Event::Start],
                    Some(before) => state.since(before),
                };
                if !reachable {
                    events.insert(0, Event::Reachable);
                }
                reachable = true;
                (events, Some(state))
            }
            // The client reconnects on its own, and the next poll shows the changes during the outage.
            Err(failure) if failure.code() == crate::exit::UNAVAILABLE && before.is_some() => {
                let first = std::mem::replace(&mut reachable, false);
                let told = first.then(|| Event::Unreachable(failure.to_string()));
                (told.into_iter().collect(), None)
            }
            Err(failure) => return Err(failure),
        };
        before = state.or(before);
        if let Some(now) = &before {
            for event in &events {
                known.learn(client, event, now).await;
                show(&known.people, args, event, now, started.elapsed())?;
                count += 1;
                if args.count.is_some_and(|most| count >= most) {
                    return Ok(());
                }
            }
        }
        hints.wait(tracked, looked).await;
    }
}

/// The processes of the owners of events. A request for each event would take longer than the poll.
#[derive(Default)]
struct Known {
    people: People,
    /// The time of the last request that did not find a client: one of Redisson's, or one that has ended.
    missing: BTreeMap<String, Instant>,
}

impl Known {
    /// The time after which the request for an unknown client is repeated.
    const AGAIN: Duration = Duration::from_secs(5);

    async fn learn(&mut self, client: &Client, event: &Event, now: &State) {
        let owner = match event {
            Event::Acquired(owner) | Event::Released(owner) => owner,
            // The line of several holders shows their number.
            Event::Start => match &*now.holders {
                [owner] => owner,
                _ => return,
            },
            _ => return,
        };
        let owner = Owner::of(owner);
        self.missing
            .retain(|_, asked| asked.elapsed() < Self::AGAIN);
        if self.people.of(&owner).is_some() || self.missing.contains_key(owner.client) {
            return;
        }
        if let Ok(now) = People::ask(client).await {
            self.people = now;
        }
        if self.people.of(&owner).is_none() {
            self.missing.insert(owner.client.to_owned(), Instant::now());
        }
    }
}

fn show(
    people: &People,
    args: &WatchArgs,
    event: &Event,
    now: &State,
    at: Duration,
) -> Result<(), Failure> {
    let holder = match event {
        Event::Acquired(owner) | Event::Released(owner) => Some(HolderSeen::new(owner, 1, people)),
        _ => None,
    };
    let brief = holder.as_ref().map(HolderSeen::brief).unwrap_or_default();
    let (word, text) = match event {
        Event::Start => ("start", now.brief(people)),
        Event::Acquired(_) => ("acquired", messages::acquired_by(&brief)),
        Event::Released(_) => ("released", messages::released_by(&brief)),
        Event::Waiting(waiting) => ("waiting", messages::waiting(*waiting)),
        Event::Number(number) => ("number", messages::left(*number)),
        Event::Unreachable(why) => ("unreachable", messages::no_answer(why)),
        Event::Reachable => ("reachable", messages::answers_again().into()),
    };
    if args.json {
        let start = *event == Event::Start;
        output::json_line(&EventLine {
            at_ms: output::whole_millis(at),
            event: word,
            holder: holder.as_ref(),
            holders: start.then_some(&now.holders),
            waiting: now.waiting,
            number: now.number,
        })?;
    } else {
        output::line(&format!("{:>7}  {text}", age(at)))?;
    }
    Ok(())
}

impl State {
    fn brief(&self, people: &People) -> String {
        let held = match &*self.holders {
            [] => "free".to_owned(),
            [owner] => format!("held by {}", people.who(owner)),
            many => format!("{} holders", many.len()),
        };
        let number = self.number.map(messages::left);
        let waiting = self.waiting.filter(|waiting| *waiting > 0);
        let parts = [Some(held), number, waiting.map(messages::waiting)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_is_a_release_and_then_an_acquire() {
        let state = |holder: &str, waiting| State {
            holders: vec![holder.to_owned()],
            waiting: Some(waiting),
            number: None,
        };
        let events = state("b", 1).since(&state("a", 2));
        let expected = [
            Event::Released("a".into()),
            Event::Acquired("b".into()),
            Event::Waiting(1),
        ];
        assert_eq!(events, expected);
        assert!(state("a", 2).since(&state("a", 2)).is_empty());
    }
}
