//! Several locks of one server as one synchronizer: acquired by one script, released by one.

use std::sync::{Arc, Mutex, PoisonError};

use stanchion_client::primitive::{
    About, Arg, Call, HandOff, Hint, Holdable, Holders, Item, Kind, Line, LuaPart, Part, Placed,
    Reply, Request, Script, ServerQueue, Synchronizer, renew_field,
};
use stanchion_client::{Lease, Name, WireOwner, in_line, woven};
use tokio::sync::Notify;

/// The part that all scripts share which grant the locks to an owner.
const JOINT: LuaPart = LuaPart::new("-- @joint.lua\n", include_str!("../lua/joint.lua"));

pub static ACQUIRE: Script<4, 7> = Script::new(
    "multilock/acquire",
    in_line!(woven!(include_str!("../lua/acquire.lua"), JOINT)),
);
pub static HAND_OFF: Script<4, 7> = Script::new(
    "multilock/hand_off",
    woven!(include_str!("../lua/hand_off.lua"), JOINT),
);
pub static RELEASE: Script<4, 5> = Script::new(
    "multilock/release",
    in_line!(include_str!("../lua/release.lua")),
);
pub static TEND: Script<4, 3> =
    Script::new("multilock/tend", in_line!(include_str!("../lua/tend.lua")));

/// The number of times that an acquire may find a different member busy than before. Members held in turns could keep
/// it out indefinitely; a member that is held for a long time counts once.
const MOST_MOVES: u32 = 16;

/// Locks of one client and, on a cluster, of one slot, in name order.
#[derive(Debug)]
pub(crate) struct Joint {
    about: Arc<About>,
    locks: Arc<[One]>,
    /// The counters of all locks, each once.
    fences: Arc<[Vec<u8>]>,
    publish: &'static str,
    refusals: Mutex<Refusals>,
    starved: Notify,
}

/// The refusals of one acquire.
#[derive(Debug, Default)]
struct Refusals {
    /// The lock that was busy last.
    last: Option<usize>,
    moves: u32,
}

/// A clone has the same locks, for another acquire.
impl Clone for Joint {
    fn clone(&self) -> Self {
        Self {
            about: Arc::clone(&self.about),
            locks: Arc::clone(&self.locks),
            fences: Arc::clone(&self.fences),
            publish: self.publish,
            refusals: Mutex::default(),
            starved: Notify::new(),
        }
    }
}

#[derive(Debug)]
struct One {
    name: Name,
    line: Line,
    /// The number of its counter among `Joint::fences`, from 1; 0: none.
    counter: u64,
}

impl Joint {
    /// Joins `parts`, which must not be empty.
    pub(crate) fn new(parts: &[Part]) -> Self {
        let mut fences: Vec<Vec<u8>> = parts
            .iter()
            .filter_map(|part| part.sync.fence().map(<[u8]>::to_vec))
            .collect();
        fences.sort_unstable();
        fences.dedup();
        let one = |part: &Part| One {
            name: part.sync.name().clone(),
            line: Line::of(&part.handle, part.sync.name()),
            counter: part.sync.fence().map_or(0, |fence| {
                let at = fences.partition_point(|other| other.as_slice() < fence);
                u64::try_from(at + 1).unwrap_or(0)
            }),
        };
        let locks: Arc<[One]> = parts.iter().map(one).collect();
        // OK: made of at least one member. Its name is for errors and logs. Its channel is where a wait begins; the wait moves to the lock that the
        // server found held.
        let first = &locks[0];
        // Its waiters share the queue of the lock that they wait for.
        let kind = Kind::new("multilock").of_family("lock");
        Self {
            about: Arc::new(About {
                names: locks.iter().map(|one| one.name.clone()).collect(),
                holders: Some(Holders::One),
                ..About::new(kind, first.name.clone(), Arc::clone(&first.line.channel))
            }),
            locks,
            fences: fences.into(),
            publish: parts
                .first()
                .map_or("PUBLISH", |part| part.handle.publish_command()),
            refusals: Mutex::default(),
            starved: Notify::new(),
        }
    }

