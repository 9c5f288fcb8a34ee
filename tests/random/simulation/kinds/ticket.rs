//! Tickets: one process detaches a hold. Another process adopts the ticket, or two processes with copies try to, or none does. A kind
//! of [`HOLDS`]: in the history the ticket is a holder until its adoption or the end of its lease.

use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, AdoptError, Lease, RenewError};
use stanchion_testkit::Kind;
use tokio::time::timeout;

use super::holds::HOLDS;
use super::{Workload, end_of, explain, progress};
use crate::simulation::held::OPERATION_TIMEOUT;
use crate::simulation::ledger::{Ledger, OfferedTicket, Scribe};
use crate::simulation::operations::{Call, CallResult, Pending};
use crate::simulation::primitives::{Contested, Guard};
use crate::simulation::simulate::Finished;
use crate::simulation::work::Patience;

pub(crate) const TICKETS: Workload = Workload { judge, ..HOLDS };

/// In the history a ticket is a process with a number from here on.
const TICKET_PROCESSES: u32 = 900_000;

/// The margin by which a holder stops before the end of its lease: 1 % of the longest lease here, and a timer.
const MARGIN: Duration = Duration::from_millis(45);

/// Shorter than every lease.
const QUICK: Duration = Duration::from_millis(400);

/// Returns the recorder of the ticket as a holder.
fn of(number: u64, scribe: Scribe<'_>) -> Scribe<'_> {
    Scribe {
        process: TICKET_PROCESSES + u32::try_from(number).unwrap_or(u32::MAX - TICKET_PROCESSES),
        task: 0,
        ..scribe
    }
}

/// Detaches a hold and offers its ticket. The release is already recorded.
pub(crate) async fn detach(guard: Guard, lease: Lease, scribe: Scribe<'_>) {
    let ledger = scribe.ledger;
    let began = ledger.time.now();
    let number = u64::try_from(ledger.operations().len()).unwrap_or(u64::MAX);
    let call = Pending::begin(ledger, (scribe.process, scribe.task), Call::Detach(number));
    let detached = guard.detach_for(lease).await;
    scribe.check_bound("detach", began, OPERATION_TIMEOUT);
    let ticket = match detached {
        Ok(ticket) => ticket,
        Err(error) => {
            call.end(CallResult::Unknown);
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
    call.end(CallResult::Done);
    let line = of(number, scribe);
    line.record(Kind::Invoke);
    // Shorter than requested if `max_hold` ends the hold earlier.
    let until = began + ticket.lease().length();
    let sure = until.saturating_sub(MARGIN);
    line.record_with(Kind::Granted, None, Some(sure));
    ledger.notes().offers.push(OfferedTicket {
        number,
        ticket: ticket.to_string(),
        name: scribe.name.to_owned(),
        until: sure,
    });
}

/// Takes an offered ticket of this name, or a copy of it.
pub(crate) fn take(rng: &mut fastrand::Rng, ledger: &Ledger, name: &str) -> Option<OfferedTicket> {
    let mut notes = ledger.notes();
    let now = ledger.time.now();
    // Removes tickets whose hold ended long ago.
    notes
        .offers
        .retain(|offered| offered.until + OPERATION_TIMEOUT > now);
    let mut of_name = notes.offers.iter().filter(|offered| offered.name == name);
    let offered = of_name.next_back()?.clone();
    if rng.u8(..3) > 0 {
        notes.offers.retain(|other| other.number != offered.number);
    }
    Some(offered)
}

/// Adopts the ticket instead of an acquire.
pub(crate) async fn adopt(
    lock: &Contested,
    offered: &OfferedTicket,
    options: AcquireOptions,
    patience: Patience,
    lease: Duration,
    scribe: Scribe<'_>,
) -> Option<Guard> {
    let ledger = scribe.ledger;
    let Ok(ticket) = offered.ticket.parse() else {
        scribe.complain("the ticket cannot be parsed");
        return None;
    };
    let adopts = Call::Adopt(offered.number);
    let first = !ledger
        .operations()
        .iter()
        .any(|operation| operation.call == adopts);
    let call = Pending::begin(ledger, (scribe.process, scribe.task), adopts);
    if first {
        // From here on the adopter may be the holder.
        of(offered.number, scribe).record(Kind::ReleaseInvoke);
    }
    scribe.record(Kind::Invoke);
    let leftover = Some(ledger.time.now() + Duration::from_secs(3) + lease);
    let adopting = lock.adopt(&ticket, options);
    let adopted = match patience {
        Patience::Cancelled(limit) => match timeout(limit, adopting).await {
            Ok(adopted) => adopted,
            Err(_) => {
                ledger.count("adopt cancelled");
                call.end(CallResult::Unknown);
                scribe.record_with(Kind::Ambiguous, None, leftover);
                return None;
            }
        },
        _ => adopting.await,
    };
    scribe.check_bound("adopt", call.began, OPERATION_TIMEOUT);
    match adopted {
        Ok(guard) => {
            ledger.count("adopted");
            call.end(CallResult::Done);
            return Some(guard);
        }
        Err(AdoptError::Gone { .. }) => {
            ledger.count("adopt: gone");
            call.end(CallResult::Gone);
            scribe.record(Kind::Failed);
        }
        Err(AdoptError::Failed(
            AcquireError::Unavailable { .. }
            | AcquireError::Ambiguous { .. }
            | AcquireError::TimedOut { .. },
        )) => {
            ledger.count("adopt: unavailable");
            call.end(CallResult::Unknown);
            scribe.record_with(Kind::Ambiguous, None, leftover);
        }
        Err(error) => {
            call.end(CallResult::Unknown);
            scribe.complain(&format!("P8: {error}"));
            scribe.record(Kind::Failed);
        }
    }
    None
}

fn judge(run: &Finished) -> Vec<String> {
    let mut faults = (HOLDS.judge)(run);
    let operations = run.ledger.operations().clone();
    let adoptions = |number| {
        operations
            .iter()
            .filter(move |operation| operation.call == Call::Adopt(number))
    };
    for operation in &operations {
        match (operation.call, operation.result()) {
            (Call::Adopt(number), CallResult::Done) => {
                let first = adoptions(number).find(|other| other.result() == CallResult::Done);
                if first != Some(operation) {
                    let detail = format!("ticket {number} by {first:?} and {operation:?}");
                    faults.push(explain(run, "AdoptedTwice", operation.ended(), &detail));
                }
            }
            (Call::Adopt(number), CallResult::Gone) => {
                let made = operations
                    .iter()
                    .find(|made| made.call == Call::Detach(number));
                let until = run.ledger.history.events().iter().find_map(|event| {
                    let is_it = u64::from(event.process) == u64::from(TICKET_PROCESSES) + number;
                    (is_it && event.kind == Kind::Granted).then_some(event.safe_until?)
                });
                let alone = adoptions(number)
                    .all(|other| other == operation || other.began >= operation.ended());
                // A slower call may have adopted the ticket and lost the hold before the reply.
                let quick = operation.ended() < operation.began + QUICK;
                if alone && quick && until > Some(operation.ended()) {
                    let detail = format!("ticket {number}, {made:?}, is good until {until:?}");
                    faults.push(explain(run, "GoneEarly", end_of(run, operation), &detail));
                }
            }
            _ => {}
        }
    }
    faults.extend(progress(run, "adopted tickets", |operation| {
        matches!(operation.call, Call::Adopt(_)) && operation.result() == CallResult::Done
    }));
    faults
}
