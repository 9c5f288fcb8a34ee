//! Callers of barriers, latches and limiters. The grants of limiters are counted and compared with the quota.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use stanchion::limiter::Limit;
use stanchion::{CountDownLatch, CyclicBarrier, DoubleBarrier, Quota, RateLimiter, TokenBucket};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::judge::{Kind, Need, Place};
use crate::work::World;

/// Longer than any wait that is not stuck.
const LONG: Duration = Duration::from_secs(20);

const QUOTA: u32 = 40;
const INTERVAL: Duration = Duration::from_millis(200);

/// A client that is not shut down in use.
fn client(world: &World, random: &mut Rng) -> stanchion::Client {
    let at = random.usize(0..world.members.len() - 1);
    world.members[at].lock().unwrap().client.clone()
}

fn failed<E: std::fmt::Debug>(world: &World, what: &str, error: E) {
    if !world.stopped() {
        world.judge.found(format!("P8: {what}: {error:?}"));
    }
}

/// Four parties, of which three pass together.
async fn party(world: Arc<World>, place: Arc<Place>, mut random: Rng) {
    while !world.stopped() {
        world.operations.fetch_add(1, Ordering::Relaxed);
        let barrier = CyclicBarrier::new(&client(&world, &mut random), "meeting", 3).unwrap();
        let waiting = place.wait(Need::Shared, "wait");
        if random.u8(0..5) == 0 {
            let patience = Duration::from_micros(random.u64(0..4000));
            if let Ok(Ok(_)) = timeout(patience, barrier.wait()).await {
                waiting.enter(None);
            }
            continue;
        }
        match barrier.wait_timeout(LONG).await {
            Ok(_) => drop(waiting.enter(None)),
            Err(error) => failed(&world, "barrier.wait_timeout", error),
        }
    }
}

/// Two parties that enter together, and leave or drop.
async fn couple(world: Arc<World>, place: Arc<Place>, name: &'static str, mut random: Rng) {
    let client = client(&world, &mut random);
    while !world.stopped() {
        world.operations.fetch_add(1, Ordering::Relaxed);
        let barrier = DoubleBarrier::new(&client, name, 2).unwrap();
        let waiting = place.wait(Need::Shared, "enter");
        match barrier.enter_timeout(LONG).await {
            Ok(inside) => {
                drop(waiting.enter(None));
                if random.bool() {
                    drop(inside);
                } else if let Err(error) = inside.leave_timeout(LONG).await {
                    failed(&world, "double.leave_timeout", error);
                }
            }
            Err(error) => failed(&world, "double.enter_timeout", error),
        }
    }
}

