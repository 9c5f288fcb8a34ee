//! Background clean-up on the server: removes leftovers of requests, and tends queues and lines when that is due.
//!
//! A request without an answer may still run (P3). A sweep therefore runs at once, and again after the last moment at
//! which such a request may run. Only a release that is sent after that moment is final (rule R2).

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::about::Tenure;
use crate::description::{Synchronizer, code_of, rest_of};
use crate::hold::claim::Claim;
use crate::hold::holds::{Base, Holds};
use crate::wire::Retries;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Call, Failure, Moment, Outage, Path, Reply};

/// The longest outage during which the client keeps trying to give up a place in a queue. The attempts keep the
/// client's connections alive, so a server that never returns must not prolong them indefinitely.
pub(super) const LONGEST_OUTAGE: Duration = Duration::from_secs(3_600);

/// Removes what `owner` has left in the background: at once, and again when no request can run any more. A shutdown waits for this work. Sends to
/// `done` if the first release is confirmed and no earlier request can run any more.
pub(super) fn sweep(
    core: &Holds,
    sync: &Arc<dyn Synchronizer>,
    owner: &WireOwner,
    left: Claim,
    done: Option<oneshot::Sender<()>>,
) {
    // The caller keeps the client alive.
    let (Some(hold), Some(client)) = (sync.hold(), core.client.upgrade()) else {
        return;
    };
    let call = hold.abandon(owner, left.lease());
    let work = release_twice(client, Arc::clone(sync), call, left, done);
    core.runner.finish(work);
}

async fn release_twice(
    core: Arc<dyn Base>,
    sync: Arc<dyn Synchronizer>,
    call: Call,
    left: Claim,
    done: Option<oneshot::Sender<()>>,
) {
    let until = left.until();
    let hopeless = match sync.tenure() {
        // P3: a place in a queue has no lease. If no other request for the name comes, only this sweep removes the place.
        Tenure::Leased
            if left.is_queued() && sync.sharing().permits().is_none()
                || sync.sharing().keeps_each_waiter() =>
        {
            core.clock.now() + LONGEST_OUTAGE
        }
        // After this moment the lease has ended any leftover.
        Tenure::Leased => core.clock.now().max(until) + left.lease().length(),
        // Without a lease, only this sweep removes the leftover.
        Tenure::Unleased | Tenure::Nothing => Moment::FAR,
    };
    // R2: the send time of the release decides. A late request may run after the release, but before the release is answered.
    let sent = core.clock.now();
    let first = persist(&core, &*sync, Path::Background, &call, hopeless, false).await;
    if let Ok((reply, _)) = &first {
        served(&core, &*sync, reply);
        // The receiver may have been dropped.
        if sent >= until {
            done.and_then(|done| done.send(()).ok());
        }
    }
    if sent < until {
        tokio::time::sleep(until.since(core.clock.now())).await;
        let last = persist(&core, &*sync, Path::Background, &call, hopeless, false).await;
        tracing::debug!(?first, ?last, "swept");
    }
}

/// Returns whether the keys of a script are on two nodes, because their slot is being migrated. The script has then done nothing.
pub(super) fn is_divided(failure: &Failure) -> bool {
    matches!(failure, Failure::NotNow(Outage::Refused { code, .. }) if code == "TRYAGAIN")
}

/// As [`persist_telling`], for work that reports no failure.
pub(super) async fn persist(
    core: &Holds,
    sync: &dyn Synchronizer,
    path: Path,
    call: &Call,
    until: Moment,
    undivided: bool,
) -> Result<(Reply, bool), Failure> {
    persist_telling(core, sync, path, call, until, undivided, &|_| {}).await
}

/// Sends `call` until it is answered or `until` has passed. Calls `tell` with each failure. The flag in the result is true if an earlier try went
/// unanswered. `undivided`: fail when the keys are on two nodes and no try went unanswered.
pub(super) async fn persist_telling(
    core: &Holds,
    sync: &dyn Synchronizer,
    path: Path,
    call: &Call,
    until: Moment,
    undivided: bool,
    tell: &(dyn Fn(&Outage) + Sync),
) -> Result<(Reply, bool), Failure> {
    let (mut resent, mut retries) = (false, Retries::default());
    loop {
        match core.call(path, call).await {
            Ok(reply) => return Ok((finished(core, sync, reply), resent)),
            // The server would refuse the same request again: a right is missing, or another application uses the key.
            Err(failure @ Failure::Rejected(_)) => return Err(failure),
            Err(failure) if undivided && !resent && is_divided(&failure) => return Err(failure),
            Err(failure) => {
                // A closed client does not reconnect.
                if core.clock.now() >= until || core.closed.is_cancelled() {
                    return Err(failure);
                }
                // P6: only an unanswered try may have run. Such a try explains a later answer that there is nothing to release.
                resent |= matches!(failure, Failure::Unanswered(_));
                if let Failure::Unanswered(outage) | Failure::NotNow(outage) = &failure {
                    tell(outage);
                }
            }
        }
        core.recover(until, &mut retries).await;
    }
}

