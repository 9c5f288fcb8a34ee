//! The request of a waiter, from its first try to the reply, which is an event of the queue. The request needs neither the task of the waiter nor its call.

use std::sync::Arc;

use super::entries::LockEntries;
use super::lock_entry::LockEntry;
use super::queue::Ask;
use super::request::{Attempt, Parameters, ask};
use super::shell::{Answer, Shell};
use crate::error::AcquireError;
use crate::hint::Hint;
use crate::hold::debt::Debt;
use crate::line::Reason;
use crate::shared::Core;
use crate::wire::Retries;
use stanchion_transport::{Outage, Path, Persistent};

/// Begins the request `of` a waiter. The request continues in the background when the returned value is dropped.
pub(super) fn begin(core: &Arc<Core>, entry: Arc<LockEntry>, of: Ask<Shell>) -> Persistent<()> {
    let work = send(Arc::clone(core), entry, of);
    Persistent::begun(&core.runner, work)
}

/// Sends the request until the server has decided, or its waiter has left.
async fn send(core: Arc<Core>, entry: Arc<LockEntry>, of: Ask<Shell>) {
    let Ask {
        place, mut debt, ..
    } = of;
    let sync = Arc::clone(&debt.sync);
    let asked = Parameters {
        terms: of.terms,
        began: of.stay.began,
        waits: of.stay.deadline > of.stay.began,
        is_given: true,
        first: of.first,
        reason: of.reason,
        other: None,
    };
    let (name, kind) = (sync.name(), sync.kind().name());
    // A request that only follows a subscription was not caused by a wake.
    let was_woken = of.waited && of.reason != Reason::Resubscribed;
    let woken = |granted| {
        if was_woken {
            core.tell(|sink| sink.woken(kind, granted));
        }
    };
    let answer = |answer| entry.event(&core, |queue, cx| queue.answer(cx, place, answer));
    let mut retries = Retries::default();
    loop {
        if core.closing.is_cancelled() {
            let name = name.clone();
            return answer(Answer::Failed(AcquireError::Shutdown { name }));
        }
        let outage = match ask(&debt, &asked, &entry).await {
            Attempt::Granted(hold) => {
                woken(true);
                let (owner, next) = (hold.wire_owner().clone(), hold.next());
                let other = entry.event(&core, |queue, cx| queue.granted(cx, place, hold, next));
                // A grant by message crossed this reply. If both are of one owner, the release of one would free the other. A second permit is
                // released.
                if let Some(other) = other
                    && *other.wire_owner() == owner
                {
                    other.disown();
                }
                return;
            }
            Attempt::Busy(refusal) => match refusal.hint {
                // P8: this refusal is final. Only earlier unanswered requests may have left something.
                Hint::TooLate => return answer(Answer::Failed(timed_out(&core, &asked, &debt))),
                Hint::Elsewhere {
                    ref name,
                    ref channel,
                    placed,
                } if !entry.is_for(&*sync, name) => {
                    let debt = Arc::clone(&debt);
                    let (terms, stay) = (&asked.terms, of.stay);
                    let joined = LockEntries::join_at(&core, name, channel, debt, stay, terms);
                    if placed.is_some() {
                        joined.brings();
                    }
                    return answer(Answer::Moved(Box::new(joined)));
                }
                _ => {
                    woken(false);
                    return entry.refused(&core, place, &debt, &refusal);
                }
            },
            Attempt::Rejected(rejection) => {
                let name = name.clone();
                return answer(Answer::Failed(AcquireError::Rejected { name, rejection }));
            }
            Attempt::Stale => return answer(Answer::Restart),
            // The script decided nothing, and the server's clock has to be read again.
            Attempt::Late => {
                core.synchronise(Path::Direct, name).await;
                retries = Retries::default();
                None
            }
            Attempt::NotNow(outage) | Attempt::Unanswered(outage) => Some(outage),
        };
        if let Some(outage) = outage {
            let tolerance = core.config.outage_tolerance;
            if entry.event(&core, |queue, cx| {
                queue.unanswered(cx, place, tolerance, &outage)
            }) {
                return answer(Answer::Failed(failed(&debt, outage)));
            }
            // The queue has it: its clean-up must not wait for the end of the pause once the waiter has left (P3).
            drop(debt);
            let until = core.clock.now() + tolerance;
            core.recover(until, &mut retries).await;
        }
        match entry.event(&core, |queue, cx| queue.undecided(cx, place)) {
            Some(again) => debt = again,
            None => return,
        }
    }
}

fn timed_out(core: &Core, asked: &Parameters, debt: &Debt) -> AcquireError {
    AcquireError::TimedOut {
        name: debt.sync.name().clone(),
        waited: core.clock.now().since(asked.began),
        free_by: debt.leftover(),
        remark: None,
    }
}

/// The error of an acquire whose requests failed with `outage`.
pub(crate) fn failed(debt: &Debt, outage: Outage) -> AcquireError {
    let name = debt.sync.name().clone();
    match debt.leftover() {
        Some(free_by) => AcquireError::Ambiguous {
            name,
            free_by,
            outage,
        },
        // P8: every request was answered, or is known not to have run.
        None => AcquireError::Unavailable { name, outage },
    }
}