/// One latch after the other: armed, waited for by four callers, counted down to zero.
async fn latches(world: Arc<World>, place: Arc<Place>, mut random: Rng) {
    let mut round = 0u64;
    while !world.stopped() {
        round += 1;
        let name = format!("latch-{round}");
        let latch = |random: &mut Rng| CountDownLatch::new(&client(&world, random), &name).unwrap();
        let closed = place.enter(Need::Alone, None);
        if let Err(error) = latch(&mut random).arm(2).await {
            return failed(&world, "latch.arm", error);
        }
        let waiters: Vec<JoinHandle<()>> = (0..4)
            .map(|_| {
                let (latch, world, place) =
                    (latch(&mut random), Arc::clone(&world), Arc::clone(&place));
                tokio::spawn(async move {
                    world.operations.fetch_add(1, Ordering::Relaxed);
                    let waiting = place.wait(Need::Shared, "wait");
                    match latch.wait_timeout(LONG).await {
                        Ok(()) => drop(waiting.enter(None)),
                        Err(error) => failed(&world, "latch.wait_timeout", error),
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(random.u64(0..3))).await;
        if let Err(error) = latch(&mut random).count_down().await {
            failed(&world, "latch.count_down", error);
        }
        drop(closed);
        if let Err(error) = latch(&mut random).count_down().await {
            failed(&world, "latch.count_down", error);
        }
        for waiter in waiters {
            waiter.await.unwrap();
        }
        if let Err(error) = latch(&mut random).danger().delete().await {
            failed(&world, "latch.delete", error);
        }
    }
}

/// A rate of permits, and how many were granted.
struct Rate {
    place: Arc<Place>,
    granted: AtomicU64,
}

impl Rate {
    fn of(world: &World, name: &str) -> Arc<Self> {
        Arc::new(Self {
            // A permit comes back after an interval.
            place: world.judge.slow_place(name, Kind::Meeting(1), 60),
            granted: AtomicU64::new(0),
        })
    }

    /// Calls for permits, with `acquire`.
    async fn calls<T, E: std::fmt::Debug>(
        self: Arc<Self>,
        world: Arc<World>,
        mut random: Rng,
        acquire: impl AsyncFn(&stanchion::Client) -> Result<T, E>,
    ) {
        while !world.stopped() {
            world.operations.fetch_add(1, Ordering::Relaxed);
            let client = client(&world, &mut random);
            let waiting = self.place.wait(Need::Shared, "acquire");
            match acquire(&client).await {
                Ok(_) => {
                    drop(waiting.enter(None));
                    self.granted.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => failed(&world, "acquire of a rate", error),
            }
        }
    }
}

/// The callers of all barriers, latches and limiters.
pub(crate) struct Gatherings {
    tasks: Vec<JoinHandle<()>>,
    rates: [Arc<Rate>; 2],
    started: Instant,
}

impl Gatherings {
    pub(crate) fn start(world: &Arc<World>, random: &mut Rng) -> Self {
        let judge = &world.judge;
        let mut tasks = Vec::new();
        let meeting = judge.place("meeting", Kind::Meeting(3));
        for _ in 0..4 {
            tasks.push(tokio::spawn(party(
                Arc::clone(world),
                Arc::clone(&meeting),
                random.fork(),
            )));
        }
        for name in ["double-1", "double-2"] {
            let place = judge.place(name, Kind::Meeting(2));
            for _ in 0..2 {
                tasks.push(tokio::spawn(couple(
                    Arc::clone(world),
                    Arc::clone(&place),
                    name,
                    random.fork(),
                )));
            }
        }
        let latch = judge.place("latch", Kind::ReadWrite);
        tasks.push(tokio::spawn(latches(
            Arc::clone(world),
            latch,
            random.fork(),
        )));
        let quota = Quota::new(QUOTA, INTERVAL).unwrap();
        let rates = ["rate", "bucket"].map(|name| Rate::of(world, name));
        for _ in 0..3 {
            let rate = Arc::clone(&rates[0]);
            tasks.push(tokio::spawn(rate.calls(
                Arc::clone(world),
                random.fork(),
                async move |client| {
                    let limiter = RateLimiter::new(client, "rate", quota).unwrap();
                    limiter.acquire().await
                },
            )));
            let rate = Arc::clone(&rates[1]);
            tasks.push(tokio::spawn(rate.calls(
                Arc::clone(world),
                random.fork(),
                async move |client| {
                    let limit = Limit::new(quota, QUOTA).unwrap();
                    let bucket = TokenBucket::new(client, "bucket", limit).unwrap();
                    bucket.acquire().await
                },
            )));
        }
        Self {
            tasks,
            rates,
            started: Instant::now(),
        }
    }

    /// Waits for the callers, after the world has stopped. Checks the number of grants.
    pub(crate) async fn join(self, world: &World) {
        for task in self.tasks {
            // A party waits indefinitely if the other parties have stopped.
            let end = task.abort_handle();
            if timeout(Duration::from_millis(1500), task).await.is_err() {
                end.abort();
            }
        }
        // One more for the interval in progress, and one more for a bucket that was full.
        let intervals = self.started.elapsed().as_millis() / INTERVAL.as_millis() + 2;
        for rate in self.rates {
            let granted = u128::from(rate.granted.load(Ordering::Relaxed));
            if granted > intervals * u128::from(QUOTA) {
                let name = &rate.place.name;
                world.judge.found(format!(
                    "P1: {name} gave {granted} permits in {intervals} intervals of {QUOTA}"
                ));
            }
        }
    }
}
