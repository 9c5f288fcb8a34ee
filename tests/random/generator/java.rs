//! Redisson as another program on the same keys: the commands that its objects send.

use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use tokio::time::Instant;

use crate::generator::keys::run;
use crate::generator::program::{Java, Name};
use crate::generator::resource::{Family, Resource};
use crate::generator::state::{Held, State};

/// An owner of Redisson. Java's UUIDs have version 4.
pub(crate) const OWNER: &str = "0aa1ca0e-4ea1-4a8a-8d5e-6ecf9a6b7c10:1";

/// Runs a Java step in database 0.
pub(crate) fn apply(state: &mut State, server: u8, java: Java) {
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
    let here = |resource: &Resource| {
        (resource.server, resource.database, resource.name) == (server, 0, name)
    };
    let now = Instant::now();
    state.latches_may_open(here);
    let query = |command: &[&str]| run(&engine, 0, command);
    let number = |reply: Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).parse().unwrap_or(0),
        Reply::Int(n) => n,
        _ => 0,
    };
    let channel = |prefix: &str| channel(prefix, name);
    let absent = query(&["EXISTS", name]) == Reply::Int(0);
    for record in state
        .records
        .iter_mut()
        .filter(|(resource, _)| here(resource))
    {
        record.1.last_change = now;
    }
    match java {
        Java::Delete(_) => {
            query(&["DEL", name]);
            state.taint(here);
            for (_, record) in state
                .records
                .iter_mut()
                .filter(|(resource, _)| here(resource))
            {
                (record.total, record.java_permits) = (None, 0);
                record.dead_until = now;
                // `RObject.delete` publishes no message.
                record.released = now.checked_sub(Duration::from_secs(60)).unwrap_or(now);
            }
        }
        Java::SetPermits(_, n) if absent => {
            query(&["SET", name, &n.to_string()]);
            query(&["PUBLISH", &channel("redisson_sc"), &n.to_string()]);
            // Documented: the release of permits of a deleted semaphore is accepted if no stanchion process has read the new one in
            // between.
            let of_the_one_before = |held: &Held| {
                let mut uses = held.uses.iter();
                uses.any(|used| here(&used.resource) && used.resource.family == Family::Permits)
            };
            let believed = state.held.values().any(of_the_one_before);
            for family in [Family::Permits, Family::Leased] {
                if let Some(record) = record(state, server, family, name) {
                    let total = (!believed).then_some(n.into());
                    (record.total, record.java_permits) = (total, 0);
                    record.released = now;
                }
            }
        }
        Java::TakePermit(_) if number(query(&["GET", name])) > 0 => {
            query(&["DECR", name]);
            add_java_permits(state, server, name, 1);
        }
        Java::GivePermit(_) if has_java_permits(state, server, name) => {
            let free = number(query(&["INCR", name]));
            query(&["PUBLISH", &channel("redisson_sc"), &free.to_string()]);
            add_java_permits(state, server, name, -1);
        }
        Java::LockFor(_, millis) if absent => {
            query(&["HINCRBY", name, OWNER, "1"]);
            query(&["PEXPIRE", name, &millis.to_string()]);
            if let Some(record) = record(state, server, Family::Hash, name) {
                record.dead_until = now + Duration::from_millis(u64::from(millis) + 2_000);
            }
        }
        Java::Unlock(_) => unlock(&engine, name),
        Java::SetCount(_, n) if absent => {
            state.tracking.armed = true;
            query(&["SET", name, &n.to_string()]);
            let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
            query(&["PUBLISH", &channel, "1"]);
        }
        Java::CountDownTo0(_) if !absent => {
            query(&["DEL", name]);
            let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
            query(&["PUBLISH", &channel, "0"]);
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

fn record(
    state: &mut State,
    server: u8,
    family: Family,
    name: Name,
) -> Option<&mut crate::generator::state::Record> {
    let resource = Resource {
        server,
        database: 0,
        family,
        name,
    };
    state.records.get_mut(&resource)
}

fn has_java_permits(state: &mut State, server: u8, name: Name) -> bool {
    [Family::Permits, Family::Leased].iter().any(|family| {
        record(state, server, *family, name).is_some_and(|record| record.java_permits > 0)
    })
}

fn add_java_permits(state: &mut State, server: u8, name: Name, by: i64) {
    for family in [Family::Permits, Family::Leased] {
        if let Some(record) = record(state, server, family, name) {
            record.java_permits += by;
        }
    }
}
