//! The scripts that change the number of permits, the same for both kinds.

use stanchion_core::primitive::{Call, Operation, Script};

use super::script;
use crate::keys::Keys;

static INIT: Script<7, 4> = script!(
    "semaphore/init",
    "pool/free.lua" "pool/line.lua" "pool/crowd.lua" "pool/once.lua" "pool/total.lua" "pool/init.lua"
);
static ADJUST: Script<7, 4> = script!(
    "semaphore/adjust",
    "pool/free.lua" "pool/line.lua" "pool/crowd.lua" "pool/once.lua" "pool/total.lua" "pool/adjust.lua"
);
static TEND: Script<4, 2> = script!(
    "semaphore/tend",
    "pool/free.lua" "pool/line.lua" "pool/crowd.lua" "pool/tend.lua"
);
static LEAVE: Script<2, 3> = script!(
    "semaphore/leave",
    "pool/line.lua" "pool/crowd.lua" "pool/leave.lua"
);
static DRAIN: Script<3, 1> =
    script!("semaphore/drain", "pool/free.lua" "pool/once.lua" "pool/total.lua" "pool/drain.lua");
static DELETE: Script<5, 0> = script!("semaphore/delete", "pool/free.lua" "pool/delete.lua");

pub(crate) fn init(keys: &Keys, permits: u32, operation: &Operation) -> Call {
    INIT.call(
        [
            keys.name.as_bytes(),
            &keys.once(operation),
            &keys.held,
            &keys.total,
            &keys.line,
            &keys.crowd.line,
            &keys.crowd.wake,
        ],
        [
            u64::from(permits).into(),
            operation.not_after.into(),
            keys.crowd.base.as_slice().into(),
            keys.crowd.publish.into(),
        ],
    )
}

pub(crate) fn adjust(keys: &Keys, by: i64, operation: &Operation) -> Call {
    ADJUST.call(
        [
            keys.name.as_bytes(),
            &keys.once(operation),
            &keys.held,
            &keys.total,
            &keys.line,
            &keys.crowd.line,
            &keys.crowd.wake,
        ],
        [
            by.to_string().as_str().into(),
            operation.not_after.into(),
            keys.crowd.base.as_slice().into(),
            keys.crowd.publish.into(),
        ],
    )
}

pub(crate) fn drain(keys: &Keys, operation: &Operation) -> Call {
    DRAIN.call(
        [keys.name.as_bytes(), &keys.once(operation), &keys.total],
        [operation.not_after.into()],
    )
}

pub(crate) fn leave(keys: &Keys) -> Call {
    LEAVE.call(
        [&keys.crowd.line, &keys.crowd.wake],
        [
            keys.crowd.client.as_str().into(),
            keys.crowd.base.as_slice().into(),
            keys.crowd.publish.into(),
        ],
    )
}

pub(crate) fn tend(keys: &Keys) -> Call {
    TEND.call(
        [
            keys.name.as_bytes(),
            &keys.line,
            &keys.crowd.line,
            &keys.crowd.wake,
        ],
        [keys.crowd.base.as_slice().into(), keys.crowd.publish.into()],
    )
}

pub(crate) fn delete(keys: &Keys) -> Call {
    DELETE.call(
        [
            keys.name.as_bytes(),
            &keys.held,
            &keys.line,
            &keys.slow,
            &keys.total,
        ],
        [],
    )
}
