//! The watchdog: keeps held leases alive, in batches, and notices when one is over.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::{Core, Path};
use crate::clock::Moment;
use crate::hold::HoldState;
use crate::lease::Lease;
use crate::name::Name;
use crate::observe;
use crate::primitive::{Call, Item, Reply, Script};

/// Renewals in one script: large enough to amortise the call, small enough not to keep the server (about 1 us each).
const BATCH: usize = 256;

static RENEW: Script<1, 3> = Script::new("core/renew", include_str!("../lua/renew.lua"));

/// The renewal of a hold that is a field of the hash `name`.
#[must_use]
pub fn renew_field(name: &Name, field: &str, lease: Lease) -> Item {
    RENEW.item(
        [name.as_bytes().to_vec()],
        [field.into(), lease.millis().to_string().into_bytes()],
    )
}

/// Deals with holds whose time in the timetable has come. Sends without waiting.
pub(crate) fn tend(core: &Arc<Core>, holds: Vec<Arc<HoldState>>) {
    let now = core.clock.now();
    // One script touches one slot of a cluster; elsewhere slots do not matter.
    let mut groups: BTreeMap<(&'static str, u16), Vec<Due>> = BTreeMap::new();
    for hold in holds {
        if hold.lost_reason(now).is_some() {
            continue;
        }
        // Also while it is renewed: its end comes whether the server answers or not, and a shutdown finds it here.
        core.schedule_hold(&hold, hold.valid_until());
        if hold.wants_renewal()
            && let due = Due::new(hold.clone())
            && let Some(first) = due.items.first()
        {
            groups
                .entry((first.script(), core.slot_of(hold.sync.name())))
                .or_default()
                .push(due);
        }
    }
    for mut dues in groups.into_values() {
        while !dues.is_empty() {
            let mut items = 0;
            let fit = dues.iter().take_while(|due| {
                items += due.items.len();
                items <= BATCH
            });
            // One hold of very many names goes alone.
            let fit = fit.count().max(1);
            let rest = dues.split_off(fit);
            let batch = std::mem::replace(&mut dues, rest);
            let core = Arc::clone(core);
            // Each batch on its own: a failing one delays no other.
            let runner = Arc::clone(&core.runner);
            runner.serve(async move { renew_batch(&core, batch).await });
        }
    }
}

/// A hold to be renewed, and what the server is to be told.
struct Due {
    hold: Arc<HoldState>,
    items: Vec<Item>,
}

impl Due {
    fn new(hold: Arc<HoldState>) -> Self {
        let items = hold.sync.renewals(&hold.owner, hold.terms.lease);
        Self { hold, items }
    }
}

async fn renew_batch(core: &Arc<Core>, batch: Vec<Due>) {
    let sent = core.clock.now();
    let items: Vec<&Item> = batch.iter().flat_map(|due| &due.items).collect();
    // All in one slot, see `tend`.
    let Some(name) = batch.first().map(|due| due.hold.sync.name()) else {
        return;
    };
    let Some(call) = Item::call_all(core.not_after(name, sent), &items) else {
        return;
    };
    let reply = core.call(Path::Background, &call).await;
    if cfg!(feature = "metrics") {
        observe::renewed(core.clock.now().since(sent));
    }
    let mut results = match &reply {
        Ok(Reply::Array(results)) if results.len() == items.len() => results.as_slice(),
        other => {
            tracing::debug!(holds = batch.len(), ?other, "renewal failed");
            if let Ok(Reply::Int(-1)) = other {
                core.synchronise(Path::Background, name).await;
            }
            &[]
        }
    };
    for Due { hold, items } in &batch {
        let mine = results.get(..items.len()).unwrap_or_default();
        results = results.get(items.len()..).unwrap_or_default();
        match read_all(mine) {
            Some(true) => {
                hold.renewed(sent);
                core.schedule_hold(hold, sent + hold.terms.lease.renewal_interval());
            }
            Some(false) => drop(hold.gone()),
            // P5: no answer is no renewal; `valid_until` stays where it was.
            None => {
                let retry = core.clock.now() + hold.terms.lease.retry_interval();
                core.schedule_hold(hold, retry.min(hold.valid_until()));
            }
        }
    }
}

/// What the results for one hold say together: renewed if all are, gone if one is, otherwise unknown.
pub(crate) fn read_all(results: &[Reply]) -> Option<bool> {
    let numbers = || results.iter().map(|result| result.as_int());
    if numbers().any(|n| n == Some(0)) {
        return Some(false);
    }
    (!results.is_empty() && numbers().all(|n| n == Some(1))).then_some(true)
}

/// The script for one hold, for a caller that renews by itself.
pub(crate) fn renew_call(core: &Core, hold: &HoldState, sent: Moment) -> Option<Call> {
    let items = hold.sync.renewals(&hold.owner, hold.terms.lease);
    Item::call_all(
        core.not_after(hold.sync.name(), sent),
        &items.iter().collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_of_many_names_is_renewed_as_a_whole() {
        let read = |numbers: &[i64]| {
            read_all(&numbers.iter().copied().map(Reply::Int).collect::<Vec<_>>())
        };
        assert_eq!(read(&[1]), Some(true));
        assert_eq!(read(&[1, 1, 1]), Some(true));
        assert_eq!(read(&[1, 0, -1]), Some(false));
        assert_eq!(read(&[1, -1]), None);
        assert_eq!(read(&[]), None);
    }
}
