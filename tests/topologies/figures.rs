//! The cost of a change of servers: run with `-- --ignored --nocapture --test-threads 1`, prints rows for `docs/topologies.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stanchion::Client;
use stanchion_testkit::{Cluster, RedisServer, SentinelSet, eventually_blocking, machine_clock};

use crate::support::*;

const ROUNDS: usize = 3;

/// No name is used twice, see [`Busy`].
static NAMES: AtomicU64 = AtomicU64::new(0);

/// Acquires and releases again and again, each time another name of one slot: a failover can lose a release, and then its
/// name is free when the lease ends. Tells the longest time between two grants.
struct Busy {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Duration>,
    grants: Arc<AtomicU64>,
}

impl Busy {
    fn start(client: &Client) -> Self {
        let client = client.clone();
        let (stop, grants) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, granted) = (Arc::clone(&stop), Arc::clone(&grants));
        let task = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            let mut last = machine_clock();
            while !stopped.load(Ordering::Relaxed) {
                let name = format!("{{orders}}-{}", NAMES.fetch_add(1, Ordering::Relaxed));
                let Ok(guard) = lock(&client, &name, LONG).acquire().await else {
                    continue;
                };
                let now = machine_clock();
                longest = longest.max(now - last);
                last = now;
                granted.fetch_add(1, Ordering::Relaxed);
                let _ = guard.release().await;
            }
            longest
        });
        Self { stop, task, grants }
    }

    /// Waits for a few more grants: the change is over.
    async fn end(self) -> Duration {
        let enough = self.grants.load(Ordering::Relaxed) + 20;
        let going_on = || self.grants.load(Ordering::Relaxed) > enough;
        apart(|| eventually_blocking("it goes on", going_on));
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Measures the time from `change` until `done`, and what a busy client sees meanwhile.
async fn measure(
    client: &Client,
    change: impl FnOnce(),
    done: impl Fn() -> bool,
) -> (Duration, Duration) {
    let busy = Busy::start(client);
    tokio::time::sleep(ms(200)).await;
    let began = machine_clock();
    apart(|| {
        change();
        eventually_blocking("the servers are done", done);
    });
    let servers = machine_clock() - began;
    (servers, busy.end().await)
}

#[expect(clippy::print_stdout, reason = "it is for reading")]
fn print(what: &str, mut rounds: Vec<(Duration, Duration)>) {
    rounds.sort_unstable();
    let (servers, client) = rounds[rounds.len() / 2];
    println!(
        "| {what} | {} ms | {} ms |",
        servers.as_millis(),
        client.as_millis()
    );
}

fn takes_writes(server: &RedisServer, key: &str) -> bool {
    server.try_cli(&["SET", key, "x"]).is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn of_a_failover_by_sentinels() {
    let (mut asked, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let Some(mut set) = SentinelSet::or_skip("figures") else {
            return;
        };
        let client = connect(set.url()).await;
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
        asked.push(measure(&client, fail_over, || promoted(&set, old)).await);
        apart(|| set.settle());
        let old = apart(|| set.master());
        let pid = set.server(old).pid().to_string();
        let kill = || {
            let status = std::process::Command::new("kill")
                .args(["-9", &pid])
                .status();
            assert!(status.unwrap().success());
        };
        killed.push(measure(&client, kill, || promoted(&set, old)).await);
        set.kill(old);
    }
    print("Sentinel: `SENTINEL FAILOVER`", asked);
    print("Sentinel: the master is killed", killed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn of_changes_in_a_cluster() {
    let (mut moved, mut asked, mut killed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let Some(mut cluster) = Cluster::or_skip("figures") else {
            return;
        };
        let client = connect(cluster.url()).await;
        let slot = cluster.slot("orders");
        let owner = cluster.master_of(slot);
        let to = (owner + 1) % 3;
        moved.push(measure(&client, || cluster.move_slot(slot, to), || true).await);
        let replica = cluster.replica_of(to);
        let fail_over = || drop(cluster.node(replica).cli(&["CLUSTER", "FAILOVER"]));
        let promoted = || takes_writes(cluster.node(replica), "{orders}probe");
        asked.push(measure(&client, fail_over, promoted).await);
        apart(|| cluster.settle());
        let (old, replica) = (replica, cluster.replica_of(replica));
        let pid = cluster.node(old).pid().to_string();
        let kill = || {
            let status = std::process::Command::new("kill")
                .args(["-9", &pid])
                .status();
            assert!(status.unwrap().success());
        };
        let promoted = || takes_writes(cluster.node(replica), "{orders}probe");
        killed.push(measure(&client, kill, promoted).await);
        cluster.kill(old);
    }
    print("Cluster: a slot with one name moves", moved);
    print("Cluster: `CLUSTER FAILOVER`", asked);
    print("Cluster: the master is killed", killed);
}
