//! Tickets: a hold that one process detaches and another adopts, or nobody, or two that have copies of it. A kind of [`HOLDS`]: the
//! ticket itself is a holder, from its making to its adoption or the end of its lease.

use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, AdoptError, Lease, RenewError};
use stanchion_testkit::Kind;
use tokio::time::timeout;

use super::holds::HOLDS;
use super::{Play, end_of, explain, progress};
use crate::deeds::{Call, Pending, Saw};
use crate::family::{Contested, Guard};
use crate::held::OPERATION;
use crate::ledger::{Ledger, Posted, Scribe};
use crate::simulate::Finished;
use crate::work::Ask;

pub(crate) const TICKETS: Play = Play { judge, ..HOLDS };

/// Tickets hold in the history as processes with numbers from here on.
const IN_THE_POST: u32 = 900_000;

/// The margin by which a holder stops before its lease ends: 1 % at most here, and a timer.
const MARGIN: Duration = Duration::from_millis(45);

/// Less than every lease.
const QUICK: Duration = Duration::from_millis(400);

/// The ticket's own line in the history.
fn of(number: u64, scribe: Scribe<'_>) -> Scribe<'_> {
    Scribe {
        process: IN_THE_POST + u32::try_from(number).unwrap_or(u32::MAX - IN_THE_POST),
        task: 0,
        ..scribe
    }
}

/// Ends a hold in this process and posts its ticket. The release has been noted.
pub(crate) async fn detach(guard: Guard, lease: Lease, scribe: Scribe<'_>) {
    let ledger = scribe.ledger;
    let began = ledger.time.now();
    let number = u64::try_from(ledger.deeds().len()).unwrap_or(u64::MAX);
    let call = Pending::begin(ledger, (scribe.process, scribe.task), Call::Detach(number));
    let detached = guard.detach_for(lease).await;
    scribe.check_bound("detach", began, OPERATION);
    let ticket = match detached {
        Ok(ticket) => ticket,
        Err(error) => {
            call.end(Saw::Unknown);
            let until = began + lease.length();
            scribe.record_with(Kind::Ambiguous, None, Some(until + Duration::from_secs(2)));
            match error {
                RenewError::Rejected { .. } => scribe.complain(&format!("P8: {error}")),
                RenewError::Lost(_) => ledger.count("detach: lost"),
                _ => ledger.count("detach: unavailable"),
            }
            return;
        }
    };
    ledger.count("detached");
    call.end(Saw::Done);
    let line = of(number, scribe);
    line.record(Kind::Invoke);
    // Shorter than was asked for, where `max_hold` ends it sooner.
    let until = began + ticket.lease().length();
    let sure = until.saturating_sub(MARGIN);
    line.record_with(Kind::Granted, None, Some(sure));
    ledger.notes().post.push(Posted {
        number,
        ticket: ticket.to_string(),
        name: scribe.name.to_owned(),
        until: sure,
    });
}

/// Takes a ticket of this name out of the post, or a copy of it.
pub(crate) fn take(rng: &mut fastrand::Rng, ledger: &Ledger, name: &str) -> Option<Posted> {
    let mut notes = ledger.notes();
    let now = ledger.time.now();
    // Long after its end nobody is interested.
    notes.post.retain(|posted| posted.until + OPERATION > now);
    let mut of_name = notes.post.iter().filter(|posted| posted.name == name);
    let posted = of_name.next_back()?.clone();
    if rng.u8(..3) > 0 {
        notes.post.retain(|other| other.number != posted.number);
    }
    Some(posted)
}

/// Adopts it, as an acquire would acquire.
pub(crate) async fn adopt(
    lock: &Contested,
    posted: &Posted,
    options: AcquireOptions,
    ask: Ask,
    lease: Duration,
    scribe: Scribe<'_>,
) -> Option<Guard> {
    let ledger = scribe.ledger;
    let Ok(ticket) = posted.ticket.parse() else {
        scribe.complain("its ticket is none");
        return None;
    };
    let adopts = Call::Adopt(posted.number);
    let first = !ledger.deeds().iter().any(|deed| deed.call == adopts);
    let call = Pending::begin(ledger, (scribe.process, scribe.task), adopts);
    if first {
        // From here on it may be the adopter that holds.
        of(posted.number, scribe).record(Kind::ReleaseInvoke);
    }
    scribe.record(Kind::Invoke);
    let leftover = Some(ledger.time.now() + Duration::from_secs(3) + lease);
    let adopting = lock.adopt(&ticket, options);
    let adopted = match ask {
        Ask::Cancelled(limit) => match timeout(limit, adopting).await {
            Ok(adopted) => adopted,
            Err(_) => {
                ledger.count("adopt cancelled");
                call.end(Saw::Unknown);
                scribe.record_with(Kind::Ambiguous, None, leftover);
                return None;
            }
        },
        _ => adopting.await,
    };
    scribe.check_bound("adopt", call.began, OPERATION);
    match adopted {
        Ok(guard) => {
            ledger.count("adopted");
            call.end(Saw::Done);
            return Some(guard);
        }
        Err(AdoptError::Gone { .. }) => {
            ledger.count("adopt: gone");
            call.end(Saw::Gone);
            scribe.record(Kind::Failed);
        }
        Err(AdoptError::Failed(
            AcquireError::Unavailable { .. }
            | AcquireError::Ambiguous { .. }
            | AcquireError::TimedOut { .. },
        )) => {
            ledger.count("adopt: unavailable");
            call.end(Saw::Unknown);
            scribe.record_with(Kind::Ambiguous, None, leftover);
        }
        Err(error) => {
            call.end(Saw::Unknown);
            scribe.complain(&format!("P8: {error}"));
            scribe.record(Kind::Failed);
        }
    }
    None
}

fn judge(run: &Finished) -> Vec<String> {
    let mut faults = (HOLDS.judge)(run);
    let deeds = run.ledger.deeds().clone();
    let adoptions = |number| {
        deeds
            .iter()
            .filter(move |deed| deed.call == Call::Adopt(number))
    };
    for deed in &deeds {
        match (deed.call, deed.saw()) {
            (Call::Adopt(number), Saw::Done) => {
                let first = adoptions(number).find(|other| other.saw() == Saw::Done);
                if first != Some(deed) {
                    let detail = format!("ticket {number} by {first:?} and {deed:?}");
                    faults.push(explain(run, "AdoptedTwice", deed.ended(), &detail));
                }
            }
            (Call::Adopt(number), Saw::Gone) => {
                let made = deeds.iter().find(|made| made.call == Call::Detach(number));
                let until = run.ledger.history.events().iter().find_map(|event| {
                    let is_it = u64::from(event.process) == u64::from(IN_THE_POST) + number;
                    (is_it && event.kind == Kind::Granted).then_some(event.safe_until?)
                });
                let alone =
                    adoptions(number).all(|other| other == deed || other.began >= deed.ended());
                // One that took longer may have been adopted, and have lost it before it knew.
                let quick = deed.ended() < deed.began + QUICK;
                if alone && quick && until > Some(deed.ended()) {
                    let detail = format!("ticket {number}, {made:?}, is good until {until:?}");
                    faults.push(explain(run, "GoneEarly", end_of(run, deed), &detail));
                }
            }
            _ => {}
        }
    }
    faults.extend(progress(run, "adopted tickets", |deed| {
        matches!(deed.call, Call::Adopt(_)) && deed.saw() == Saw::Done
    }));
    faults
}
