//! The scripts, and the description of a fair lock that calls them.

use std::time::Duration;

use stanchion_client::primitive::{
    About, Arg, Call, Handle, Hint, Holdable, Holders, Kind, Placed, Reason, Reply, Request,
    Script, ServerQueue, Sharing, Synchronizer, Visible, adopt_field, whole_millis,
};
use stanchion_client::{
    Fencing, Lease, Name, NameState, QueryError, WireOwner, mint_function, minting, noticing,
};

use crate::status::FairLockStatus;

/// A script in parts: its header and common case; the functions for the queue, which all share; its own last parts.
macro_rules! with_queue {
    ($first:literal, $($last:literal),+) => {
        mint_function!(concat!(
            include_str!(concat!("../lua/", $first, ".lua")),
            include_str!("../lua/queue.lua"),
            $(include_str!(concat!("../lua/", $last, ".lua")),)+
        ))
    };
}

pub static ACQUIRE: Script<6, 8> = Script::new(
    "fair/acquire",
    minting!(with_queue!("acquire", "stand", "after_acquire")),
);
pub static RELEASE: Script<6, 6> =
    Script::new("fair/release", with_queue!("release", "after_release"));
pub static RELEASE_AND_ACQUIRE: Script<6, 8> = Script::new(
    "fair/release_and_acquire",
    with_queue!("release_and_acquire", "stand", "after_release_and_acquire"),
);
pub static ABANDON: Script<6, 4> =
    Script::new("fair/abandon", with_queue!("abandon", "after_abandon"));
pub static TEND: Script<6, 3> = Script::new("fair/tend", with_queue!("tend", "after_tend"));
pub static FORCE_RELEASE: Script<6, 4> = Script::new(
    "fair/force_release",
    noticing!(with_queue!("force_release", "after_force_release")),
);
pub static REENTER: Script<1, 4> = Script::new("fair/reenter", include_str!("../lua/reenter.lua"));
pub static STATUS: Script<3, 1> = Script::new("fair/status", include_str!("../lua/status.lua"));
pub static POSITION: Script<1, 1> =
    Script::new("fair/position", include_str!("../lua/position.lua"));

/// The longest delay by silent processes (P7): a grant by message (1.5 s), the poll after it, and the time in which processes answer a call.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// The prefix of the queue's key.
const QUEUE: &str = "redisson_lock_queue";

/// Redisson's `fairLockWaitTimeout`.
pub(crate) const REDISSON_WAIT: Duration = Duration::from_secs(300);

/// A fair lock, as the core sees it.
#[derive(Debug)]
pub(crate) struct Description {
    about: About,
    queue: Vec<u8>,
    timeouts: Vec<u8>,
    waiters: Vec<u8>,
    wake: Vec<u8>,
    /// The prefix of all channels of this name.
    base: Vec<u8>,
    publish: &'static str,
    wait_ms: u64,
    /// Beginning of the channels of holders.
    notice: Vec<u8>,
}

impl Description {
    pub(crate) fn new(handle: &Handle, name: Name, fencing: Fencing, wait: Duration) -> Self {
        let base = name.prefixed("redisson_lock__channel");
        let channel = below(&base, &handle.id().to_string());
        Self {
            queue: name.prefixed(QUEUE),
            timeouts: name.prefixed("redisson_lock_timeout"),
            waiters: name.prefixed("stanchion_fair_waiters"),
            wake: name.prefixed("stanchion_fair_wake"),
            base,
            publish: handle.publish_command(),
            wait_ms: whole_millis(wait.max(REDISSON_WAIT)),
            notice: handle.notice(&name),
            about: About {
                sharing: Sharing::Queued,
                fence: fencing.counter(&name),
                holders: Some(Holders::Queue(QUEUE.into())),
                ..About::new(Kind::new("fair lock"), name, channel)
            },
        }
    }

    pub(crate) const fn name(&self) -> &Name {
        &self.about.name
    }

    pub(crate) const fn mints_tokens(&self) -> bool {
        self.about.fence.is_some()
    }

    fn keys(&self) -> [&[u8]; 6] {
        [
            self.name().as_bytes(),
            &self.queue,
            &self.timeouts,
            &self.waiters,
            &self.wake,
            self.about.fence_key(),
        ]
    }

    /// The first arguments of every script that handles the queue.
    fn common(&self) -> [Arg<'_>; 3] {
        [
            self.base.as_slice().into(),
            self.publish.into(),
            self.wait_ms.into(),
        ]
    }