/// Forwards a grant to a waiter of this process in the reply to a release.
pub(super) fn served(core: &Holds, sync: &dyn Synchronizer, reply: &Reply) {
    if let [Reply::Bulk(grant), ..] = rest_of(reply)
        && sync.sharing().keeps_each_waiter()
        && let Some(client) = core.client.upgrade()
    {
        client.granted(sync, grant);
    }
}

/// Reads the reply of a script that may have freed something for the queue of `sync`. If the script has
/// not finished, the rest of its work on the queue is scheduled.
pub(crate) fn finished(core: &Holds, sync: &dyn Synchronizer, reply: Reply) -> Reply {
    finished_by(core, reply, || sync.server_queue()?.tend(false))
}

/// As [`finished`], for a queue whose call to finish the work is made by `tend`.
pub(crate) fn finished_by(
    core: &Holds,
    reply: Reply,
    tend: impl FnOnce() -> Option<Call>,
) -> Reply {
    let (reply, unfinished) = split(reply);
    if let Some(pause) = unfinished
        && let Some(tend) = tend()
    {
        tend_in(core, tend, pause);
    }
    reply
}

/// Splits `{ "tend", ms, reply }`, the reply of a script that has not finished, into the inner reply and the pause.
fn split(reply: Reply) -> (Reply, Option<Duration>) {
    match reply {
        Reply::Array(mut items) if is_unfinished(&items) => {
            let reply = items.pop().unwrap_or(Reply::Nil);
            let pause = items.get(1).and_then(Reply::as_int).and_then(due);
            (reply, pause)
        }
        reply => (reply, None),
    }
}

fn is_unfinished(items: &[Reply]) -> bool {
    matches!(items, [Reply::Bulk(word), _, _] if word == b"tend")
}

/// Tends the queue of `sync` after `pause`, or as soon as the server can be reached then.
pub(super) fn tend_after(core: &Holds, sync: &Arc<dyn Synchronizer>, pause: Duration) {
    if let Some(tend) = sync.server_queue().and_then(|queue| queue.tend(false)) {
        tend_in(core, tend, pause);
    }
}

/// Sends `call` after `pause`, and again as long as its replies request it: no other process may have a waiter left to do it.
///
/// Keeps the client alive only while a request is in flight, so the loop ends with the client.
fn tend_in(core: &Holds, call: Call, mut pause: Duration) {
    let client = Weak::clone(&core.client);
    core.runner.serve(async move {
        loop {
            // The server counts whole milliseconds. One more millisecond keeps the request from arriving before the due time.
            tokio::time::sleep(pause + Duration::from_millis(1)).await;
            let Some(core) = client.upgrade() else { return };
            match core.call(Path::Background, &call).await {
                Ok(reply) => match next_look(reply) {
                    Some(next) => pause = next,
                    None => return,
                },
                Err(Failure::Rejected(_)) => return,
                Err(_) => pause = Duration::from_millis(250),
            }
        }
    });
}

/// The time until the next clean-up of a queue, or the next part of an unfinished script; `None`: no more is due.
fn next_look(reply: Reply) -> Option<Duration> {
    match split(reply) {
        (_, Some(pause)) => Some(pause),
        (reply, None) => code_of(&reply).and_then(due),
    }
}

fn due(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_is_not_finished_is_split() {
        let word = || Reply::Bulk(b"tend".to_vec());
        let reply = Reply::Array(vec![Reply::Int(-4), Reply::Int(7)]);
        let unfinished = Reply::Array(vec![word(), Reply::Int(2), reply.clone()]);
        assert_eq!(
            split(unfinished),
            (reply.clone(), Some(Duration::from_millis(2)))
        );
        assert_eq!(split(reply.clone()), (reply, None));
        assert_eq!(split(Reply::Int(1)), (Reply::Int(1), None));
        assert_eq!(next_look(Reply::Int(-1)), None);
        assert_eq!(next_look(Reply::Int(3)), Some(Duration::from_millis(3)));
    }
}
