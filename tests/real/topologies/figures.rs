//! Measures how long failovers and moved slots delay clients, and prints rows for `docs/topologies.md`.
//!
//! Run with `-- --ignored --nocapture --test-threads 1`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stanchion::{FairLock, Semaphore};
use stanchion_testkit::{RedisServer, SentinelSet, eventually_blocking, machine_clock};
use stanchion_tests::{cluster, lease, sentinels};

use super::support::*;

const ROUNDS: usize = 3;

/// The number of clients that use each name.
const CLIENTS: usize = 4;

/// The time for which each hold is kept.
const WORK: Duration = ms(2);

/// The grants of one name.
#[derive(Debug)]
struct Grants {
    count: AtomicU64,
    /// The moment of the last grant, in ns since the fleet started.
    last: AtomicU64,
    /// The longest time between two grants, in ns.
    longest: AtomicU64,
}

impl Grants {
    fn granted(&self, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap();
        let last = self.last.swap(now, Ordering::Relaxed);
        self.longest
            .fetch_max(now.saturating_sub(last), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Clients that compete for a lock, a fair lock and two plain permits, with the default lease. A lost release blocks the others for up to
/// 30 s, or permanently for a plain permit.
struct Fleet {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    grants: [Arc<Grants>; 3],
}

impl Fleet {
    async fn start(url: &str) -> Self {
        let began = machine_clock();
        let stop = Arc::new(AtomicBool::new(false));
        let grants = [(); 3].map(|()| {
            Arc::new(Grants {
                count: AtomicU64::new(0),
                last: AtomicU64::new(0),
                longest: AtomicU64::new(0),
            })
        });
        let mut tasks = Vec::new();
        for _ in 0..CLIENTS {
            let client = connect(url).await;
            let lock = lock(&client, "{orders}lock", LONG);
            let fair = FairLock::new(&client, "{orders}fair").unwrap();
            let fair = fair.lease(lease(LONG));
            let plain = Semaphore::new(&client, "{orders}plain").unwrap();
            // `init` returns `false` if another client was first.
            let _ = plain.init(2).await.unwrap();
            macro_rules! compete {
                ($of:expr, $acquire:expr) => {{
                    let (stop, grants) = (Arc::clone(&stop), Arc::clone(&grants[$of]));
                    tasks.push(tokio::spawn(async move {
                        while !stop.load(Ordering::Relaxed) {
                            let Ok(guard) = $acquire.await else { continue };
                            grants.granted(machine_clock() - began);
                            tokio::time::sleep(WORK).await;
                            // The client continues after any error, also if the hold is lost or ambiguous.
                            let _ = guard.release().await;
                        }
                    }));
                }};
            }
            compete!(0, lock.acquire());
            compete!(1, fair.acquire());
            compete!(2, plain.acquire());
        }
        let fleet = Self {
            stop,
            tasks,
            grants,
        };
        fleet.goes_on().await;
        for grants in &fleet.grants {
            grants.longest.store(0, Ordering::Relaxed);
        }
        fleet
    }

    /// Waits for 50 more grants of each name.
    async fn goes_on(&self) {
        let counts = || {
            self.grants
                .each_ref()
                .map(|it| it.count.load(Ordering::Relaxed))
        };
        let before = counts();
        let more = async {
            while counts()
                .iter()
                .zip(before)
                .any(|(now, before)| *now < before + 50)
            {
                tokio::time::sleep(ms(10)).await;
            }
        };
        soon(LONG * 2, more).await;
    }

    /// Returns the longest times between two grants: of the lock, of the fair lock, of the permits.
    async fn end(self) -> [Duration; 3] {
        self.goes_on().await;
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.grants
            .map(|it| Duration::from_nanos(it.longest.load(Ordering::Relaxed)))
    }
}

/// The time that the servers need, and the longest times of the fleet.
type Row = (Duration, [Duration; 3]);

/// Measures the time from `change` until `done`, and the longest times between grants of a busy fleet until after `over`.
async fn measure(
    url: &str,
    change: impl FnOnce(),
    done: impl Fn() -> bool,
    over: impl FnOnce(),
) -> Row {
    let fleet = Fleet::start(url).await;
    tokio::time::sleep(ms(500)).await;
    let began = machine_clock();
    apart(|| {
        change();
        eventually_blocking("the servers are done", done);
    });
    let servers = machine_clock() - began;
    // A client that ends before it knows the new master does not repeat its lost releases.
    apart(over);
    (servers, fleet.end().await)
}

/// Prints the median of each column, and the longest times of the fleet.
#[expect(clippy::print_stdout, reason = "printing is the purpose")]
fn print(what: &str, rounds: &[Row]) {
    let median = |of: &dyn Fn(&Row) -> Duration| {
        let mut column: Vec<_> = rounds.iter().map(of).collect();
        column.sort_unstable();
        column[column.len() / 2].as_millis()
    };
    let of = |kind: usize| median(&move |row: &Row| row.1[kind]);
    let worst = rounds.iter().flat_map(|row| row.1).max();
    println!(
        "| {what} | {} ms | {} ms | {} ms | {} ms | {} ms |",
        median(&|row| row.0),
        of(0),
        of(1),
        of(2),
        worst.unwrap_or_default().as_millis(),
    );
}

fn takes_writes(server: &RedisServer, key: &str) -> bool {
    server.try_cli(&["SET", key, "x"]).is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn measure_failovers_by_sentinels() {
    let (mut requested, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let Some(mut set) = sentinels() else { return };
        let old = set.master();
        let fail_over = || {
            eventually_blocking("a sentinel agrees", || {
                !set.sentinel(0)
                    .cli(&["SENTINEL", "FAILOVER", SentinelSet::SERVICE])
                    .is_error()
            });
        };
        let promoted = |set: &SentinelSet, old: usize| {
            (0..3).any(|n| {
                n != old
                    && set.server(n).is_running()
                    && takes_writes(set.server(n), "{orders}probe")
            })
        };
        requested.push(
            measure(
                &set.url(),
                fail_over,
                || promoted(&set, old),
                || {
                    let _ = set.another_master(old);
                },
            )
            .await,
        );
        apart(|| set.settle());
        let old = apart(|| set.master());
        let pid = set.server(old).pid().to_string();
        let kill = || {
            let status = std::process::Command::new("kill")
                .args(["-9", &pid])
                .status();
            assert!(status.unwrap().success());
        };
        killed.push(
            measure(
                &set.url(),
                kill,
                || promoted(&set, old),
                || {
                    let _ = set.another_master(old);
                },
            )
            .await,
        );
        set.kill(old);
    }
    print("Sentinel: `SENTINEL FAILOVER`", &requested);
    print("Sentinel: the master is killed", &killed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn measure_changes_in_a_cluster() {
    let (mut moved, mut requested) = (Vec::new(), Vec::new());
    let (mut forced, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let Some(mut cluster) = cluster() else { return };
        let slot = cluster.slot("orders");
        let owner = cluster.master_of(slot);
        let to = (owner + 1) % 3;
        moved.push(
            measure(
                &cluster.url(),
                || cluster.move_slot(slot, to),
                || true,
                || (),
            )
            .await,
        );
        let replica = cluster.replica_of(to);
        let fail_over = || drop(cluster.node(replica).cli(&["CLUSTER", "FAILOVER"]));
        let promoted = || takes_writes(cluster.node(replica), "{orders}probe");
        requested.push(
            measure(&cluster.url(), fail_over, promoted, || {
                let _ = cluster.master_of(slot);
            })
            .await,
        );
        apart(|| cluster.settle());
        let (old, replica) = (replica, cluster.replica_of(replica));
        let force = || drop(cluster.node(replica).cli(&["CLUSTER", "FAILOVER", "FORCE"]));
        let promoted = || takes_writes(cluster.node(replica), "{orders}probe");
        forced.push(
            measure(&cluster.url(), force, promoted, || {
                let _ = cluster.master_of(slot);
            })
            .await,
        );
        apart(|| cluster.settle());
        let (old, replica) = (replica, old);
        let pid = cluster.node(old).pid().to_string();
        let kill = || {
            let status = std::process::Command::new("kill")
                .args(["-9", &pid])
                .status();
            assert!(status.unwrap().success());
        };
        let promoted = || takes_writes(cluster.node(replica), "{orders}probe");
        killed.push(
            measure(&cluster.url(), kill, promoted, || {
                let _ = cluster.master_of(slot);
            })
            .await,
        );
        cluster.kill(old);
    }
    print("Cluster: a slot with these names moves", &moved);
    print("Cluster: `CLUSTER FAILOVER`", &requested);
    print("Cluster: `CLUSTER FAILOVER FORCE`", &forced);
    print("Cluster: the master is killed", &killed);
}
