//! Times: the server's clock, a round trip, and the duration of a wake.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stanchion::console::Console;
use stanchion::{
    AcquireError, AcquireOptions, Client, Fencing, Lease, Lock, QueryError, Rejection,
};
use tokio::time::Instant;

use super::finding::Finding;
use crate::connect::ServerArgs;
use crate::exit::{Failure, Library};
use crate::ping::{milliseconds, round_trips, runs_scripts};
use crate::probe::Names;

/// A difference of clocks that matters.
const CLOCK: Duration = Duration::from_secs(1);
/// A round trip that users notice: an acquire and a release take two.
const FAR: Duration = Duration::from_millis(50);
/// No request should take as long: a renewal has two thirds of a lease for all its attempts.
const SLOW: Duration = Duration::from_secs(1);
const TIMES: usize = 20;

/// Measures round trips, and with them the difference of the clocks.
pub(super) async fn check(console: &Console) -> Result<Vec<Finding>, QueryError> {
    let trips = round_trips(console, TIMES).await?;
    let (median, longest) = (trips.median, trips.longest);
    let shown = format!(
        "{:.2} ms, the longest of {TIMES} {:.2} ms",
        milliseconds(median),
        milliseconds(longest)
    );
    let round_trip = if longest > SLOW || median > FAR {
        let advice = "run the server near its clients; look for slow commands (SLOWLOG GET), other load, swapping";
        Finding::warn("round-trip", shown, advice)
    } else {
        Finding::ok("round-trip", shown)
    };
    Ok(vec![
        round_trip,
        clock(console).await?,
        scripts(console).await,
    ])
}

/// Runs a script: all operations are scripts.
async fn scripts(console: &Console) -> Finding {
    match runs_scripts(console).await {
        Ok(()) => Finding::ok("scripts", "the server runs them"),
        Err(failure) => Finding::fail(
            "scripts",
            failure.to_string(),
            "ACL SETUSER … +eval +evalsha; SCRIPT KILL ends one that runs for too long; SCRIPT FLUSH",
        ),
    }
}

