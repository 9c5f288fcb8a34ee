//! Callers of a RedLock on three servers of their own, from two sets of clients on two runtimes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use stanchion::{Client, RedLock, RedLockError};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::Server;
use crate::judge::{Judge, Kind, Need, Place};
use crate::work::{Rounds, World, a_moment};

const NAME: &str = "quorum";

/// The number of tasks of each set of clients.
const CALLERS: usize = 2;

pub(crate) struct Quorum {
    servers: Vec<Server>,
    sets: Vec<Vec<Client>>,
    place: Arc<Place>,
    tasks: Vec<JoinHandle<()>>,
}

impl Quorum {
    /// Connects a set of clients on each of `runtimes`.
    pub(crate) fn of(judge: &Arc<Judge>, servers: Vec<Server>, runtimes: [&Runtime; 2]) -> Self {
        let set = |runtime: &Runtime| {
            let connect = |server: &Server| {
                let client = runtime.block_on(Client::connect_with(server.config()));
                client.unwrap()
            };
            servers.iter().map(connect).collect()
        };
        Self {
            sets: runtimes.map(set).into(),
            place: judge.place(NAME, Kind::Alone),
            tasks: Vec::new(),
            servers,
        }
    }

    pub(crate) fn start(&mut self, world: &Arc<World>, runtimes: [&Runtime; 2], random: &mut Rng) {
        let rounds = Rounds::of(CALLERS * self.sets.len());
        for (clients, runtime) in self.sets.iter().zip(runtimes) {
            for _ in 0..CALLERS {
                let (world, place, rounds) = (
                    Arc::clone(world),
                    Arc::clone(&self.place),
                    Arc::clone(&rounds),
                );
                let lock = RedLock::new(clients, NAME).unwrap();
                let caller = call(world, place, rounds, lock, random.fork());
                self.tasks.push(runtime.spawn(caller));
            }
        }
    }

    /// Waits for the callers, after the world has stopped.
    pub(crate) async fn join(&mut self) {
        for task in self.tasks.drain(..) {
            task.await.unwrap();
        }
    }

    /// P3: the lock is free, and no server has a key without a TTL.
    pub(crate) async fn leave(self, judge: &Judge) {
        let lock = RedLock::new(&self.sets[0], NAME).unwrap();
        match lock.acquire_timeout(Duration::from_secs(5)).await {
            Ok(guard) => drop(guard.release().await),
            Err(error) => judge.found(format!("P3: {NAME} is not free: {error:?}")),
        }
        for client in self.sets.into_iter().flatten() {
            let report = client.shutdown(Duration::from_secs(5)).await;
            if !report.is_clean() {
                judge.found(format!("P3: a client of {NAME} left {report:?}"));
            }
        }
        for server in self.servers {
            let endless = server.endless_keys();
            if !endless.is_empty() {
                judge.found(format!("P3: keys of {NAME} without a TTL: {endless:?}"));
            }
        }
    }
}

/// Calls, holds and releases, until the world stops.
async fn call(
    world: Arc<World>,
    place: Arc<Place>,
    rounds: Arc<Rounds>,
    lock: RedLock,
    mut random: Rng,
) {
    while rounds.next(&world).await {
        a_moment(&mut random, 600).await;
        world.operations.fetch_add(1, Ordering::Relaxed);
        let short = Duration::from_micros(random.u64(0..5000));
        let waiting = place.wait(Need::Alone, "acquire");
        let granted = match random.u8(0..10) {
            0 => lock.try_acquire().await.transpose(),
            1 => Some(lock.acquire_timeout(short).await),
            // Dropped in the middle.
            2 => timeout(short, lock.acquire()).await.ok(),
            _ => Some(lock.acquire().await),
        };
        match granted {
            Some(Ok(guard)) => {
                let inside = waiting.enter(None);
                a_moment(&mut random, 500).await;
                drop(inside);
                if random.bool() {
                    if let Err(error) = guard.release().await {
                        world
                            .judge
                            .found(format!("P8: release of {NAME}: {error:?}"));
                    }
                } else {
                    drop(guard);
                }
            }
            None | Some(Err(RedLockError::TimedOut { .. })) => {}
            Some(Err(error)) => world
                .judge
                .found(format!("P8: acquire of {NAME}: {error:?}")),
        }
    }
}
