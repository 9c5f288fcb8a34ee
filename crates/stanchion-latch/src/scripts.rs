//! The scripts, and the description of a latch that calls them.

use std::time::Duration;

use stanchion_core::primitive::{
    Arg, Call, Item, Kind, Operation, Reply, Request, Script, Sharing, Synchronizer, Tenure,
    Visible, natural, unexpected, whole_millis,
};
use stanchion_core::{Lease, Name, NameState, QueryError, WireOwner};

/// Builds a script, with the function in front that reads the count.
macro_rules! script {
    ($name:literal, $file:literal) => {
        Script::new(
            $name,
            concat!(
                include_str!("../lua/counted.lua"),
                include_str!(concat!("../lua/", $file))
            ),
        )
    };
}

static WAIT: Script<2, 1> = script!("latch/wait", "wait.lua");
static ARM: Script<3, 4> = script!("latch/arm", "arm.lua");
static COUNT_DOWN: Script<2, 4> = script!("latch/count_down", "count_down.lua");
static DELETE: Script<3, 4> = script!("latch/delete", "delete.lua");
static LOOK: Script<2, 0> = script!("latch/look", "look.lua");
static COUNT: Script<1, 0> = script!("latch/count", "count.lua");

/// The time that the mark of a delete stays. A waiter asks at least once in a poll interval (5 s) and gives up when the
/// server was out of reach for the outage tolerance (30 s): within a minute each has seen the mark or returned an error.
pub(crate) const MARK: Duration = Duration::from_secs(60);

/// A latch, as the core sees it.
#[derive(Debug)]
pub(crate) struct Description {
    name: Name,
    channel: Vec<u8>,
    /// The key of the mark of a delete.
    deleted: Vec<u8>,
    /// The prefix of the keys of operations.
    once: Vec<u8>,
    publish: &'static str,
}

impl Description {
    pub(crate) fn new(name: Name, publish: &'static str) -> Self {
        Self {
            // Redisson wraps this one always, also a name that has braces.
            channel: name.braced("redisson_countdownlatch__channel__"),
            deleted: name.prefixed("stanchion_latch_deleted"),
            once: name.prefixed("stanchion_once"),
            publish,
            name,
        }
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
        [self.channel.as_slice().into(), self.publish.into()]
    }

    pub(crate) fn arm(&self, count: u64, operation: &Operation) -> Call {
        let [channel, publish] = self.publish();
        ARM.call(
            [self.name.as_bytes(), &self.once(operation), &self.deleted],
            [count.into(), operation.not_after.into(), channel, publish],
        )
    }

    pub(crate) fn count_down(&self, by: u64, operation: &Operation) -> Call {
        let [channel, publish] = self.publish();
        COUNT_DOWN.call(
            [self.name.as_bytes(), &self.once(operation)],
            [by.into(), operation.not_after.into(), channel, publish],
        )
    }

    pub(crate) fn delete(&self, operation: &Operation) -> Call {
        let [channel, publish] = self.publish();
        DELETE.call(
            [self.name.as_bytes(), &self.once(operation), &self.deleted],
            [
                operation.not_after.into(),
                whole_millis(MARK).into(),
                channel,
                publish,
            ],
        )
    }

    pub(crate) fn count(&self) -> Call {
        COUNT.call([self.name.as_bytes()], [])
    }
}

impl Visible for Description {
    fn subject(&self) -> (Kind, &Name) {
        (self.kind(), &self.name)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        vec![self.name.as_bytes().to_vec(), self.deleted.clone()]
    }

    fn look(&self) -> Call {
        LOOK.call([self.name.as_bytes(), &self.deleted], [])
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
    fn kind(&self) -> Kind {
        Kind::new("latch")
    }

    fn name(&self) -> &Name {
        &self.name
    }

    fn channel(&self) -> &[u8] {
        &self.channel
    }

    fn sharing(&self) -> Sharing {
        Sharing::Event
    }

    fn tenure(&self) -> Tenure {
        Tenure::Nothing
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        WAIT.call(
            [self.name.as_bytes(), &self.deleted],
            [request.since.into()],
        )
    }

    fn release(&self, _owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        None
    }

    fn renewals(&self, _owner: &WireOwner, _lease: Lease) -> Vec<Item> {
        Vec::new()
    }
}