    /// Resolves when refusals have moved this acquire between busy members too often.
    pub(crate) async fn starved(&self) {
        self.starved.notified().await;
    }

    fn found_busy(&self, lock: usize) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.last.replace(lock).is_some_and(|last| last != lock) {
            refusals.moves += 1;
            if refusals.moves == MOST_MOVES {
                self.starved.notify_one();
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.locks.iter().map(|one| one.name.as_bytes())
    }

    /// The keys of every script: the locks, their lines, what is known of clients outside these, the counters.
    fn keys(&self) -> Vec<&[u8]> {
        let lines = self.locks.iter().map(|one| one.line.line.as_slice());
        let wakes = self.locks.iter().map(|one| one.line.wake.as_slice());
        self.names()
            .chain(lines)
            .chain(wakes)
            .chain(self.fences.iter().map(Vec::as_slice))
            .collect()
    }

    /// The last arguments of every script: Redisson's channel of each lock, and the number of its counter.
    fn each(&self) -> impl Iterator<Item = Arg<'_>> {
        let bases = self
            .locks
            .iter()
            .map(|one| Arg::from(one.line.base.as_slice()));
        bases.chain(self.locks.iter().map(|one| Arg::from(one.counter)))
    }

    fn count(&self) -> u64 {
        u64::try_from(self.locks.len()).unwrap_or(u64::MAX)
    }

    /// The call of a script that gives all to the requester; `word`: the argument that each has for itself.
    fn take(&self, script: &'static Script<4, 7>, request: &Request<'_>, word: &str) -> Call {
        let common = [
            request.owner.as_str().into(),
            request.lease.millis().into(),
            request.not_after.into(),
            self.count().into(),
            self.publish.into(),
            word.into(),
        ];
        script.batch(&self.keys(), common.into_iter().chain(self.each()))
    }

    fn free(&self, owner: &WireOwner, places: bool) -> Call {
        let common = [
            owner.as_str().into(),
            self.publish.into(),
            self.count().into(),
            u64::from(places).into(),
        ];
        RELEASE.batch(&self.keys(), common.into_iter().chain(self.each()))
    }
}

impl Synchronizer for Joint {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        self.take(&ACQUIRE, request, request.ask().as_ref())
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }

    /// Moves the wait to the lock that was found held.
    fn hint(&self, rest: &[Reply]) -> Hint {
        let number = rest
            .first()
            .and_then(Reply::as_int)
            .and_then(|i| usize::try_from(i).ok()?.checked_sub(1));
        if let Some(number) = number {
            self.found_busy(number);
        }
        let held = number.and_then(|i| self.locks.get(i));
        held.map_or(Hint::None, |one| Hint::Elsewhere {
            name: one.name.clone(),
            channel: Arc::clone(&one.line.channel),
            placed: Placed::read(rest.get(1..).unwrap_or_default()),
        })
    }

    fn server_queue(&self) -> Option<&dyn ServerQueue> {
        Some(self)
    }
}

impl Holdable for Joint {
    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Call {
        self.free(owner, false)
    }

    fn abandon(&self, owner: &WireOwner, _lease: Lease) -> Call {
        self.free(owner, true)
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        self.locks
            .iter()
            .map(|one| renew_field(&one.name, owner.as_str(), lease))
            .collect()
    }

    fn hand_off(&self) -> Option<&dyn HandOff> {
        Some(self)
    }
}

impl HandOff for Joint {
    fn hand_off(&self, from: &WireOwner, to: &Request<'_>) -> Call {
        self.take(&HAND_OFF, to, from.as_str())
    }
}

impl ServerQueue for Joint {
    fn neighbours(&self, name: &Name) -> Option<&[u8]> {
        let one = self.locks.iter().find(|one| one.name == *name)?;
        Some(&one.line.base)
    }

    fn tend(&self, heard: bool) -> Option<Call> {
        let common = [self.publish.into(), self.count().into()];
        (!heard).then(|| TEND.batch(&self.keys(), common.into_iter().chain(self.each())))
    }
}
