//! Seeded storms: clients that take permits in every way while everything goes wrong. Never more are held than there are,
//! and when the storm is over, every permit is back.
//!
//! `STANCHION_SEEDS=500` runs more seeds, `STANCHION_SEED=17` only that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use stanchion::{AcquireError, Client, Lease, LeasedPermit};
use stanchion_testkit::{Event, History, Kind as What, Mode, Rules, check, eventually};
use stanchion_tests::World;
use stanchion_tests::permits::{KINDS, Kind, NAME, Seat, Seats, at_rest};
use tokio::time::Instant;

/// The length of a storm.
const STORM: Duration = Duration::from_secs(60);

/// The default number of seeds.
const SEEDS: u64 = 12;

struct Storm {
    kind: Kind,
    limit: u32,
    history: History,
    started: Instant,
    over: AtomicBool,
    grants: AtomicUsize,
}

/// One task of one client.
struct Sailor {
    storm: Arc<Storm>,
    seats: Seats,
    who: (u32, u32),
    rng: fastrand::Rng,
}

impl Sailor {
    fn record(&self, kind: What, permits: u32, valid_for: Option<Duration>) {
        let at = self.storm.started.elapsed();
        self.storm.history.record(Event {
            at,
            process: self.who.0,
            task: self.who.1,
            name: NAME.to_owned(),
            kind,
            mode: Mode::Permits(permits),
            token: None,
            safe_until: valid_for.map(|left| at + left),
        });
    }

