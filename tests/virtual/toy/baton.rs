//! A toy primitive, written as CONTRIBUTING.md says: one holder, no token, no re-entry.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Call, Handle, Holdable, Kind, Part, Request, Script, Synchronizer,
};
use stanchion_client::{AcquireError, Client, Held, InvalidName, Lease, WireOwner};

static ACQUIRE: Script<1, 3> = Script::new("baton/acquire", include_str!("lua/acquire.lua"));
static RELEASE: Script<1, 3> = Script::new("baton/release", include_str!("lua/release.lua"));

/// A baton, as the core sees it.
#[derive(Debug)]
struct Description {
    about: About,
    publish: &'static str,
}

impl Synchronizer for Description {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        ACQUIRE.call(
            [self.about.name.as_bytes()],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
            ],
        )
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }
}

impl Holdable for Description {
    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Call {
        RELEASE.call(
            [self.about.name.as_bytes()],
            [
                owner.as_str().into(),
                (&*self.about.channel).into(),
                self.publish.into(),
            ],
        )
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
        let channel = name.prefixed("stanchion_baton__channel");
        let description = Description {
            publish: handle.publish_command(),
            about: About::new(Kind::new("baton"), name, channel),
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
