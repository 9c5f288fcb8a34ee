//! Barriers on real servers: processes that are killed or stopped, full memory, minimal rights, a slot that moves.

use std::process::Command;

use stanchion::{
    AcquireError, BarrierError, Client, ClientConfig, DoubleBarrier, Lease, Rejection, Secret,
};
use stanchion_testkit::{Cluster, Process, RedisServer, Signal, eventually_async};
use stanchion_tests::rights;
use tokio::time::{Instant, timeout};

use super::*;

/// A timeout far above the duration of any step.
const LONG: Duration = Duration::from_secs(30);
/// A short lease, for tests that wait for its end.
const SHORT: Duration = ms(1500);

/// The environment variable with the task of a [`worker`] and the URL of its server.
const TASK: &str = "STANCHION_TEST_BARRIER";

fn start_worker(task: &str, url: &str) -> Process {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new(me);
    command.args(["barrier::servers::worker", "--exact", "--nocapture"]);
    Process::spawn(command.env(TASK, format!("{task} {url}")))
}

/// Runs in a copy of this program: waits or enters, and prints the outcome. Without [`TASK`] in the environment this test does nothing.
#[test]
fn worker() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let (task, url) = task.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        match task {
            "free" => println!("\nEND {:?}", short(&client).wait().await),
            "break" => println!("\nEND {:?}", short(&client).wait_with(breaking()).await),
            _ => {
                let inside = short_double(&client).enter().await.unwrap();
                println!("\nINSIDE");
                inside.lost().await;
                println!("\nLOST");
                println!("\nEND {:?}", inside.leave().await);
            }
        }
    });
}

fn lease() -> Lease {
    Lease::new(SHORT).unwrap()
}

fn short(client: &Client) -> CyclicBarrier {
    of(client, 4).lease(lease())
}

fn short_double(client: &Client) -> DoubleBarrier {
    DoubleBarrier::new(client, "b", 3).unwrap().lease(lease())
}

