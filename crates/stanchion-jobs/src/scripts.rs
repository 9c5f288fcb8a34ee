//! The scripts, and the description of one run that calls them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stanchion_client::primitive::{
    About, Arg, Call, Handle, Holdable, Kind, Line, Request, Script, ServerQueue, Synchronizer,
    whole_millis,
};
use stanchion_client::{Fencing, Lease, Lockable as _, Name, WireOwner, in_line, minting};
use stanchion_lock::Lock;

use crate::tick::Tick;

static BEGIN: Script<3, 7> = Script::new("jobs/begin", minting!(include_str!("../lua/begin.lua")));
static END: Script<5, 5> = Script::new("jobs/end", in_line!(include_str!("../lua/end.lua")));
static STATUS: Script<2, 0> = Script::new("jobs/status", include_str!("../lua/status.lua"));

/// The most by which a tick may be ahead of the server's clock. It is more than the usual error of a machine's clock. A claim by a
/// wrong clock skips the job's ticks for at most this time, which is short enough to go unnoticed.
pub(crate) const AHEAD: Duration = Duration::from_secs(3_600);

/// The keys and channels of a job: the keys of a lock, and a record.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The properties of a run.
    about: About,
    /// The lock as the core sees it. The waiters in its line also wait for the job to end.
    sync: Arc<dyn Synchronizer>,
    line: Line,
    record: Vec<u8>,
}

impl Keys {
    /// Without the lock itself: it has the client, which remembers its last releases with these keys.
    pub(crate) fn new(handle: &Handle, lock: &Lock, fencing: Fencing) -> Self {
        let name = lock.name().clone();
        let line = Line::of(handle, &name);
        Self {
            sync: lock.clone().fencing(fencing).part().sync,
            record: name.prefixed_alone("stanchion_job_last"),
            about: About {
                fence: fencing.counter(&name),
                // Not a kind of lock: a script of this crate ends the hold of a job, and never hands the job to a waiter for the lock.
                ..About::new(Kind::new("job"), name, Arc::clone(&line.channel))
            },
            line,
        }
    }

    pub(crate) const fn name(&self) -> &Name {
        &self.about.name
    }

    pub(crate) fn status(&self) -> Call {
        STATUS.call([self.name().as_bytes(), &self.record], [])
    }
}

/// One run of a job, as the core sees it: an acquire, and the script that ends the run.
pub(crate) struct Run {
    pub(crate) keys: Arc<Keys>,
    pub(crate) tick: Option<Tick>,
    pub(crate) least: Duration,
    pub(crate) remember: Duration,
    /// The owner under which the lock is stored while the job rests.
    pub(crate) rests: WireOwner,
    /// True once the caller has the run: from this moment its tick counts as run.
    pub(crate) begun: AtomicBool,
}

impl Run {
    /// The script that ends the run of `owner`, or undoes a run that has not begun.
    fn end(&self, owner: &WireOwner) -> Call {
        let Keys {
            about,
            line,
            record,
            ..
        } = &*self.keys;
        let rests = match self.least {
            Duration::ZERO => "",
            _ => self.rests.as_str(),
        };
        let begun = u64::from(self.begun.load(Ordering::Acquire));
        END.call(
            [
                self.keys.name().as_bytes(),
                about.fence_key(),
                &line.line,
                &line.wake,
                record,
            ],
            [
                line.base.as_slice().into(),
                line.publish.into(),
                owner.as_str().into(),
                begun.into(),
                rests.into(),
            ],
        )
    }
}

impl Synchronizer for Run {
    fn about(&self) -> &About {
        &self.keys.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let tick = self
            .tick
            .map_or_else(String::new, |tick| tick.unix_millis().to_string());
        let keys = &*self.keys;
        BEGIN.call(
            [keys.name().as_bytes(), keys.about.fence_key(), &keys.record],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                Arg::from(tick.as_str()),
                whole_millis(self.least).into(),
                whole_millis(self.remember).into(),
                whole_millis(AHEAD).into(),
            ],
        )
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }

    fn server_queue(&self) -> Option<&dyn ServerQueue> {
        // A run does not wait, but its end may find a line with more dead processes than one script removes.
        self.keys.sync.server_queue()
    }
}

impl Holdable for Run {
    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Call {
        self.end(owner)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", self.keys.name())
            .field("tick", &self.tick)
            .finish_non_exhaustive()
    }
}
