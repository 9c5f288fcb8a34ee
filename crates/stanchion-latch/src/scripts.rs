//! The scripts, and the description of a latch that calls them.

use std::time::Duration;

use stanchion_client::primitive::{
    About, Arg, Call, Handle, Kind, Operation, Reply, Request, Script, Sharing, Synchronizer,
    Visible, natural, unexpected, whole_millis,
};
use stanchion_client::{IdleExpiry, Name, NameState, QueryError};

/// Builds a script. In front are the functions that read the count and keep an ephemeral latch.
macro_rules! script {
    ($name:literal, $($file:literal)+) => {
        Script::new(
            $name,
            concat!(
                include_str!("../lua/counted.lua"),
                $(include_str!(concat!("../lua/", $file))),+
            ),
        )
    };
}

pub static WAIT: Script<3, 2> = script!("latch/wait", "idle.lua" "wait.lua");
pub static ARM: Script<4, 5> = script!("latch/arm", "idle.lua" "arm.lua");
pub static COUNT_DOWN: Script<3, 4> = script!("latch/count_down", "idle.lua" "count_down.lua");
pub static DELETE: Script<4, 4> = script!("latch/delete", "delete.lua");
pub static LOOK: Script<3, 0> = script!("latch/look", "idle.lua" "look.lua");
pub static COUNT: Script<1, 0> = script!("latch/count", "count.lua");

/// The time for which the mark of a delete stays. A waiter sends a request at least once in a poll interval (5 s). It gives up when the
/// server was out of reach for the outage tolerance (30 s). So within a minute each waiter has seen the mark or returned an error.
pub(crate) const MARK: Duration = Duration::from_secs(60);

/// A latch, as the core sees it.
#[derive(Debug)]
pub(crate) struct Description {
    about: About,
    /// The key of the mark of a delete.
    deleted: Vec<u8>,
    /// The key next to an ephemeral latch, with its idle time.
    idle: Vec<u8>,
    /// The prefix of the keys of operations.
    once: Vec<u8>,
    publish: &'static str,
    /// The time for which each request of a waiter keeps an ephemeral latch.
    kept: Duration,
}

impl Description {
    pub(crate) fn new(handle: &Handle, name: Name) -> Self {
        // A waiter sends its next request within these two times, or gives up. Twice the sum, so that no request comes just at the end.
        let asks = handle.poll_interval() + handle.outage_tolerance();
        // Redisson wraps this one always, also a name that has braces.
        let channel = name.braced("redisson_countdownlatch__channel__");
        Self {
            deleted: name.prefixed("stanchion_latch_deleted"),
            idle: name.prefixed("stanchion_latch_idle"),
            once: name.prefixed("stanchion_once"),
            publish: handle.publish_command(),
            kept: MARK.max(asks.saturating_mul(2)),
            about: About {
                sharing: Sharing::Event,
                ..About::new(Kind::new("latch"), name, channel)
            },
        }
    }

    pub(crate) const fn name(&self) -> &Name {
        &self.about.name
    }

    fn once(&self, operation: &Operation) -> Vec<u8> {
        [
            &self.once,
            b":".as_slice(),
            operation.id.as_str().as_bytes(),
        ]
        .concat()
    }

    fn publish(&self) -> [Arg<'_>; 2] {
        [(&*self.about.channel).into(), self.publish.into()]
    }

    pub(crate) fn arm(
        &self,
        count: u64,
        expiry: Option<IdleExpiry>,
        operation: &Operation,
    ) -> Call {
        let [channel, publish] = self.publish();
        let idle = expiry.map_or(0, IdleExpiry::millis);
        ARM.call(
            [
                self.name().as_bytes(),
                &self.once(operation),
                &self.deleted,
                &self.idle,
            ],
            [
                count.into(),
                operation.not_after.into(),
                channel,
                publish,
                idle.into(),
            ],
        )
    }

    pub(crate) fn count_down(&self, by: u64, operation: &Operation) -> Call {
        let [channel, publish] = self.publish();
        COUNT_DOWN.call(
            [self.name().as_bytes(), &self.once(operation), &self.idle],
            [by.into(), operation.not_after.into(), channel, publish],
        )
    }

    pub(crate) fn delete(&self, operation: &Operation) -> Call {
        let [channel, publish] = self.publish();
        DELETE.call(
            [
                self.name().as_bytes(),
                &self.once(operation),
                &self.deleted,
                &self.idle,
            ],
            [
                operation.not_after.into(),
                whole_millis(MARK).into(),
                channel,
                publish,
            ],
        )
    }

    pub(crate) fn count(&self) -> Call {
        COUNT.call([self.name().as_bytes()], [])
    }
}

impl Visible for Description {
    fn subject(&self) -> (Kind, &Name) {
        (self.about.kind, self.name())
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        vec![self.name().as_bytes().to_vec(), self.deleted.clone()]
    }

    fn look(&self) -> Call {
        LOOK.call([self.name().as_bytes(), &self.deleted, &self.idle], [])
    }

    fn see(&self, reply: &Reply) -> Result<NameState, QueryError> {
        let state = || {
            let [count, deleted] = reply.as_array()? else {
                return None;
            };
            Some(NameState::latch(natural(count)?, natural(deleted)))
        };
        state().ok_or_else(|| unexpected(reply))
    }
}

impl Synchronizer for Description {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        WAIT.call(
            [self.name().as_bytes(), &self.deleted, &self.idle],
            [request.since.into(), whole_millis(self.kept).into()],
        )
    }
}
