//! Barriers on real servers: a process that is killed, full memory, minimal rights, a slot that moves.

use std::process::Command;

use stanchion::{
    AcquireError, BarrierError, Client, ClientConfig, DoubleBarrier, Rejection, Secret,
};
use stanchion_testkit::{Process, RedisServer, Signal, eventually_async};
use stanchion_tests::{cluster, lease, rights, server};
use tokio::time::timeout;

use super::*;

/// A timeout far above the duration of any step.
const LONG: Duration = secs(30);
/// A short lease, for tests that wait for its end.
const SHORT: Duration = ms(1500);

/// The environment variable with the URL of the server of a [`worker`].
const URL: &str = "STANCHION_TEST_BARRIER";

fn start_worker(url: &str) -> Process {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new(me);
    command.args(["barrier::servers::worker", "--exact", "--nocapture"]);
    Process::spawn(command.env(URL, url))
}

/// Runs in a copy of this program: waits, and prints the outcome. Without [`URL`] in the environment this test does nothing.
#[test]
fn worker() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::connect(&url).await.unwrap();
        println!("\nEND {:?}", short(&client).wait().await);
    });
}

fn short(client: &Client) -> CyclicBarrier {
    of(client, 4).lease(lease(SHORT))
}

fn short_double(client: &Client) -> DoubleBarrier {
    DoubleBarrier::new(client, "b", 3)
        .unwrap()
        .lease(lease(SHORT))
}

async fn connect(server: &RedisServer) -> Client {
    Client::connect(&server.url()).await.unwrap()
}

async fn in_places(server: &RedisServer, count: i64) {
    eventually_async("places are taken", async || {
        server.cli(&["ZCOUNT", PLACES, "0", "+inf"]).as_int() == count
    })
    .await;
}

/// The server's time in milliseconds.
fn millis(server: &RedisServer) -> i64 {
    let time = server.cli(&["TIME"]).as_texts();
    let part = |at: usize| time[at].parse::<i64>().unwrap();
    part(0) * 1000 + part(1) / 1000
}

/// Waits until the leases of `count` places have ended.
async fn dead(server: &RedisServer, count: i64) {
    eventually_async("leases end", async || {
        let now = millis(server).to_string();
        let dead = ["ZCOUNT", PLACES, "0", &format!("({now}")];
        server.cli(&dead).as_int() == count
    })
    .await;
}

/// Waits until each place in `places` was renewed after this call: its lease ends later than any lease given before.
async fn renewed(server: &RedisServer, places: &str, lease: Duration) {
    let latest = millis(server) + i64::try_from(lease.as_millis()).unwrap();
    eventually_async("each place is renewed", async || {
        let first = ["ZRANGE", places, "0", "0", "WITHSCORES"];
        let first = server.cli(&first).as_texts();
        let [_, ends] = &first[..] else {
            panic!("no place is left in {places}")
        };
        ends.parse::<i64>().unwrap() > latest
    })
    .await;
}

async fn met(waiting: Waiting) -> Passed {
    timeout(LONG, waiting).await.unwrap().unwrap().unwrap()
}

/// The place is free when its lease has ended, and a fifth party completes the round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_party_is_replaced() {
    let Some(server) = server() else { return };
    let dying = start_worker(&server.url());
    in_places(&server, 1).await;
    let waits = [
        wait(&short(&connect(&server).await)),
        wait(&short(&connect(&server).await)),
    ];
    in_places(&server, 3).await;
    dying.signal(Signal::Kill);
    dead(&server, 1).await;
    // The place of the killed party is free, so this arrival is the third, not the fourth.
    let fourth = wait(&short(&connect(&server).await));
    dead(&server, 0).await;
    in_places(&server, 3).await;
    let fifth = short(&connect(&server).await)
        .wait_timeout(LONG)
        .await
        .unwrap();
    assert!(fifth.is_last());
    for waiting in waits.into_iter().chain([fourth]) {
        assert_eq!(met(waiting).await.generation(), fifth.generation());
    }
}

