//! Holds that are one field of a hash, named by the owner: their renewal, and the change of their owner by a ticket.

use crate::description::Request;
use crate::lease::Lease;
use crate::name::Name;
use crate::wire_owner::WireOwner;
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

/// The script that moves the hold of `from` to the requester, the owner of a ticket, with its token and for its lease alone.
pub(crate) fn detach_field(name: &Name, from: &WireOwner, to: &Request<'_>) -> Call {
    // The name takes the place of a counter, so no token is minted.
    pass(name, name.as_bytes(), from, to)
}

fn pass(name: &Name, fence: &[u8], from: &WireOwner, to: &Request<'_>) -> Call {
    ADOPT.call(
        [name.as_bytes(), fence],
        [
            from.as_str().into(),
            to.owner.as_str().into(),
            to.lease.millis().into(),
            to.not_after.into(),
        ],
    )
}

/// The script of a request that takes over a detached hold, where a hold is a field of the hash `name`; `None` for every other request.
#[must_use]
pub fn adopt_field(name: &Name, fence: &[u8], request: &Request<'_>) -> Option<Call> {
    Some(pass(name, fence, request.from?, request))
}