/// Compares the clocks. The server read its clock at some moment between the sending and the reply.
async fn clock(console: &Console) -> Result<Finding, QueryError> {
    let mut best: Option<(Duration, Duration, Duration)> = None;
    for _ in 0..3 {
        let sent = Instant::now();
        let reply = match console.command(&["TIME"]).await {
            Ok(reply) => reply,
            Err(QueryError::Rejected { .. }) => {
                let advice = "ACL SETUSER … +time; without it nothing can be acquired";
                return Ok(Finding::fail("clock", "TIME is refused", advice));
            }
            Err(error) => return Err(error),
        };
        let (trip, ours) = (sent.elapsed(), wall_clock());
        let [seconds, micros] = reply.as_array().unwrap_or_default() else {
            return Ok(Finding::skip(
                "clock",
                "TIME has an unknown reply",
                "is this Redis or Valkey?",
            ));
        };
        let part =
            |reply: &stanchion::console::Reply| reply.as_int().and_then(|n| u64::try_from(n).ok());
        let theirs = Duration::from_secs(part(seconds).unwrap_or(0))
            + Duration::from_micros(part(micros).unwrap_or(0));
        if best.is_none_or(|(least, ..)| trip < least) {
            best = Some((trip, theirs, ours - trip / 2));
        }
    }
    let (trip, theirs, ours) = best.unwrap_or_default();
    let (offset, side) = match theirs.checked_sub(ours) {
        Some(ahead) => (ahead, "ahead of"),
        None => (ours - theirs, "behind"),
    };
    // An offset of up to half a round trip may be the delay of the network.
    let certain = offset.saturating_sub(trip / 2);
    let shown = format!(
        "the server's clock is {:.1} s {side} this host's",
        offset.as_secs_f64()
    );
    Ok(if certain < CLOCK {
        let within = milliseconds(offset.max(trip / 2)).max(0.1);
        Finding::ok(
            "clock",
            format!("the clocks differ by less than {within:.1} ms"),
        )
    } else {
        Finding::warn(
            "clock",
            format!("{shown}: matters to Redisson's fair locks and permits only"),
            "set both clocks by NTP, slewing and not stepping",
        )
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the wall clock of this host is what is compared; no lease depends on it"
)]
fn wall_clock() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The time that a wake by message may take in addition to the round trip. A lost message costs 1.5 s at least.
const WAKE: Duration = Duration::from_millis(500);
/// More than the poll interval.
const PATIENCE: Duration = Duration::from_secs(8);
/// A waiter is queued and subscribed long before this time.
const SETTLED: Duration = Duration::from_millis(300);

const CHECK: &str = "messages";

/// Passes a lock between two clients, and checks whether the message arrives. A server that refuses the lock fails the check.
pub(super) async fn pass_on(holder: &Client, server: &ServerArgs, names: &Names) -> Finding {
    let passed = async {
        let waiter = server.connect().await?;
        messages(holder, &waiter, names).await
    };
    passed.await.unwrap_or_else(|failure| {
        let advice = "nothing can be acquired until the server accepts it: see the results above";
        Finding::fail(
            CHECK,
            format!("no lock could be passed on: {failure}"),
            advice,
        )
    })
}

/// Removes the keys that it wrote.
async fn messages(holder: &Client, waiter: &Client, names: &Names) -> Result<Finding, Failure> {
    let Some(name) = names.own() else {
        let advice = "--names with a pattern, such as app:*, allows a name of our own";
        return Ok(Finding::skip(
            CHECK,
            "not checked: --names is one name",
            advice,
        ));
    };
    let lock = |client| Lock::new(client, name).map(|lock| lock.fencing(Fencing::Off));
    let (mine, theirs) = (
        lock(holder).map_err(Library)?,
        lock(waiter).map_err(Library)?,
    );
    // If the process is killed before the end, the lock expires with its lease.
    let lease = Lease::new(PATIENCE * 2).map_err(Library)?;
    let options = AcquireOptions::new().lease(lease).timeout(PATIENCE);
    let refused = |detail: String| {
        let advice = "check the rights; with --names 'app:*' a name of that pattern is used";
        Ok(Finding::skip(
            CHECK,
            format!("not checked: a lock was refused ({detail})"),
            advice,
        ))
    };
    let held = match mine.acquire_with(options.clone()).await {
        Ok(held) => held,
        Err(AcquireError::Rejected { rejection, .. }) if is_right(&rejection) => {
            return refused(rejection.to_string());
        }
        Err(error) => return Err(Library(error).into()),
    };
    let waiting = tokio::spawn(theirs.acquire_with(options));
    tokio::time::sleep(SETTLED).await;
    let released = Instant::now();
    held.release().await.map_err(Library)?;
    let outcome = waiting.await;
    let took = released.elapsed();
    Ok(match outcome {
        Ok(Ok(guard)) => {
            guard.release().await.map_err(Library)?;
            let shown = format!(
                "a waiter got a released lock after {:.1} ms",
                milliseconds(took)
            );
            if took < WAKE {
                Finding::ok(CHECK, shown)
            } else {
                let advice = "the right to its channel (rights, above), a proxy without pub/sub, or an overloaded server";
                Finding::fail(
                    CHECK,
                    format!("{shown}: the message did not arrive"),
                    advice,
                )
            }
        }
        Ok(Err(AcquireError::Rejected { rejection, .. })) if is_right(&rejection) => {
            return refused(rejection.to_string());
        }
        Ok(Err(error)) => Finding::fail(
            CHECK,
            format!("a waiter did not get a released lock: {error}"),
            "the right to its channel, a proxy without pub/sub, or an overloaded server",
        ),
        Err(_) => Finding::skip(CHECK, "the check was interrupted", "run it again"),
    })
}

fn is_right(rejection: &Rejection) -> bool {
    matches!(rejection, Rejection::NotPermitted { .. })
}