/// Parties that are present keep their places and may leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_rejects_arrivals_and_allows_departures() {
    let Some(server) = server() else { return };
    let full = |full: bool| {
        let most = if full { "1" } else { "0" };
        let _ = server.cli(&["CONFIG", "SET", "maxmemory", most]);
    };
    let client = connect(&server).await;
    let refused = |result: &BarrierError| {
        matches!(
            result,
            BarrierError::Acquire(AcquireError::Rejected {
                rejection: Rejection::OutOfMemory { .. },
                ..
            })
        )
    };
    full(true);
    let none = short(&client).wait().await.unwrap_err();
    assert!(refused(&none), "{none:?}");
    assert_eq!(server.cli(&["EXISTS", "stanchion_barrier:{b}"]).as_int(), 0);
    let none = short_double(&client).enter().await.unwrap_err();
    assert!(refused(&none), "{none:?}");
    full(false);
    let waiting = wait_with(&short(&client), breaking());
    let other = wait_with(&short(&connect(&server).await), breaking());
    let inside = DoubleBarrier::new(&client, "d", 1)
        .unwrap()
        .lease(lease(SHORT));
    let inside = inside.enter().await.unwrap();
    in_places(&server, 2).await;
    full(true);
    renewed(&server, PLACES, SHORT).await;
    renewed(&server, "stanchion_double_in:{d}", SHORT).await;
    assert!(!waiting.is_finished() && inside.is_held(), "P10");
    let none = short(&client).wait().await.unwrap_err();
    assert!(refused(&none), "{none:?}");
    in_places(&server, 2).await;
    // A dropped wait breaks the round, and a member leaves.
    other.abort();
    let ended = timeout(LONG, waiting).await.unwrap().unwrap();
    assert_broken(&ended, BrokenBy::Left);
    timeout(LONG, inside.leave()).await.unwrap().unwrap();
    full(false);
}

