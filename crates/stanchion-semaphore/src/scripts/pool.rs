//! The scripts that change the number of permits, the same for both kinds.

use stanchion_client::primitive::{Call, Operation, Script};

use super::script;
use crate::keys::{Ephemeral, Keys};

static INIT: Script<8, 5> = script!(
    "semaphore/init",
    "pool/free.lua" "pool/idle.lua" "pool/line.lua" "pool/crowd.lua" "pool/once.lua" "pool/total.lua" "pool/init.lua"
);
static ADJUST: Script<8, 5> = script!(
    "semaphore/adjust",
    "pool/free.lua" "pool/idle.lua" "pool/line.lua" "pool/crowd.lua" "pool/once.lua" "pool/total.lua" "pool/adjust.lua"
);
static TEND: Script<6, 2> = script!(
    "semaphore/tend",
    "pool/free.lua" "pool/idle.lua" "pool/line.lua" "pool/crowd.lua" "pool/tend.lua"
);
static LEAVE: Script<2, 3> = script!(
    "semaphore/leave",
    "pool/line.lua" "pool/crowd.lua" "pool/leave.lua"
);
static DRAIN: Script<5, 2> = script!("semaphore/drain", "pool/free.lua" "pool/idle.lua" "pool/once.lua" "pool/total.lua" "pool/drain.lua");
static DELETE: Script<6, 2> = script!("semaphore/delete", "pool/free.lua" "pool/delete.lua");

pub(crate) fn init(keys: &Keys, permits: u32, operation: &Operation) -> Call {
    let [free, held, line, crowd, wake] = keys.releasing();
    let [base, publish] = keys.common();
    let made = keys.ephemeral.map(|it| Ephemeral { permits, ..it }.text());
    INIT.call(
        [
            free,
            &keys.once(operation),
            held,
            &keys.total,
            line,
            crowd,
            wake,
            &keys.idle,
        ],
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
    let [free, held, line, crowd, wake] = keys.releasing();
    let [base, publish] = keys.common();
    ADJUST.call(
        [
            free,
            &keys.once(operation),
            held,
            &keys.total,
            line,
            crowd,
            wake,
            &keys.idle,
        ],
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

pub(crate) fn leave(keys: &Keys) -> Call {
    let [base, publish] = keys.common();
    LEAVE.call(
        [&keys.crowd.line, &keys.crowd.wake],
        [keys.crowd.client.as_str().into(), base, publish],
    )
}

pub(crate) fn tend(keys: &Keys) -> Call {
    let [free, held, line, crowd, wake] = keys.releasing();
    let idle = keys.idle_of_plain();
    TEND.call([free, line, crowd, wake, held, idle], keys.common())
}

pub(crate) fn delete(keys: &Keys) -> Call {
    DELETE.call(
        [
            keys.name.as_bytes(),
            &keys.held,
            &keys.line,
            &keys.slow,
            &keys.total,
            &keys.idle,
        ],
        keys.common(),
    )
}
