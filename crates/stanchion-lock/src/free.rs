//! The event that a lock becomes free, for tasks that wait for it without acquiring the lock.

use stanchion_client::Name;
use stanchion_client::primitive::{
    About, Call, Kind, Line, Request, Script, Sharing, Synchronizer,
};

static FREE: Script<1, 0> = Script::new("lock/free", include_str!("../lua/free.lua"));

/// The event that a lock is free, as the core sees it.
#[derive(Debug)]
pub(crate) struct Free {
    about: About,
}

impl Free {
    pub(crate) fn of(name: &Name, line: &Line) -> Self {
        // Redisson's channel: a release that leaves the lock free is published there.
        let channel = line.base.as_slice();
        Self {
            about: About {
                sharing: Sharing::Event,
                ..About::new(Kind::new("lock_free"), name.clone(), channel)
            },
        }
    }
}

impl Synchronizer for Free {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, _request: &Request<'_>) -> Call {
        FREE.call([self.about.name.as_bytes()], [])
    }
}
