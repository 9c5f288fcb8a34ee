//! The scripts that change the number of permits, the same for both kinds.

use stanchion_core::primitive::{Call, Operation, Script};

use super::script;
use crate::keys::Keys;

static INIT: Script<4, 4> =
    script!("semaphore/init", "pool/free.lua" "pool/once.lua" "pool/total.lua" "pool/init.lua");
static ADJUST: Script<4, 4> =
    script!("semaphore/adjust", "pool/free.lua" "pool/once.lua" "pool/total.lua" "pool/adjust.lua");
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
        ],
        [
            u64::from(permits).into(),
            operation.not_after.into(),
            keys.channel.as_slice().into(),
            keys.publish.into(),
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
        ],
        [
            by.to_string().as_str().into(),
            operation.not_after.into(),
            keys.channel.as_slice().into(),
            keys.publish.into(),
        ],
    )
}

pub(crate) fn drain(keys: &Keys, operation: &Operation) -> Call {
    DRAIN.call(
        [keys.name.as_bytes(), &keys.once(operation), &keys.total],
        [operation.not_after.into()],
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
