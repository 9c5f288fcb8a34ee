//! Another program on the same keys, as Redisson writes them.

use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use tokio::time::Instant;

use crate::keys::run;
use crate::program::{Java, Named};
use crate::spot::{Family, Spot};
use crate::state::{Held, State};

/// Java's owners have a uuid of version 4.
pub(crate) const OWNER: &str = "0aa1ca0e-4ea1-4a8a-8d5e-6ecf9a6b7c10:1";

/// Runs a Java step, which works in database 0.
pub(crate) fn happens(state: &mut State, server: u8, java: Java) {
    let Some(engine) = state.engines.get(usize::from(server)).cloned() else {
        return;
    };
    let name = match java {
        Java::Delete(n)
        | Java::SetPermits(n, _)
        | Java::TakePermit(n)
        | Java::GivePermit(n)
        | Java::LockFor(n, _)
        | Java::Unlock(n)
        | Java::SetCount(n, _)
        | Java::CountDownTo0(n) => n,
    };
    let here = |spot: &Spot| (spot.server, spot.database, spot.name) == (server, 0, name);
    let now = Instant::now();
    state.latches_may_open(here);
    let ask = |command: &[&str]| run(&engine, 0, command);
    let number = |reply: Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).parse().unwrap_or(0),
        Reply::Int(n) => n,
        _ => 0,
    };
    let channel = |prefix: &str| channel(prefix, name);
    let absent = ask(&["EXISTS", name]) == Reply::Int(0);
    for place in state.places.iter_mut().filter(|(spot, _)| here(spot)) {
        place.1.stirred = now;
    }
    match java {
        Java::Delete(_) => {
            ask(&["DEL", name]);
            state.taint(here);
            for (_, place) in state.places.iter_mut().filter(|(spot, _)| here(spot)) {
                (place.total, place.java_permits) = (None, 0);
                place.dead_until = now;
                // It tells nobody.
                place.released = now.checked_sub(Duration::from_secs(60)).unwrap_or(now);
            }
        }
        Java::SetPermits(_, n) if absent => {
            ask(&["SET", name, &n.to_string()]);
            ask(&["PUBLISH", &channel("redisson_sc"), &n.to_string()]);
            // Said so in the book: a release by who held permits of the one before is believed if nobody of ours looked meanwhile.
            let of_the_one_before = |held: &Held| {
                let mut uses = held.uses.iter();
                uses.any(|used| here(&used.spot) && used.spot.family == Family::Permits)
            };
            let believed = state.held.values().any(of_the_one_before);
            for family in [Family::Permits, Family::Leased] {
                if let Some(place) = place(state, server, family, name) {
                    let total = (!believed).then_some(n.into());
                    (place.total, place.java_permits) = (total, 0);
                    place.released = now;
                }
            }
        }
        Java::TakePermit(_) if number(ask(&["GET", name])) > 0 => {
            ask(&["DECR", name]);
            add_java_permits(state, server, name, 1);
        }
        Java::GivePermit(_) if has_java_permits(state, server, name) => {
            let free = number(ask(&["INCR", name]));
            ask(&["PUBLISH", &channel("redisson_sc"), &free.to_string()]);
            add_java_permits(state, server, name, -1);
        }
        Java::LockFor(_, millis) if absent => {
            ask(&["HINCRBY", name, OWNER, "1"]);
            ask(&["PEXPIRE", name, &millis.to_string()]);
            if let Some(place) = place(state, server, Family::Hash, name) {
                place.dead_until = now + Duration::from_millis(u64::from(millis) + 2_000);
            }
        }
        Java::Unlock(_) => unlock(&engine, name),
        Java::SetCount(_, n) if absent => {
            state.books.armed = true;
            ask(&["SET", name, &n.to_string()]);
            let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
            ask(&["PUBLISH", &channel, "1"]);
        }
        Java::CountDownTo0(_) if !absent => {
            ask(&["DEL", name]);
            let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
            ask(&["PUBLISH", &channel, "0"]);
        }
        _ => {}
    }
}

pub(crate) fn unlock(engine: &Engine, name: &str) {
    if run(engine, 0, &["HEXISTS", name, OWNER]) == Reply::Int(1) {
        run(engine, 0, &["DEL", name]);
        run(
            engine,
            0,
            &["PUBLISH", &channel("redisson_lock__channel", name), "0"],
        );
    }
}

fn channel(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

fn place(
    state: &mut State,
    server: u8,
    family: Family,
    name: Named,
) -> Option<&mut crate::state::Place> {
    let spot = Spot {
        server,
        database: 0,
        family,
        name,
    };
    state.places.get_mut(&spot)
}

fn has_java_permits(state: &mut State, server: u8, name: Named) -> bool {
    [Family::Permits, Family::Leased].iter().any(|family| {
        place(state, server, *family, name).is_some_and(|place| place.java_permits > 0)
    })
}

fn add_java_permits(state: &mut State, server: u8, name: Named, by: i64) {
    for family in [Family::Permits, Family::Leased] {
        if let Some(place) = place(state, server, family, name) {
            place.java_permits += by;
        }
    }
}
