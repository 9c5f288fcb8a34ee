//! Holds that are one field of a hash, the owner: their renewal and their adoption.

use crate::description::Request;
use crate::lease::Lease;
use crate::name::Name;
use stanchion_transport::{Call, Item, Script};

static RENEW: Script<1, 3> = Script::new("core/renew", include_str!("../lua/renew.lua"));

/// The renewal of a hold that is a field of the hash `name`.
#[must_use]
pub fn renew_field(name: &Name, field: &str, lease: Lease) -> Item {
    RENEW.item(
        [name.as_bytes().to_vec()],
        [field.into(), lease.millis().to_string().into_bytes()],
    )
}

static ADOPT: Script<2, 4> = Script::new(
    "core/adopt",
    crate::minting!(include_str!("../lua/adopt.lua")),
);

/// The script of a request that takes over a detached hold, where a hold is a field of the hash `name`; `None` for every other request.
#[must_use]
pub fn adopt_field(name: &Name, fence: &[u8], request: &Request<'_>) -> Option<Call> {
    let from = request.from?;
    let call = ADOPT.call(
        [name.as_bytes(), fence],
        [
            from.as_str().into(),
            request.owner.as_str().into(),
            request.lease.millis().into(),
            request.not_after.into(),
        ],
    );
    Some(call)
}
