//! Barriers on the embedded engine in virtual time.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion_barrier::{
    AcquireError, BarrierError, Client, ClientConfig, CyclicBarrier, Passed, Rejection,
};
use stanchion_embedded::Engine;
use stanchion_testkit::eventually_async;

async fn client(engine: &Engine) -> Client {
    let config = ClientConfig::embedded(engine).virtual_time();
    Client::connect_with(config).await.unwrap()
}

async fn barrier(engine: &Engine, parties: u32) -> CyclicBarrier {
    CyclicBarrier::new(&client(engine).await, "b", parties).unwrap()
}

fn places(engine: &Engine) -> String {
    format!(
        "{:?}",
        engine.execute(&["ZCARD", "stanchion_barrier_in:{b}"])
    )
}

async fn taken(engine: &Engine, count: usize) {
    let wanted = format!("Int({count})");
    eventually_async("places are taken", async || places(engine) == wanted).await;
}

fn spawn(barrier: &CyclicBarrier) -> tokio::task::JoinHandle<Result<Passed, BarrierError>> {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.wait().await })
}

#[tokio::test(start_paused = true)]
async fn alone_every_wait_trips_and_generations_grow_by_one() {
    let alone = barrier(&Engine::in_virtual_time(), 1).await;
    let first = alone.wait().await.unwrap();
    for n in 1..20 {
        let next = alone.wait().await.unwrap();
        assert_eq!(next.generation(), first.generation() + n);
        assert!(next.is_last() && next.arrival() == 1);
    }
}

/// Every party sees each generation once, in order; one is last, and arrivals are 1..n.
#[tokio::test(start_paused = true)]
async fn parties_of_four_processes_meet_in_every_round() {
    let engine = Engine::in_virtual_time();
    let mut parties = Vec::new();
    for seed in 0..4 {
        let barrier = barrier(&engine, 4).await;
        parties.push(tokio::spawn(async move {
            let mut random = seed;
            let mut seen = Vec::new();
            for _ in 0..200 {
                random = (random * 75 + 74) % 65_537;
                tokio::time::sleep(Duration::from_millis(random % 20)).await;
                seen.push(barrier.wait().await.unwrap());
            }
            seen
        }));
    }
    let mut rounds: BTreeMap<u64, Vec<Passed>> = BTreeMap::new();
    for party in parties {
        let seen = party.await.unwrap();
        for pair in seen.windows(2) {
            assert_eq!(pair[1].generation(), pair[0].generation() + 1);
        }
        for passed in seen {
            rounds.entry(passed.generation()).or_default().push(passed);
        }
    }
    assert_eq!(rounds.len(), 200);
    for round in rounds.values() {
        let mut arrivals: Vec<u32> = round.iter().map(Passed::arrival).collect();
        arrivals.sort_unstable();
        assert_eq!(arrivals, [1, 2, 3, 4]);
        assert_eq!(round.iter().filter(|it| it.is_last()).count(), 1);
    }
}

/// P3.
#[tokio::test(start_paused = true)]
async fn a_dropped_wait_gives_its_place_back() {
    let engine = Engine::in_virtual_time();
    let meeting = barrier(&engine, 2).await;
    let dropped = spawn(&meeting);
    taken(&engine, 1).await;
    dropped.abort();
    taken(&engine, 0).await;
    let one = spawn(&meeting);
    taken(&engine, 1).await;
    let other = meeting.wait().await.unwrap();
    assert_eq!(one.await.unwrap().unwrap().generation(), other.generation());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_is_not_counted() {
    let engine = Engine::in_virtual_time();
    let meeting = barrier(&engine, 2).await;
    let late = meeting.wait_timeout(Duration::from_millis(200)).await;
    let uncounted = matches!(
        late,
        Err(BarrierError::Acquire(AcquireError::TimedOut {
            free_by: None,
            ..
        }))
    );
    assert!(uncounted, "{late:?}");
    assert_eq!(places(&engine), "Int(0)");
}

/// P6: of the arrival that trips, and of one that waits.
#[tokio::test(start_paused = true)]
async fn an_arrival_whose_answer_is_lost_counts_once() {
    let engine = Engine::in_virtual_time();
    let (one, other) = (barrier(&engine, 2).await, barrier(&engine, 2).await);
    for lost_by_last in [false, true] {
        if !lost_by_last {
            engine.faults().lose_replies("EVALSHA", 1);
        }
        let first = spawn(&one);
        taken(&engine, 1).await;
        if lost_by_last {
            engine.faults().lose_replies("EVALSHA", 1);
        }
        let last = other.wait().await.unwrap();
        assert!(last.is_last());
        assert_eq!(
            first.await.unwrap().unwrap().generation(),
            last.generation()
        );
        assert_eq!(places(&engine), "Int(0)");
    }
}

#[tokio::test(start_paused = true)]
async fn another_number_of_parties_is_refused_and_changes_nothing() {
    let engine = Engine::in_virtual_time();
    let first = spawn(&barrier(&engine, 2).await);
    taken(&engine, 1).await;
    let refused = barrier(&engine, 3).await.wait().await;
    assert!(
        matches!(
            refused,
            Err(BarrierError::Parties {
                theirs: 2,
                ours: 3,
                ..
            })
        ),
        "{refused:?}"
    );
    barrier(&engine, 2).await.wait().await.unwrap();
    first.await.unwrap().unwrap();
    let none = barrier(&engine, 0).await.wait().await;
    assert!(none.unwrap_err().to_string().contains("1 to 10000"));
}

#[tokio::test(start_paused = true)]
async fn a_barrier_that_is_lost_by_the_server_is_deleted_to_who_waits() {
    let engine = Engine::in_virtual_time();
    let first = spawn(&barrier(&engine, 2).await);
    taken(&engine, 1).await;
    engine.execute(&["FLUSHALL"]);
    let deleted = first.await.unwrap();
    assert!(
        matches!(
            deleted,
            Err(BarrierError::Acquire(AcquireError::Rejected {
                rejection: Rejection::Deleted,
                ..
            }))
        ),
        "{deleted:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_foreign_key_is_refused_and_stays() {
    let engine = Engine::in_virtual_time();
    engine.execute(&["SET", "stanchion_barrier:{b}", "x"]);
    let refused = barrier(&engine, 2).await.wait().await;
    assert!(
        matches!(
            refused,
            Err(BarrierError::Acquire(AcquireError::Rejected {
                rejection: Rejection::WrongType { .. },
                ..
            }))
        ),
        "{refused:?}"
    );
}

/// A place is renewed as long as its waiter lives: far beyond its lease.
#[tokio::test(start_paused = true)]
async fn a_living_waiter_keeps_its_place_for_hours() {
    let engine = Engine::in_virtual_time();
    let first = spawn(&barrier(&engine, 2).await);
    taken(&engine, 1).await;
    tokio::time::sleep(Duration::from_secs(7_300)).await;
    let last = barrier(&engine, 2).await.wait().await.unwrap();
    assert!(last.is_last());
    first.await.unwrap().unwrap();
}

/// On a real server; with names that have braces, newlines and bytes that are no text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parties_meet_on_a_real_server_under_odd_names() {
    let Some(server) = stanchion_testkit::RedisServer::or_skip("parties_meet") else {
        return;
    };
    for name in [&b"b"[..], b"{b}", b"{t}:b", b"a\nb", b"\xff{", b"}"] {
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
            all.push(party.await.unwrap());
        }
        assert!(all.iter().all(|seen| *seen == all[0]), "{all:?}");
    }
}
