//! The workers: each takes part in the rounds of one thing, from a task or from a thread with a small runtime.
//!
//! A round begins and ends for all workers of a thing together. A wake-up that is lost in a round is not made up for by the
//! callers of the next one, so it is seen.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::runtime::Handle;
use tokio::sync::{Barrier, oneshot};

use crate::judge::Judge;
use crate::things::{Call, Held, Member, Thing};

/// The state that all workers share.
pub(crate) struct World {
    pub(crate) judge: Arc<Judge>,
    pub(crate) members: Vec<Mutex<Arc<Member>>>,
    /// Runtimes that calls and guards move to.
    pub(crate) elsewhere: Vec<Handle>,
    /// A thread without a runtime, which drops what it receives.
    pub(crate) dropper: mpsc::Sender<Held>,
    pub(crate) stop: AtomicBool,
    pub(crate) operations: AtomicU64,
}

impl World {
    pub(crate) fn member(&self, thing: &Thing, random: &mut Rng) -> Arc<Member> {
        // The last is shut down in use.
        let last = usize::from(thing.outlives_its_client());
        let at = random.usize(0..self.members.len() - last);
        Arc::clone(&self.members[at].lock().unwrap())
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn elsewhere(&self, random: &mut Rng) -> &Handle {
        &self.elsewhere[random.usize(0..self.elsewhere.len())]
    }
}

/// Runs other tasks for a time that is shorter than a timer can measure.
pub(crate) async fn a_moment(random: &mut Rng, most_micros: u64) {
    let (start, time) = (
        Instant::now(),
        Duration::from_micros(random.u64(0..most_micros)),
    );
    while start.elapsed() < time {
        tokio::task::yield_now().await;
    }
}

/// Polls `call` at most `times` times. Gives the call back if it is not ready.
async fn poll_some(mut call: Call, times: u32) -> Result<Option<Held>, Call> {
    let mut polled = 0;
    let end = poll_fn(|context| {
        polled += 1;
        match Pin::new(&mut call).poll(context) {
            Poll::Ready(held) => Poll::Ready(Some(held)),
            Poll::Pending if polled >= times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    end.ok_or(call)
}

/// Holds for a moment, then ends the hold in one of the ways that a program has.
async fn hold(world: &World, held: Option<Held>, random: &mut Rng) {
    let Some(held) = held else { return };
    match random.u8(0..8) {
        0 => tokio::time::sleep(Duration::from_millis(random.u64(1..4))).await,
        1..4 => a_moment(random, 500).await,
        _ => {}
    }
    match random.u8(0..16) {
        0..8 => held.release().await,
        8..12 => held.drop_guard(),
        12 | 13 => {
            // The thread lives as long as the world.
            world.dropper.send(held).ok();
        }
        14 => {
            world.elsewhere(random).spawn(held.release());
        }
        _ => {
            // Dropped in the middle.
            let release = held.release();
            tokio::time::timeout(Duration::from_micros(random.u64(0..500)), release)
                .await
                .ok();
        }
    }
}

/// Continues `call` on another runtime, and waits for it.
async fn moved(world: &Arc<World>, call: Call, random: &mut Rng) {
    let (done, wait) = oneshot::channel();
    let (there, mut dice) = (Arc::clone(world), random.fork());
    // No task polls the call until the other runtime takes it: for microseconds, or longer if that runtime is busy.
    let unpolled = call.place.unpolled();
    world.elsewhere(random).spawn(async move {
        let begun = poll_some(call, 1).await;
        drop(unpolled);
        match begun {
            Ok(held) => hold(&there, held, &mut dice).await,
            Err(call) => hold(&there, call.await, &mut dice).await,
        }
        done.send(()).ok();
    });
    wait.await.ok();
}

/// One operation of a worker.
pub(crate) async fn operate(world: &Arc<World>, thing: &Thing, random: &mut Rng) {
    world.operations.fetch_add(1, Ordering::Relaxed);
    let member = world.member(thing, random);
    let call = thing.call(&world.judge, &member, random);
    match random.u8(0..20) {
        0 | 1 => {
            let patience = Duration::from_micros(random.u64(0..3000));
            if let Ok(held) = tokio::time::timeout(patience, call).await {
                hold(world, held, random).await;
            }
        }
        2 | 3 => {
            if let Ok(held) = poll_some(call, random.u32(1..5)).await {
                hold(world, held, random).await;
            }
        }
        4 | 5 => match poll_some(call, random.u32(1..3)).await {
            Ok(held) => hold(world, held, random).await,
            Err(call) => moved(world, call, random).await,
        },
        6 => match poll_some(call, 1).await {
            Ok(held) => hold(world, held, random).await,
            Err(call) => {
                // A caller that is busy with something else.
                let unpolled = call.place.unpolled();
                tokio::time::sleep(Duration::from_millis(random.u64(0..20))).await;
                if random.bool() {
                    drop(unpolled);
                    let held = call.await;
                    hold(world, held, random).await;
                } else {
                    drop(call);
                    drop(unpolled);
                }
            }
        },
        _ => {
            let held = call.await;
            hold(world, held, random).await;
        }
    }
}

/// The rounds of one thing.
pub(crate) struct Rounds {
    barrier: Barrier,
    over: AtomicBool,
}

impl Rounds {
    pub(crate) fn of(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            barrier: Barrier::new(workers),
            over: AtomicBool::new(false),
        })
    }

    /// Waits for the others. Returns whether another round begins.
    pub(crate) async fn next(&self, world: &World) -> bool {
        if self.barrier.wait().await.is_leader() {
            self.over.store(world.stopped(), Ordering::SeqCst);
        }
        self.barrier.wait().await;
        !self.over.load(Ordering::SeqCst)
    }
}

/// A worker, until the world stops.
pub(crate) async fn work(
    world: Arc<World>,
    thing: Arc<Thing>,
    rounds: Arc<Rounds>,
    mut random: Rng,
) {
    while rounds.next(&world).await {
        for _ in 0..random.u8(1..4) {
            a_moment(&mut random, 600).await;
            operate(&world, &thing, &mut random).await;
        }
    }
}