fn line(worker: &mut Process, start: &str) -> String {
    worker.wait_for_line(|line| line.starts_with(start), LONG)
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

/// Waits until `count` connections are subscribed to the barrier.
async fn subscribed(server: &RedisServer, count: usize) {
    eventually_async(
        "the expected number of connections is subscribed",
        async || server.subscribers("stanchion_barrier:{b}") == count,
    )
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
    let Some(server) = RedisServer::or_skip("a_killed_party_is_replaced") else {
        return;
    };
    let dying = start_worker("free", &server.url());
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_party_breaks_the_round() {
    let Some(server) = RedisServer::or_skip("a_killed_party_breaks_the_round") else {
        return;
    };
    let dying = start_worker("break", &server.url());
    in_places(&server, 1).await;
    let mut waits = Vec::new();
    for n in 0..2 {
        waits.push(wait_with(&short(&connect(&server).await), breaking()));
        in_places(&server, 2 + n).await;
    }
    dying.signal(Signal::Kill);
    let began = Instant::now();
    for waiting in waits {
        let ended = timeout(LONG, waiting).await.unwrap().unwrap();
        assert_broken(&ended, BrokenBy::Died);
    }
    // A lease and a round trip, with an allowance for a loaded machine.
    assert!(began.elapsed() <= SHORT + ms(500), "{:?}", began.elapsed());
    let mut waits = Vec::new();
    for n in 0..3 {
        waits.push(wait(&short(&connect(&server).await)));
        in_places(&server, 1 + n).await;
    }
    let last = short(&connect(&server).await)
        .wait_timeout(LONG)
        .await
        .unwrap();
    for waiting in waits {
        assert_eq!(met(waiting).await.generation(), last.generation());
    }
}

/// The process is stopped until its lease has ended. Under `Break` its wait fails. Under `Free` it arrives again in the current round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_party_learns_of_the_loss_of_its_place() {
    let Some(server) = RedisServer::or_skip("a_stopped_party_learns") else {
        return;
    };
    for task in ["free", "break"] {
        subscribed(&server, 0).await;
        let mut stopped = start_worker(task, &server.url());
        in_places(&server, 1).await;
        // A renewal shows that the party knows of its place. Otherwise it would only arrive after it continues.
        renewed(&server, PLACES, SHORT).await;
        stopped.signal(Signal::Stop);
        dead(&server, 1).await;
        // The next arrival removes the expired place.
        let first = wait(&short(&connect(&server).await));
        eventually_async("the party has a place", async || {
            let status = short(&connect(&server).await).status().await.unwrap();
            status.unwrap().waiting == 1
        })
        .await;
        stopped.signal(Signal::Cont);
        if task == "break" {
            let printed = line(&mut stopped, "END");
            assert!(printed.contains("by: Died"), "{printed}");
            in_places(&server, 1).await;
        } else {
            in_places(&server, 2).await;
        }
        let mut waits = vec![first];
        let others = if task == "break" { 2 } else { 1 };
        for n in 0..others {
            waits.push(wait(&short(&connect(&server).await)));
            in_places(&server, 4 - others + n).await;
        }
        let last = short(&connect(&server).await)
            .wait_timeout(LONG)
            .await
            .unwrap();
        for waiting in waits {
            assert_eq!(met(waiting).await.generation(), last.generation());
        }
        if task == "free" {
            let printed = line(&mut stopped, "END");
            let round = format!("generation: {}", last.generation());
            assert!(printed.contains(&round), "{printed} {last:?}");
        }
        in_places(&server, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_killed_or_stopped_delays_the_others_for_its_lease() {
    let Some(server) = RedisServer::or_skip("a_member_that_is_killed") else {
        return;
    };
    for signal in [Signal::Kill, Signal::Stop] {
        let mut member = start_worker("double", &server.url());
        let (one, other) = (connect(&server).await, connect(&server).await);
        let one = tokio::spawn(async move { short_double(&one).enter().await });
        let other = tokio::spawn(async move { short_double(&other).enter().await });
        line(&mut member, "INSIDE");
        let one = timeout(LONG, one).await.unwrap().unwrap().unwrap();
        let other = timeout(LONG, other).await.unwrap().unwrap().unwrap();
        member.signal(signal);
        let began = Instant::now();
        let one = tokio::spawn(one.leave());
        timeout(LONG, other.leave()).await.unwrap().unwrap();
        timeout(LONG, one).await.unwrap().unwrap().unwrap();
        let took = began.elapsed();
        assert!(took >= SHORT / 3, "{took:?}");
        assert!(took <= SHORT + ms(500), "{took:?}");
        if matches!(signal, Signal::Stop) {
            let printed = member.lines().len();
            member.signal(Signal::Cont);
            line(&mut member, "LOST");
            assert!(line(&mut member, "END").contains("Err("));
            assert!(member.lines().len() > printed);
        }
    }
}

/// Parties that are present keep their places and may leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_rejects_arrivals_and_allows_departures() {
    let Some(server) = RedisServer::or_skip("a_full_server_rejects_arrivals") else {
        return;
    };
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
    let inside = DoubleBarrier::new(&client, "d", 1).unwrap().lease(lease());
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
    let Some(server) = RedisServer::or_skip("a_barrier_needs_only_the_documented_rights") else {
        return;
    };
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
    let Some(server) = RedisServer::or_skip("waiters_poll_without_the_right_to_publish") else {
        return;
    };
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_polling_client_and_a_subscribed_client_complete_rounds() {
    let Some(server) = RedisServer::or_skip("a_polling_client") else {
        return;
    };
    let config = ClientConfig::new(server.url()).wake(stanchion::client::Wake::Poll);
    let polls = of(&Client::connect_with(config).await.unwrap(), 2);
    let listens = of(&connect(&server).await, 2);
    let mut seen = Vec::new();
    for _ in 0..20 {
        let both = async { tokio::join!(polls.wait(), listens.wait()) };
        let (one, other) = timeout(LONG, both).await.unwrap();
        assert_eq!(
            one.as_ref().unwrap().generation(),
            other.unwrap().generation()
        );
        seen.push(one.unwrap().generation());
    }
    assert!(seen.windows(2).all(|pair| pair[1] == pair[0] + 1));
}

/// The slot moves while parties wait and while parties are inside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_a_round_moves_with_its_slot() {
    let Some(cluster) = Cluster::or_skip("in_a_cluster_a_round_moves") else {
        return;
    };
    let connect = async || Client::connect(&cluster.url()).await.unwrap();
    let (a, b) = (connect().await, connect().await);
    for name in ["b", "{tag}:b"] {
        let seconds = Duration::from_secs(3);
        let lease = Lease::new(seconds).unwrap();
        let cyclic = |client: &Client| {
            let barrier = CyclicBarrier::new(client, name, 2).unwrap();
            barrier.lease(lease)
        };
        let double = |client: &Client| {
            let barrier = DoubleBarrier::new(client, name, 2).unwrap();
            barrier.lease(lease)
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
    let Some(server) = RedisServer::or_skip("parties_meet") else {
        return;
    };
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
                    let waiting = barrier.wait_timeout(Duration::from_secs(30));
                    seen.push(waiting.await.unwrap().generation());
                }
                seen
            }));
        }
        let mut all = Vec::new();
        for party in parties {
            let seen = timeout(Duration::from_secs(60), party).await;
            all.push(seen.unwrap().unwrap());
        }
        assert!(all.iter().all(|seen| *seen == all[0]), "{all:?}");
    }
}