    /// `looked_at`: the number of waiters from which the processes are counted.
    pub(crate) fn status(&self, looked_at: u64) -> Call {
        let keys = [self.name().as_bytes(), &self.queue, self.about.fence_key()];
        STATUS.call(keys, [looked_at.into()])
    }

    pub(crate) fn position(&self, client: &str) -> Call {
        POSITION.call([&self.queue], [client.into()])
    }
}

/// The channel of one client or waiter: `base:whose`.
fn below(base: &[u8], whose: &str) -> Vec<u8> {
    [base, b":", whose.as_bytes()].concat()
}

impl Visible for Description {
    fn subject(&self) -> (Kind, &Name) {
        (self.about.kind, self.name())
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        vec![self.name().as_bytes().to_vec()]
    }

    fn look(&self) -> Call {
        self.status(0)
    }

    fn see(&self, reply: &Reply) -> Result<NameState, QueryError> {
        Ok(FairLockStatus::read(reply)?.seen())
    }
}

impl Synchronizer for Description {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        if let Some(adopt) = adopt_field(self.name(), self.about.fence_key(), request) {
            return adopt;
        }
        let [base, publish, wait] = self.common();
        let approach = &request.approach;
        let arrived = match request.waits {
            true => approach.arrived.into(),
            false => "".into(),
        };
        ACQUIRE.call(
            self.keys(),
            [
                base,
                publish,
                wait,
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                arrived,
                match approach.reason {
                    Reason::Look if approach.hears => 2,
                    _ => u64::from(approach.hears),
                }
                .into(),
            ],
        )
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }

    fn hint(&self, rest: &[Reply]) -> Hint {
        let (Some(placed), [_, _, _, _, holder, forgotten, foreign, ..]) =
            (Placed::read(rest), rest)
        else {
            return Hint::None;
        };
        let holder = holder.as_text().filter(|owner| !owner.is_empty());
        Hint::Queue {
            placed,
            granted: holder.map(str::to_owned),
            forgotten: forgotten.as_int() == Some(1),
            foreign: foreign.as_int() == Some(1),
        }
    }

    fn server_queue(&self) -> Option<&dyn ServerQueue> {
        Some(self)
    }
}

impl Holdable for Description {
    fn reenter(&self, request: &Request<'_>, count: u32) -> Option<Call> {
        let call = REENTER.call(
            [self.name().as_bytes()],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                u64::from(count).into(),
            ],
        );
        Some(call)
    }

    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Call {
        let [base, publish, wait] = self.common();
        RELEASE.call(
            self.keys(),
            [
                base,
                publish,
                wait,
                owner.as_str().into(),
                u64::from(count).into(),
                lease.millis().into(),
            ],
        )
    }

    fn abandon(&self, owner: &WireOwner, _lease: Lease) -> Call {
        let [base, publish, wait] = self.common();
        ABANDON.call(self.keys(), [base, publish, wait, owner.as_str().into()])
    }

    fn force_release(&self) -> Option<Call> {
        let [base, publish, wait] = self.common();
        let notice = self.notice.as_slice().into();
        Some(FORCE_RELEASE.call(self.keys(), [base, publish, wait, notice]))
    }
}

impl ServerQueue for Description {
    fn channel_of(&self, owner: &WireOwner) -> Option<Vec<u8>> {
        Some(below(&self.base, owner.as_str()))
    }

    fn pass_on(&self, from: &WireOwner, to: &Request<'_>) -> Option<Call> {
        let [base, publish, wait] = self.common();
        let call = RELEASE_AND_ACQUIRE.call(
            self.keys(),
            [
                base,
                publish,
                wait,
                from.as_str().into(),
                to.owner.as_str().into(),
                to.lease.millis().into(),
                to.not_after.into(),
                u64::from(to.approach.hears).into(),
            ],
        );
        Some(call)
    }

    fn tend(&self, _heard: bool) -> Option<Call> {
        Some(TEND.call(self.keys(), self.common()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_the_scripts_add_up_to_the_grace() {
        let text = include_str!("../lua/queue.lua");
        let line = "local granted_ms, call_ms, recent_ms = 1500, 100, 1000";
        assert!(text.contains(line), "{line}");
        assert!(GRACE >= Duration::from_millis(1500 + 50 + 100));
    }
}
