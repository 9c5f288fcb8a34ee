//! A toy primitive, written as CONTRIBUTING.md says: one holder, no token, no re-entry.

use std::sync::Arc;

use stanchion_client::primitive::{Call, Handle, Kind, Part, Request, Script, Synchronizer};
use stanchion_client::{AcquireError, Client, Held, InvalidName, Lease, Name, WireOwner};

static ACQUIRE: Script<1, 3> = Script::new("baton/acquire", include_str!("lua/acquire.lua"));
static RELEASE: Script<1, 3> = Script::new("baton/release", include_str!("lua/release.lua"));

/// A baton, as the core sees it.
#[derive(Debug)]
struct Description {
    name: Name,
    channel: Vec<u8>,
    publish: &'static str,
}

impl Synchronizer for Description {
    fn kind(&self) -> Kind {
        Kind::new("baton")
    }

    fn name(&self) -> &Name {
        &self.name
    }

    fn channel(&self) -> &[u8] {
        &self.channel
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        ACQUIRE.call(
            [self.name.as_bytes()],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
            ],
        )
    }

    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        let call = RELEASE.call(
            [self.name.as_bytes()],
            [
                owner.as_str().into(),
                self.channel.as_slice().into(),
                self.publish.into(),
            ],
        );
        Some(call)
    }
}

/// A held [`Baton`]. Release it, or drop it: the release then runs in the background.
pub(crate) type BatonGuard = Held<Baton>;

/// A baton that one process at a time carries.
#[derive(Clone, Debug)]
pub(crate) struct Baton {
    handle: Handle,
    sync: Arc<dyn Synchronizer>,
}

impl Baton {
    /// The baton called `name`. Sends nothing.
    pub(crate) fn new(client: &Client, name: &str) -> Result<Self, InvalidName> {
        let handle = Handle::of(client);
        let name = client.name(name)?;
        let description = Description {
            channel: name.prefixed("stanchion_baton__channel"),
            publish: handle.publish_command(),
            name,
        };
        Ok(Self {
            handle,
            sync: Arc::new(description),
        })
    }

    /// Waits until the baton is free.
    pub(crate) async fn acquire(&self) -> Result<BatonGuard, AcquireError> {
        let part = Part::new(&self.handle, &self.sync, Lease::default().length());
        part.acquire().await
    }
}