/// As the ACL user of `docs/running/rights.md`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_needs_only_the_documented_rights() {
    let Some(server) = server() else { return };
    let config = rights::least(&server);
    let client = Client::connect_with(config).await.unwrap();
    let pair = CyclicBarrier::new(&client, "app:b", 2).unwrap();
    let lease = stanchion_tests::kept();
    let pair = pair.lease(lease);
    let first = wait(&pair);
    let places = "stanchion_barrier_in:{app:b}";
    eventually_async("the party has a place", async || {
        server.cli(&["ZCARD", places]).as_int() == 1
    })
    .await;
    renewed(&server, places, lease.length()).await;
    pair.wait_timeout(LONG).await.unwrap();
    met(first).await;
    assert!(pair.wait_timeout(ms(100)).await.is_err());
    // In the background. Before that, the next arrival would complete the round.
    eventually_async("the place is given back", async || {
        server.cli(&["ZCOUNT", places, "0", "+inf"]).as_int() == 0
    })
    .await;
    let first = wait_with(&pair, breaking());
    eventually_async("the party waits", async || {
        pair.status().await.unwrap().unwrap().waiting == 1
    })
    .await;
    assert_eq!(pair.danger().break_all().await.unwrap(), 1);
    assert!(first.await.unwrap().is_err());
    pair.set_parties(3).await.unwrap();
    let double = DoubleBarrier::new(&client, "app:b", 2).unwrap();
    let (one, other) = tokio::join!(double.enter(), double.enter());
    let (one, other) = tokio::join!(one.unwrap().leave(), other.unwrap().leave());
    one.and(other).unwrap();
    assert_eq!(rights::refused(&server), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_poll_without_the_right_to_publish() {
    let Some(server) = server() else { return };
    let _ = server.cli(&[
        "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish",
    ]);
    let config = ClientConfig::new(server.url()).username("mute".to_owned());
    let client = Client::connect_with(config.password(Secret::new("x")));
    let pair = of(&client.await.unwrap(), 2);
    let first = wait(&pair);
    in_places(&server, 1).await;
    let last = pair.wait_timeout(LONG).await.unwrap();
    assert_eq!(met(first).await.generation(), last.generation());
}

/// The slot moves while parties wait and while parties are inside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_a_round_moves_with_its_slot() {
    let Some(cluster) = cluster() else { return };
    let connect = async || Client::connect(&cluster.url()).await.unwrap();
    let (a, b) = (connect().await, connect().await);
    for name in ["b", "{tag}:b"] {
        let seconds = secs(3);
        let length = lease(seconds);
        let cyclic = |client: &Client| {
            let barrier = CyclicBarrier::new(client, name, 2).unwrap();
            barrier.lease(length)
        };
        let double = |client: &Client| {
            let barrier = DoubleBarrier::new(client, name, 2).unwrap();
            barrier.lease(length)
        };
        let (ours, theirs) = (double(&a), double(&b));
        let both = async { tokio::join!(ours.enter(), theirs.enter()) };
        let (one, other) = timeout(LONG, both).await.unwrap();
        let (one, other) = (one.unwrap(), other.unwrap());
        let first = wait_with(&cyclic(&a), breaking());
        eventually_async("the party waits", async || {
            let status = cyclic(&b).status().await.unwrap();
            status.is_some_and(|status| status.waiting == 1)
        })
        .await;
        let from = cluster.master_of_key(name);
        let to = (from + 1) % 3;
        tokio::task::block_in_place(|| cluster.move_slot(cluster.slot(name), to));
        let places = format!("stanchion_barrier_in:{}", braced(name));
        let inside = format!("stanchion_double_in:{}", braced(name));
        renewed(cluster.node(to), &places, seconds).await;
        renewed(cluster.node(to), &inside, seconds).await;
        assert!(
            one.is_held() && other.is_held() && !first.is_finished(),
            "P10"
        );
        // Moves the slot back slowly. Its keys are on two nodes for four renewals, which is longer than a lease.
        let migration = tokio::task::block_in_place(|| cluster.migrate(cluster.slot(name), from));
        tokio::task::block_in_place(|| migration.move_key(&places));
        cluster.node(from).reset_stats();
        eventually_async("the place is renewed four times", async || {
            let calls = cluster.node(from).commands_processed();
            calls.get("zadd").is_some_and(|calls| *calls >= 4)
        })
        .await;
        assert!(!first.is_finished());
        tokio::task::block_in_place(|| {
            migration.move_keys();
            migration.finish();
        });
        let last = timeout(LONG, cyclic(&b).wait()).await.unwrap().unwrap();
        assert_eq!(met(first).await.generation(), last.generation());
        let leaving = async { tokio::join!(one.leave(), other.leave()) };
        let (one, other) = timeout(LONG, leaving).await.unwrap();
        one.and(other).unwrap();
    }
}

fn braced(name: &str) -> String {
    if name.contains('{') {
        name.to_owned()
    } else {
        format!("{{{name}}}")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parties_meet_on_a_real_server_under_odd_names() {
    let Some(server) = server() else { return };
    for name in [
        &b"b"[..],
        b"{b}",
        b"{t}:b",
        b"a\nb",
        b"\xff{",
        b"}",
        b"a b 1,2",
    ] {
        let mut parties = Vec::new();
        for _ in 0..3 {
            let client = Client::connect(&server.url()).await.unwrap();
            let barrier = CyclicBarrier::new(&client, name, 3).unwrap();
            parties.push(tokio::spawn(async move {
                let mut seen = Vec::new();
                for _ in 0..20 {
                    let waiting = barrier.wait_timeout(secs(30));
                    seen.push(waiting.await.unwrap().generation());
                }
                seen
            }));
        }
        let mut all = Vec::new();
        for party in parties {
            let seen = timeout(secs(60), party).await;
            all.push(seen.unwrap().unwrap());
        }
        assert!(all.iter().all(|seen| *seen == all[0]), "{all:?}");
    }
}
