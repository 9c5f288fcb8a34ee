//! The scripts that change the number of permits, the same for both kinds.

use stanchion_client::primitive::{Call, Operation, Script};

use super::script;
use crate::keys::{Ephemeral, Keys};

pub static INIT: Script<6, 5> = script!(
    "semaphore/init",
    "pool/free.lua" "pool/idle.lua" "pool/announced.lua" "pool/once.lua" "pool/total.lua" "pool/init.lua"
);
pub static ADJUST: Script<6, 5> = script!(
    "semaphore/adjust",
    "pool/free.lua" "pool/idle.lua" "pool/announced.lua" "pool/once.lua" "pool/total.lua" "pool/adjust.lua"
);
pub static TEND: Script<6, 3> = script!(
    "semaphore/tend",
    "pool/free.lua" "pool/idle.lua" "pool/tend.lua" => queued
);
pub static DRAIN: Script<5, 2> = script!("semaphore/drain", "pool/free.lua" "pool/idle.lua" "pool/once.lua" "pool/total.lua" "pool/drain.lua");
pub static DELETE: Script<5, 2> = script!("semaphore/delete", "pool/free.lua" "pool/delete.lua");

pub(crate) fn init(keys: &Keys, permits: u32, operation: &Operation) -> Call {
    let [free, held, line, _, _, idle] = keys.serving();
    let [base, publish] = keys.common();
    let made = keys.ephemeral.map(|it| Ephemeral { permits, ..it }.text());
    INIT.call(
        [free, &keys.once(operation), held, &keys.total, line, idle],
        [
            u64::from(permits).into(),
            operation.not_after.into(),
            base,
            publish,
            made.as_deref().unwrap_or_default().into(),
        ],
    )
}

pub(crate) fn adjust(keys: &Keys, by: i64, operation: &Operation) -> Call {
    let [free, held, line, _, _, idle] = keys.serving();
    let [base, publish] = keys.common();
    ADJUST.call(
        [free, &keys.once(operation), held, &keys.total, line, idle],
        [
            by.to_string().as_str().into(),
            operation.not_after.into(),
            base,
            publish,
            keys.made().as_str().into(),
        ],
    )
}

pub(crate) fn drain(keys: &Keys, operation: &Operation) -> Call {
    DRAIN.call(
        [
            keys.name.as_bytes(),
            &keys.once(operation),
            &keys.total,
            &keys.held,
            &keys.idle,
        ],
        [operation.not_after.into(), keys.made().as_str().into()],
    )
}

/// `heard`: the client that hears Redisson's releases for the queue has heard one.
pub(crate) fn tend(keys: &Keys, heard: bool) -> Call {
    let [base, publish] = keys.common();
    let sentry = if heard { keys.queue.client() } else { b"" };
    TEND.call(keys.serving(), [base, publish, sentry.into()])
}

pub(crate) fn delete(keys: &Keys) -> Call {
    let [free, held, _, _, granted, idle] = keys.serving();
    DELETE.call([free, held, granted, &keys.total, idle], keys.common())
}
