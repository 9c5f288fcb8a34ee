//! The watchdog: keeps held leases alive, in batches, and notices when one is over.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::{Core, Path};
use crate::error::LostReason;
use crate::hold::HoldState;
use crate::observe;
use crate::options::Renewal;
use crate::primitive::{Arg, Reply, Script};

/// Renewals in one script: large enough to amortise the call, small enough not to keep the server (about 1 us each).
const BATCH: usize = 256;

static RENEW: Script<1, 3> = Script::new("core/renew", include_str!("../lua/renew.lua"));

/// Deals with holds whose time in the timetable has come. Sends without waiting.
pub(crate) fn tend(core: &Arc<Core>, holds: Vec<Arc<HoldState>>) {
    let now = core.clock.now();
    // One script touches one slot of a cluster; elsewhere slots do not matter.
    let mut by_slot: BTreeMap<u16, Vec<Arc<HoldState>>> = BTreeMap::new();
    for hold in holds {
        if hold.lost_reason(now).is_some() {
            hold.entry
                .freed(core, &hold, crate::waiting::Rivals::Unknown);
        } else if hold.terms.renewal == Renewal::Watchdog && !hold.is_at_its_end() {
            by_slot
                .entry(core.slot_of(hold.sync.name()))
                .or_default()
                .push(hold);
        } else {
            core.schedule_hold(&hold, hold.valid_until());
        }
    }
    for holds in by_slot.into_values() {
        for batch in holds.chunks(BATCH) {
            let (core, batch) = (Arc::clone(core), batch.to_vec());
            // Each batch on its own: a failing one delays no other.
            let runner = Arc::clone(&core.runner);
            runner.serve(async move { renew_batch(&core, batch).await });
        }
    }
}

async fn renew_batch(core: &Arc<Core>, batch: Vec<Arc<HoldState>>) {
    let sent = core.clock.now();
    let not_after = core.not_after(sent);
    let keys: Vec<&[u8]> = batch
        .iter()
        .map(|hold| hold.sync.name().as_bytes())
        .collect();
    let items = batch.iter().flat_map(|hold| {
        [
            Arg::from(hold.owner.as_str()),
            Arg::Int(hold.terms.lease.millis()),
        ]
    });
    let call = RENEW.batch(&keys, std::iter::once(Arg::Int(not_after)).chain(items));
    let reply = core.link(Path::Background).call(&call).await;
    if cfg!(feature = "metrics") {
        observe::renewed(core.clock.now().since(sent));
    }
    let results = match &reply {
        Ok(Reply::Array(results)) if results.len() == batch.len() => results.as_slice(),
        other => {
            tracing::debug!(holds = batch.len(), ?other, "renewal failed");
            if let Ok(Reply::Int(-1)) = other {
                core.link(Path::Background).synchronise().await;
            }
            &[]
        }
    };
    for (i, hold) in batch.iter().enumerate() {
        match results.get(i).and_then(Reply::as_int) {
            Some(1) => {
                hold.renewed(sent);
                core.schedule_hold(hold, sent + hold.terms.lease.renewal_interval());
            }
            Some(0) => {
                hold.lose(LostReason::Gone);
                hold.entry
                    .freed(core, hold, crate::waiting::Rivals::Unknown);
            }
            // P5: no answer is no renewal; `valid_until` stays where it was.
            _ => {
                let retry = core.clock.now() + hold.terms.lease.retry_interval();
                core.schedule_hold(hold, retry.min(hold.valid_until()));
            }
        }
    }
}

/// The script for one hold, for a caller that renews by itself.
pub(crate) fn renew_call(
    core: &Core,
    hold: &HoldState,
    sent: crate::clock::Moment,
) -> crate::primitive::Call {
    let args = [
        Arg::Int(core.not_after(sent)),
        Arg::from(hold.owner.as_str()),
        Arg::Int(hold.terms.lease.millis()),
    ];
    RENEW.call([hold.sync.name().as_bytes()], args)
}