    /// One way or another, what the server gave.
    async fn ask(&mut self, permits: u32) -> Option<Seat> {
        let patience = Duration::from_millis(self.rng.u64(0..4_000));
        let asked = match self.rng.u8(0..10) {
            0 | 1 => self.seats.try_acquire(permits).await,
            2..=4 => match self.seats.acquire_timeout(permits, patience).await {
                Ok(seat) => Ok(Some(seat)),
                Err(AcquireError::TimedOut { .. }) => Ok(None),
                Err(error) => Err(error),
            },
            // The caller goes away at any moment.
            5 => tokio::time::timeout(patience, self.seats.acquire(permits))
                .await
                .map_or(Ok(None), |asked| asked.map(Some)),
            _ => self.seats.acquire(permits).await.map(Some),
        };
        match asked {
            Ok(seat) => seat,
            Err(AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Holds for so long, and records what the watchdog adds before the lease would have ended: that of a grant by message is short.
    /// Returns whether the permit was lost.
    async fn hold(&self, permit: &LeasedPermit, permits: u32, hold: Duration) -> bool {
        let end = Instant::now() + hold;
        while Instant::now() < end {
            let part = (permit.remaining() / 2).max(Duration::from_millis(1));
            let part = tokio::time::sleep_until(end.min(Instant::now() + part));
            if permit.run(part).await.is_err() {
                return true;
            }
            self.record(What::Renewed, permits, Some(permit.remaining()));
        }
        false
    }

    async fn sail(mut self) {
        while !self.storm.over.load(Ordering::Relaxed) {
            let think = Duration::from_millis(self.rng.u64(0..300));
            tokio::time::sleep(think).await;
            let permits = match self.rng.u8(0..4) {
                0 => self.rng.u32(1..=self.storm.limit),
                _ => 1,
            };
            self.record(What::Invoke, permits, None);
            let Some(seat) = self.ask(permits).await else {
                self.record(What::TimedOut, permits, None);
                continue;
            };
            self.storm.grants.fetch_add(1, Ordering::Relaxed);
            let valid_for = match &seat {
                Seat::Plain(_) => None,
                Seat::Leased(permit) => Some(permit.remaining()),
            };
            self.record(What::Granted, permits, valid_for);
            let hold = Duration::from_millis(self.rng.u64(0..500));
            let lost = match &seat {
                Seat::Plain(_) => {
                    tokio::time::sleep(hold).await;
                    false
                }
                Seat::Leased(permit) => self.hold(permit, permits, hold).await,
            };
            if lost {
                self.record(What::Lost, permits, None);
            } else {
                self.record(What::ReleaseInvoke, permits, None);
            }
            match self.rng.u8(0..3) {
                0 => drop(seat),
                _ => drop(seat.release().await),
            }
        }
    }
}

/// Breaks one thing after the other.
async fn blow(world: &World, storm: &Storm, mut rng: fastrand::Rng) {
    let faults = world.as_engine().faults();
    while storm.started.elapsed() < STORM {
        tokio::time::sleep(Duration::from_millis(rng.u64(0..1_500))).await;
        let label = format!("client-{}", rng.u32(0..3));
        match rng.u8(0..10) {
            0 => faults.lose_replies("EVALSHA", rng.usize(1..4)),
            1 => faults.lose_replies_silently("EVALSHA", rng.usize(1..3)),
            2 => faults.lose_messages(rng.usize(1..5)),
            3 => faults.kill_label(&label),
            4 => faults.kill_subscribers(),
            5 => faults.flush_scripts(),
            6 => faults.restart(stanchion::embedded::Data::Kept),
            7 => faults.delay(Some(&label), Duration::from_millis(rng.u64(0..50))),
            _ => {
                faults.freeze(Some(&label));
                tokio::time::sleep(Duration::from_millis(rng.u64(0..6_000))).await;
                faults.thaw(Some(&label));
            }
        }
    }
    faults.clear();
}

async fn storm(kind: Kind, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let world = World::engine();
    let limit = rng.u32(1..=6);
    let storm = Arc::new(Storm {
        kind,
        limit,
        history: History::new(),
        started: Instant::now(),
        over: AtomicBool::new(false),
        grants: AtomicUsize::new(0),
    });
    let mut clients = Vec::new();
    let mut sailors = Vec::new();
    for process in 0..3 {
        let config = world
            .config(&format!("client-{process}"))
            .seed(seed * 10 + u64::from(process))
            .response_timeout(Duration::from_millis(1_000));
        let client = Client::connect_with(config).await.unwrap();
        let lease = Lease::new(Duration::from_millis(2_500)).unwrap();
        let seats = storm.kind.on(&client).with_lease(lease);
        if process == 0 {
            seats.init(limit).await.unwrap();
        }
        for task in 0..4 {
            let sailor = Sailor {
                storm: Arc::clone(&storm),
                seats: seats.clone(),
                who: (process, task),
                rng: rng.fork(),
            };
            sailors.push(tokio::spawn(sailor.sail()));
        }
        clients.push(client);
    }
    blow(&world, &storm, rng.fork()).await;
    storm.over.store(true, Ordering::Relaxed);
    for sailor in sailors {
        sailor
            .await
            .unwrap_or_else(|e| panic!("{kind:?}, seed {seed}: {e}"));
    }
    // Everything that was taken by anybody, known to it or not, is back: once.
    eventually("nobody waits", || {
        clients.iter().map(Client::waiters).sum::<usize>() == 0
    })
    .await;
    // P3: a grant whose message was lost ends with its lease. The next request that needs the permit takes it back.
    let seats = storm.kind.on(&clients[0]);
    let all = seats.acquire_timeout(limit, Duration::from_secs(10)).await;
    let all = all.unwrap_or_else(|e| panic!("{kind:?}, seed {seed}: {e}"));
    all.release().await.unwrap();
    at_rest(&world, i64::from(limit)).await;
    let rules = Rules::new()
        .permits(NAME, limit)
        .lost_slack(Duration::from_millis(2))
        .liveness(Duration::from_secs(20));
    check(&storm.history, &rules).unwrap_or_else(|found| {
        let found: Vec<String> = found.iter().take(5).map(ToString::to_string).collect();
        panic!("{kind:?}, seed {seed}, {limit} permits: {found:#?}")
    });
    let grants = storm.grants.load(Ordering::Relaxed);
    assert!(
        grants > 50,
        "{kind:?}, seed {seed}: {grants} grants prove little"
    );
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn storms_neither_lose_nor_invent_permits() {
    let seeds = match number("STANCHION_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("STANCHION_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        for kind in KINDS {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap()
                .block_on(storm(kind, seed));
        }
    }
}
