//! An order of servers that all clients agree on.
//!
//! A client's own knowledge of its server gives none: addresses and seeds are configuration, the `run_id` changes with each
//! restart and failover, and two databases share both. So each keyspace stores a number, which follows the locks: to the
//! replicas, and to the next owner of the slot.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Call, Kind, Part, Request, Script, Sharing, Synchronizer,
};
use stanchion_client::{AcquireError, AcquireOptions, FencingToken, Lease, Name};

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
    about: About,
    /// The number to store if there is none yet.
    fresh: u64,
}

impl Origin {
    fn of(name: &Name) -> Self {
        // The key is the name of a channel without waiters, too: the origin is never busy.
        let key = name.slot_key("stanchion_origin");
        Self {
            about: About {
                sharing: Sharing::Together,
                ..About::new(Kind::new("origin"), name.clone(), key)
            },
            fresh: fastrand::u64(1..LARGEST),
        }
    }
}

impl Synchronizer for Origin {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, _request: &Request<'_>) -> Call {
        ORIGIN.call([&*self.about.channel], [self.fresh.into()])
    }
}
