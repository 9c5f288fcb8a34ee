//! Tests that clients of Redisson's get their turns, near the server and also if they are far from the server: at least half of their share of the grants, where the
//! share is the number of their waiting processes among all.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use stanchion::{Client, LeasedSemaphore, Lock, RwLock, Semaphore};
use stanchion_tests::outside::{Grants, Outside};
use stanchion_tests::{World, ms, secs};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const HOLD: Duration = ms(5);

/// The processes of a test. Those of stanchion have several tasks, those of Redisson one.
#[derive(Clone, Copy, Debug)]
struct Fleet {
    kind: Outside,
    permits: u32,
    near: usize,
    tasks: usize,
    far: usize,
    away: Duration,
}

/// The grants to the near processes and to the far ones, and their longest waits.
type Shares = [(u64, Duration); 2];

/// Acquires, holds, releases and pauses in a loop.
async fn work(kind: Outside, client: Client, grants: Arc<Grants>) {
    macro_rules! held {
        ($acquire:expr) => {{
            let began = Instant::now();
            let guard = $acquire.await.unwrap();
            grants.add(began);
            sleep(HOLD).await;
            guard.release().await.unwrap();
        }};
    }
    loop {
        match kind {
            Outside::Lock => held!(Lock::new(&client, "job").unwrap().acquire()),
            Outside::Writers => held!(RwLock::new(&client, "job").unwrap().write()),
            Outside::Permits => held!(Semaphore::new(&client, "job").unwrap().acquire()),
            Outside::Leased => held!(LeasedSemaphore::new(&client, "job").unwrap().acquire()),
        }
        sleep(ms(1)).await;
    }
}

impl Fleet {
    /// Lets all work for 2 s, and then for 4 s that are counted. The far processes are Redisson's, or stanchion's with one task.
    async fn work(self, redisson: bool) -> Shares {
        let Self {
            kind,
            permits,
            far,
            away,
            ..
        } = self;
        let world = World::engine();
        let faults = world.faults();
        faults.delay(None, Duration::from_micros(200));
        let [near, distant]: [Arc<Grants>; 2] = Default::default();
        let clients = world.fleet(self.near).await;
        match kind {
            Outside::Permits => {
                let semaphore = Semaphore::new(&clients[0], "job").unwrap();
                let _ = semaphore.init(permits).await.unwrap();
            }
            Outside::Leased => {
                let semaphore = LeasedSemaphore::new(&clients[0], "job").unwrap();
                let _ = semaphore.init(permits).await.unwrap();
            }
            Outside::Lock | Outside::Writers => {}
        }
        let mut tasks = JoinSet::new();
        for client in clients {
            for _ in 0..self.tasks {
                tasks.spawn(work(kind, client.clone(), Arc::clone(&near)));
            }
        }
        let mut owners = Vec::new();
        for n in 0..far {
            if redisson {
                owners.push(format!("7c9e6679-7425-40de-944b-e07fc1f90ae{n}:42"));
            } else {
                let name = format!("far{n}");
                faults.delay(Some(&name), 2 * away);
                tasks.spawn(work(kind, world.named(&name).await, Arc::clone(&distant)));
            }
        }
        let outside = owners
            .iter()
            .map(|owner| kind.work(&world, owner, away, HOLD, &distant));
        let mut outside = std::pin::pin!(join_all(outside));
        let mut run = async |seconds| {
            let length = secs(seconds);
            match redisson {
                true => drop(timeout(length, &mut outside).await),
                false => sleep(length).await,
            }
            [near.take(), distant.take()]
        };
        run(2).await;
        let shares = run(4).await;
        tasks.shutdown().await;
        shares
    }

    /// The most grants that far processes of Redisson's can get while others hold: each takes four round trips, as `Outside::work` has them.
    fn most(self) -> u64 {
        let cycle = 8 * self.away + HOLD + ms(1);
        u64::try_from(4_000 * self.far as u128 / cycle.as_millis()).unwrap()
    }

    /// A far process does not wait all the time, so a share may be larger than a process of stanchion's at the same distance gets, or than
    /// its round trips permit.
    async fn is_fair(self) {
        let [near, redisson] = self.work(true).await;
        let [_, stanchion] = self.work(false).await;
        let waiters = self.near * self.tasks + self.far;
        let share = (near.0 + redisson.0) * self.far as u64 / waiters as u64;
        assert!(
            redisson.0 * 2 >= share.min(stanchion.0).min(self.most()),
            "{self:?}: {near:?} {redisson:?} {stanchion:?}"
        );
        assert!(
            redisson.1 <= 10 * stanchion.1,
            "{self:?}: {redisson:?} {stanchion:?}"
        );
    }
}

async fn far_clients_get_their_share(kind: Outside, permits: u32) {
    for away in [Duration::from_micros(200), ms(4), ms(20)] {
        for (near, tasks, far) in [(2, 2, 2), (3, 1, 1), (1, 3, 1), (1, 1, 1)] {
            let fleet = Fleet {
                kind,
                permits,
                near,
                tasks,
                far,
                away,
            };
            fleet.is_fair().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn far_clients_of_redisson_get_their_share_of_a_lock() {
    far_clients_get_their_share(Outside::Lock, 1).await;
}

#[tokio::test(start_paused = true)]
async fn far_writers_of_redisson_get_their_share_of_a_read_write_lock() {
    far_clients_get_their_share(Outside::Writers, 1).await;
}

#[tokio::test(start_paused = true)]
async fn far_clients_of_redisson_get_their_share_of_permits() {
    far_clients_get_their_share(Outside::Permits, 1).await;
    far_clients_get_their_share(Outside::Permits, 2).await;
}

#[tokio::test(start_paused = true)]
async fn far_clients_of_redisson_get_their_share_of_leased_permits() {
    far_clients_get_their_share(Outside::Leased, 1).await;
    far_clients_get_their_share(Outside::Leased, 2).await;
}
