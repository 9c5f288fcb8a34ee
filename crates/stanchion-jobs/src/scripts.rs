//! The scripts, and the description of one run that calls them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stanchion_core::primitive::{
    Arg, Call, Handle, Hint, Kind, Line, Reply, Request, Script, ServerLine, Synchronizer,
    whole_millis,
};
use stanchion_core::{Fencing, Lease, Lockable as _, Name, WireOwner, in_line, minting};
use stanchion_lock::Lock;

use crate::tick::Tick;

static BEGIN: Script<3, 7> = Script::new("jobs/begin", minting!(include_str!("../lua/begin.lua")));
static END: Script<5, 5> = Script::new("jobs/end", in_line!(include_str!("../lua/end.lua")));
static STATUS: Script<2, 0> = Script::new("jobs/status", include_str!("../lua/status.lua"));

/// The most that a tick may be ahead of the server's clock. More than a machine's clock is usually wrong by, and less than the
/// time for which nobody would notice that nothing runs.
pub(crate) const AHEAD: Duration = Duration::from_secs(3_600);

/// The keys and channels of a job: those of a lock, and a record.
#[derive(Debug)]
pub(crate) struct Keys {
    lock: Lock,
    /// The lock as the core sees it. Its line waits for the job, too.
    sync: Arc<dyn Synchronizer>,
    line: Line,
    /// The counter of the tokens; the name itself where no tokens are minted.
    fence: Vec<u8>,
    record: Vec<u8>,
}

impl Keys {
    pub(crate) fn new(handle: &Handle, lock: Lock, fencing: Fencing) -> Self {
        let name = lock.name().clone();
        let lock = lock.with_fencing(fencing);
        Self {
            sync: lock.part().sync,
            lock,
            line: Line::of(handle, &name),
            fence: fencing.key(&name),
            record: name.prefixed_alone("stanchion_job_last"),
        }
    }

    pub(crate) fn with_fencing(&self, handle: &Handle, fencing: Fencing) -> Self {
        Self::new(handle, self.lock.clone(), fencing)
    }

    pub(crate) fn name(&self) -> &Name {
        self.lock.name()
    }

    pub(crate) fn status(&self) -> Call {
        STATUS.call([self.name().as_bytes(), &self.record], [])
    }
}

/// One run of a job, as the core sees it: an acquire, and what ends it.
pub(crate) struct Run {
    pub(crate) keys: Arc<Keys>,
    pub(crate) tick: Option<Tick>,
    pub(crate) least: Duration,
    pub(crate) remember: Duration,
    /// The owner in whose name the lock rests afterwards.
    pub(crate) rests: WireOwner,
    /// True from the moment at which its caller has it: from here on its tick has run.
    pub(crate) begun: AtomicBool,
}

impl Run {
    /// The script that ends the run of `owner`, or undoes it if it has not begun.
    fn end(&self, owner: &WireOwner) -> Call {
        let Keys {
            line,
            fence,
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
                self.name().as_bytes(),
                fence,
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
    fn kind(&self) -> Kind {
        // Not of the lock's family: a hold of a job is ended by a script of its own, never handed to a waiter for the lock.
        Kind::new("job")
    }

    fn name(&self) -> &Name {
        self.keys.name()
    }

    fn channel(&self) -> &[u8] {
        self.keys.sync.channel()
    }

    fn fence(&self) -> Option<&[u8]> {
        self.keys.sync.fence()
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let tick = self
            .tick
            .map_or_else(String::new, |tick| tick.unix_millis().to_string());
        BEGIN.call(
            [self.name().as_bytes(), &self.keys.fence, &self.keys.record],
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

    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        Some(self.end(owner))
    }

    fn hint(&self, rest: &[Reply]) -> Hint {
        Hint::Told(rest.to_vec())
    }

    fn line(&self) -> Option<&dyn ServerLine> {
        // A run does not wait, but its end may find a line that needs another look.
        self.keys.sync.line()
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", self.name())
            .field("tick", &self.tick)
            .finish_non_exhaustive()
    }
}
