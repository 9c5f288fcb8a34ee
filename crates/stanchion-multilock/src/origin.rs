//! An order of servers that all clients agree on.
//!
//! A client's own knowledge of its server gives none: addresses and seeds are configuration, the `run_id` changes with each
//! restart and failover, and two databases share both. So each keyspace stores a number, which follows the locks: to the
//! replicas, and to the next owner of the slot.

use std::sync::Arc;

use stanchion_client::primitive::{
    Call, Kind, Part, Request, Script, Sharing, Synchronizer, Tenure,
};
use stanchion_client::{AcquireError, AcquireOptions, FencingToken, Lease, Name, WireOwner};

static ORIGIN: Script<1, 1> = Script::new("multilock/origin", include_str!("../lua/origin.lua"));

/// The largest number that Lua and JSON represent exactly.
const LARGEST: u64 = 1 << 53;

/// Returns the number of the keyspace of `part`. Waits for the server as an acquire does.
pub(crate) async fn origin_of(
    part: &Part,
    options: &AcquireOptions,
) -> Result<Option<FencingToken>, AcquireError> {
    let origin: Arc<dyn Synchronizer> = Arc::new(Origin::of(part.sync.name()));
    let seen = part
        .handle
        .acquire(&origin, options, Lease::default().length());
    Ok(seen.await?.fencing_token())
}

/// The number, as a synchronizer that always grants and leaves no hold.
#[derive(Debug)]
struct Origin {
    name: Name,
    key: Vec<u8>,
    /// The number to store if there is none yet.
    fresh: u64,
}

impl Origin {
    fn of(name: &Name) -> Self {
        Self {
            name: name.clone(),
            key: name.slot_key("stanchion_origin"),
            fresh: fastrand::u64(1..LARGEST),
        }
    }
}

impl Synchronizer for Origin {
    fn kind(&self) -> Kind {
        Kind::new("origin")
    }

    fn name(&self) -> &Name {
        &self.name
    }

    /// A channel without waiters: it is never busy.
    fn channel(&self) -> &[u8] {
        &self.key
    }

    fn sharing(&self) -> Sharing {
        Sharing::Together
    }

    fn tenure(&self) -> Tenure {
        Tenure::Nothing
    }

    fn acquire(&self, _request: &Request<'_>) -> Call {
        ORIGIN.call([self.key.as_slice()], [self.fresh.into()])
    }

    fn release(&self, _owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        None
    }
}
