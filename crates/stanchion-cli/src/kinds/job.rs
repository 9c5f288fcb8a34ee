//! The facts that are shown of a job.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use stanchion::jobs::{Activity, JobStatus, LastRun};
use stanchion::{Client, Job, Lock};

use super::{Facts, Held, time_at};
use crate::exit::{Failure, Library};
use crate::look::Kind;
use crate::output;
use crate::wording::age;

pub(super) async fn read(client: &Client, name: &[u8]) -> Result<Facts, Failure> {
    let job = Job::new(client, name).map_err(Library)?;
    let lock = Lock::new(client, name).map_err(Library)?;
    let (status, lock, now) =
        tokio::join!(job.status(), lock.status(), time_at(client, job.name()));
    let (status, lock) = (status.map_err(Library)?, lock.map_err(Library)?);
    let now = now.map(|micros| UNIX_EPOCH + Duration::from_micros(micros));
    let mut facts = Facts::nothing(Kind::Job, "free");
    // A waiter for the lock of that name waits for the job.
    facts.waiting = lock.waiting_processes;
    facts.last_token = lock.last_token;
    facts.exists =
        status.holder.is_some() || status.last_tick.is_some() || status.last_run.is_some();
    let running = status.last_run.as_ref().filter(|run| {
        let holder = status.holder.as_ref();
        holder.is_some_and(|holder| holder.owner == run.owner)
    });
    if let Some(holder) = &status.holder {
        let rests = holder.activity == Activity::Resting;
        facts.held = true;
        facts.state = match (rests, running) {
            (true, _) => "at rest after a run of a job: nobody holds it".into(),
            (false, Some(_)) => "runs".into(),
            (false, None) => "held, by a lock of this name".into(),
        };
        facts.holders.push(Held {
            owner: holder.owner.clone(),
            count: u32::from(!rests),
            what: if rests { "rests" } else { "runs" },
            left: status.free_by,
            since: running.and_then(|run| now?.duration_since(run.began).ok()),
        });
    }
    facts.more = more(&status, running.is_some(), now);
    facts.json = told(&status);
    Ok(facts)
}

fn more(status: &JobStatus, runs: bool, now: Option<SystemTime>) -> Vec<(&'static str, String)> {
    let mut more = Vec::new();
    if let Some(tick) = status.last_tick {
        more.push(("last tick", tick.to_string()));
    }
    if let Some(run) = &status.last_run {
        let ago = now.and_then(|now| now.duration_since(run.began).ok());
        let ago = ago.map_or_else(String::new, |ago| format!("{} ago, ", age(ago)));
        let end = match (run.ended.map(|ended| ended.duration_since(run.began)), runs) {
            (Some(took), _) => format!("took {}", age(took.unwrap_or_default())),
            (None, true) => "goes on".into(),
            (None, false) => "did not end: lost or killed".into(),
        };
        more.push(("last run", format!("{ago}{end}")));
    }
    more
}

/// As JSON, which the library's types do not support; the holder has the format of a lock's holder.
fn told(status: &JobStatus) -> serde_json::Map<String, serde_json::Value> {
    let millis = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH);
        output::whole_millis(since.unwrap_or_default())
    };
    let run = |run: &LastRun| {
        json!({
            "owner": run.owner,
            "began_ms": millis(run.began),
            "ended_ms": run.ended.map(millis),
        })
    };
    let holder = status.holder.as_ref().map(|holder| {
        json!({
            "owner": holder.owner,
            "activity": holder.activity,
            "hold_count": u32::from(holder.activity == Activity::Running),
            "remaining_ms": status.free_by.map(output::whole_millis),
        })
    });
    let pairs = [
        ("holder", json!(holder)),
        (
            "last_tick",
            json!(status.last_tick.map(|tick| tick.to_string())),
        ),
        ("last_run", json!(status.last_run.as_ref().map(run))),
    ];
    pairs
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}
