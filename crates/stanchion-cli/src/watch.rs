//! `stanchion watch`: what happens to a name.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::connect::ServerArgs;
use crate::entry::HolderSeen;
use crate::exit::{Failure, Library, SUCCESS};
use crate::look::{Kind, Seen, look};
use crate::output;
use crate::people::People;
use crate::wording::{age, millis};

/// Print what happens to a name: who gets it, who gives it back, how many wait. Until Ctrl-C.
///
/// Looks at the name at an interval: what begins and ends between two looks is not seen.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     stopped by Ctrl-C, or after --count
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
    /// The time between two looks: 1 to 4 requests each.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = at_least_10ms)]
    every: Duration,
    /// End after so many events. The first says how the name is at the start.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print a line of JSON for each event.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn at_least_10ms(text: &str) -> Result<Duration, String> {
    let given = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let least = Duration::from_millis(10);
    if given < least {
        return Err("at least 10ms".into());
    }
    Ok(given)
}

/// Part of a status that events are told from.
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
        let (holders, waiting, number) = match seen {
            Seen::Lock(status) | Seen::Fair(status) => {
                let holders = status.holder.iter().map(|holder| holder.owner.clone());
                (holders.collect(), status.waiting_processes, None)
            }
            Seen::Rwlock(status) => {
                let all = status.writer.iter().chain(&status.readers);
                let holders = all.map(|holder| holder.owner.clone()).collect();
                (holders, status.waiting_processes, None)
            }
            Seen::Semaphore(status) => {
                let holders = status.holders.iter().map(|holder| holder.owner.clone());
                (
                    holders.collect(),
                    status.waiting_processes,
                    Some(status.available),
                )
            }
            Seen::Leased(status) => {
                let holders = status.permits.iter().map(|permit| permit.id.to_string());
                (
                    holders.collect(),
                    status.waiting_processes,
                    Some(status.available),
                )
            }
            Seen::Latch(count) => (Vec::new(), None, i64::try_from(*count).ok()),
            Seen::Number(number) => (Vec::new(), None, Some(*number)),
        };
        Self {
            holders,
            waiting,
            number,
        }
    }

    /// Events since `before`, in the order in which they must have happened.
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

async fn events(client: &Client, args: &WatchArgs) -> Result<(), Failure> {
    let mut ticks = interval(args.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    let mut before: Option<State> = None;
    let mut reachable = true;
    let mut count = 0;
    loop {
        ticks.tick().await;
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
            // The client reconnects by itself, and what changed meanwhile is told then.
            Err(failure) if failure.code() == crate::exit::UNAVAILABLE && before.is_some() => {
                let first = std::mem::replace(&mut reachable, false);
                let told = first.then(|| Event::Unreachable(failure.to_string()));
                (told.into_iter().collect(), None)
            }
            Err(failure) => return Err(failure),
        };
        before = state.or(before);
        let Some(now) = &before else { continue };
        for event in &events {
            show(client, args, event, now, started.elapsed()).await?;
            count += 1;
            if args.count.is_some_and(|most| count >= most) {
                return Ok(());
            }
        }
    }
}

async fn show(
    client: &Client,
    args: &WatchArgs,
    event: &Event,
    now: &State,
    at: Duration,
) -> Result<(), Failure> {
    let holder = match event {
        Event::Acquired(owner) | Event::Released(owner) => {
            let people = People::ask(client)
                .await
                .map_err(Library)
                .unwrap_or_default();
            Some(HolderSeen::new(owner, 1, &people))
        }
        _ => None,
    };
    let brief = holder.as_ref().map(HolderSeen::brief).unwrap_or_default();
    let (word, text) = match event {
        Event::Start => ("start", now.brief()),
        Event::Acquired(_) => ("acquired", format!("acquired by {brief}")),
        Event::Released(_) => ("released", format!("released by {brief}")),
        Event::Waiting(waiting) => ("waiting", format!("{waiting} waiting")),
        Event::Number(number) => ("number", format!("{number} left")),
        Event::Unreachable(why) => ("unreachable", format!("the server does not answer: {why}")),
        Event::Reachable => ("reachable", "the server answers again".into()),
    };
    if args.json {
        let start = *event == Event::Start;
        output::json_line(&EventLine {
            at_ms: millis(at),
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
    fn brief(&self) -> String {
        let held = match self.holders.len() {
            0 => "free".to_owned(),
            1 => format!(
                "held by {}",
                crate::wording::Owner::of(&self.holders[0]).short()
            ),
            many => format!("{many} holders"),
        };
        let number = self
            .number
            .map_or_else(String::new, |number| format!(", {number} left"));
        let waiting = match self.waiting {
            Some(waiting @ 1..) => format!(", {waiting} waiting"),
            _ => String::new(),
        };
        format!("{held}{number}{waiting}")
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
