//! Heartbeats, for queues that the server keeps.
//!
//! The poll timer of a queue sends one every [`ServerQueue::beat`](crate::primitive::ServerQueue::beat), for its first waiter and on the
//! background runner, so a stalled executor of the user cannot delay it. A heartbeat keeps the places of all waiters of this process, and
//! its reply reports a grant after its message was lost. One is in flight at a time (`State::attending`).

use std::sync::Arc;
use std::time::Duration;

use super::lock_entry::{LockEntry, State};
use super::queue::after_expiry;
use crate::description::{Request, Synchronizer, Verdict, now_of, rest_of};
use crate::hint::Hint;
use crate::lease::Lease;
use crate::line::Reason;
use crate::shared::Core;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Failure, Moment, Path, Reply};

impl LockEntry {
    /// Sends a heartbeat in the background, unless one is under way, and plans the next.
    ///
    /// The task is spawned under the queue's mutex, and keeps the entry and the core alive until the reply.
    pub(super) fn attend(&self, core: &Arc<Core>, state: &mut State, now: Moment) {
        let Some(first) = state.queue.first() else {
            return;
        };
        let (sync, owner, lease) = (
            Arc::clone(&first.want),
            first.owner.clone(),
            first.terms.asked(now),
        );
        let Some(server_queue) = sync.server_queue() else {
            return;
        };
        // Planned before anything is sent: an answer that never comes must not end the heartbeats.
        state.queue.poll_at(now + server_queue.beat(), Reason::Turn);
        let Some(entry) = self.this.upgrade().filter(|_| !state.attending) else {
            return;
        };
        state.attending = true;
        let core = Arc::clone(core);
        let runner = Arc::clone(&core.runner);
        runner.serve(async move {
            let answer = heartbeat(&core, &*sync, &owner, lease).await;
            entry.attended(&core, &*sync, &owner, answer);
        });
    }

    /// Handles the answer to a heartbeat that was sent for `owner`.
    pub(super) fn attended(
        &self,
        core: &Core,
        sync: &dyn Synchronizer,
        owner: &WireOwner,
        answer: Option<Result<Reply, Failure>>,
    ) {
        let mut state = self.state();
        // Whatever the answer is worth, the next heartbeat may be sent.
        state.attending = false;
        // The waiter left or was granted during the request: a reply about its missing place is not about the others.
        if !state.queue.keeps(owner) {
            return;
        }
        match answer {
            Some(Ok(reply)) => {
                if let Some(Verdict::Busy(Some(ttl))) = Verdict::read(&reply) {
                    // The holder's lease, or the grace of a silent head, may end before the next beat, without a message.
                    let at = core.clock.now() + after_expiry(core, Duration::from_millis(ttl));
                    state.queue.poll_by(at, Reason::Turn);
                }
                match sync.hint(rest_of(&reply)) {
                    // With the queue all places are gone, and each request restores one.
                    Hint::Forgotten => state.queue.admit_all(),
                    // The message of this grant may be lost. Its own request finds the grant: the script answers a holder as a replay.
                    Hint::Queue {
                        granted: Some(owner),
                        ..
                    } => state.queue.nudge_owner(&owner),
                    _ => {}
                }
            }
            // The first waiter sends its own request, and gets the failure as the answer.
            Some(Err(_)) => state.queue.admit(Reason::Turn),
            // The next heartbeat uses the clock as read by now.
            None => {}
        }
        self.carry_out(core, state);
    }
}

/// Sends a heartbeat; `None` when it was refused as late twice.
///
/// Once may mean that the server's clock was stepped or that the way was slow: its clock is read, and the heartbeat sent again.
async fn heartbeat(
    core: &Core,
    sync: &dyn Synchronizer,
    owner: &WireOwner,
    lease: Lease,
) -> Option<Result<Reply, Failure>> {
    for _ in 0..2 {
        let sent = core.clock.now();
        let limit = core.limit(sync.name(), sent);
        let request = Request {
            waits: true,
            queued: true,
            ..limit.request(owner, lease)
        };
        let call = sync.server_queue()?.heartbeat(&request);
        let answer = core.call(Path::Background, &call).await;
        if let Ok(Some(Verdict::Late)) = answer.as_ref().map(Verdict::read) {
            core.synchronise(Path::Background, sync.name()).await;
            continue;
        }
        if let Some(server) = answer.as_ref().ok().and_then(now_of) {
            // Grants by message are dated by this clock (P1), and a waiting process sends little else.
            core.observe(sync.name(), server, sent);
        }
        return Some(answer);
    }
    None
}
