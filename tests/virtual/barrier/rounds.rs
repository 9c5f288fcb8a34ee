//! Rounds of a `CyclicBarrier`: members, numbers, and the cost in scripts and messages.

use std::collections::BTreeMap;

use stanchion::barrier::InvalidBarrier;
use stanchion::embedded::Engine;
use stanchion::{AcquireError, BarrierError, DoubleBarrier, QueryError, Rejection};
use stanchion_tests::together;
use tokio::time::{Instant, sleep, timeout};

use super::*;

#[tokio::test(start_paused = true)]
async fn each_wait_of_a_single_party_completes_a_round() {
    let world = engine();
    let alone = barrier(&world, 1).await;
    let first = alone.wait().await.unwrap();
    for n in 1..20 {
        let next = alone.wait().await.unwrap();
        assert_eq!(next.generation(), first.generation() + n);
        assert!(next.is_last() && next.arrival() == 1);
    }
    assert_eq!(world.admin(&["EXISTS", PLACES]), "0");
}

/// No task has two places in a round, and no round has five parties.
#[tokio::test(start_paused = true)]
async fn an_extra_task_waits_for_the_next_round() {
    let (_world, client) = engine().with_client().await;
    let mut tasks = Vec::new();
    for task in 0..5_u64 {
        let barrier = of(&client, 4);
        tasks.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(task);
            let mut seen = Vec::new();
            for _ in 0..100 {
                sleep(ms(random.u64(0..5))).await;
                match barrier.wait_timeout(ms(500)).await {
                    Ok(passed) => seen.push(passed.generation()),
                    // The last round does not have enough parties.
                    Err(error) => assert_uncounted::<()>(&Err(error)),
                }
            }
            seen
        }));
    }
    let mut rounds: BTreeMap<u64, usize> = BTreeMap::new();
    for task in tasks {
        let mut seen = task.await.unwrap();
        seen.iter()
            .for_each(|round| *rounds.entry(*round).or_default() += 1);
        let all = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), all, "a task has two places in one round");
    }
    assert!(rounds.values().all(|parties| *parties == 4), "{rounds:?}");
    assert!(rounds.len() > 100);
}

fn scripts(engine: &Engine) -> u64 {
    let stats = engine.stats();
    stats.count("EVALSHA") + stats.count("EVAL")
}

/// P11: once the processes are subscribed, a round of n parties costs n scripts and one message.
async fn assert_cost_of_a_round(clients: usize, parties: u32) {
    let world = engine();
    let engine = world.as_engine();
    let clients = world.fleet(clients).await;
    let round = async || {
        let mut waits = Vec::new();
        for n in 0..parties as usize {
            waits.push(wait(&of(&clients[n % clients.len()], parties)));
        }
        for waiting in waits {
            passed(waiting).await;
        }
    };
    // In this round each process subscribes, and may send one more script for that.
    round().await;
    world.quiet().await;
    let subscribed = engine.stats().count("SUBSCRIBE");
    let mut messages = world.listen("stanchion_barrier:{b}").await;
    let before = scripts(engine);
    for _ in 0..5 {
        round().await;
    }
    assert_eq!(scripts(engine) - before, 5 * u64::from(parties));
    // The only new subscription is that of the test.
    assert_eq!(engine.stats().count("SUBSCRIBE"), subscribed + 1);
    // Exactly five messages, each with the number of its round.
    let mut last = 0;
    for n in 0..5 {
        let message = messages.next().await;
        let round: u64 = message.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(n == 0 || round == last + 1, "{message}");
        last = round;
    }
    assert!(timeout(ms(100), messages.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_round_of_four_processes_costs_four_scripts() {
    assert_cost_of_a_round(4, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_round_of_a_thousand_tasks_costs_a_thousand_scripts() {
    assert_cost_of_a_round(1, 1000).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_round_of_a_process_costs_at_most_two_more_scripts() {
    let world = engine();
    // Loads the scripts into the server.
    the_next_round_works(&world, 2).await;
    let client = world.client().await;
    barrier(&world, 2).await.set_parties(1000).await.unwrap();
    let before = scripts(world.as_engine());
    let waits: Vec<_> = (0..1000).map(|_| wait(&of(&client, 1000))).collect();
    for waiting in waits {
        passed(waiting).await;
    }
    let cost = scripts(world.as_engine()) - before;
    // The script that is sent after the subscription may not be loaded yet. Then it is sent twice.
    assert!((1000..=1002).contains(&cost), "{cost}");
}

/// Answers that are kept for resends do not accumulate.
#[tokio::test(start_paused = true)]
async fn many_rounds_leave_no_more_answers_than_parties() {
    let (world, clients) = engine().with_fleet(3).await;
    let mut parties = Vec::new();
    for client in &clients {
        let barrier = of(client, 3);
        parties.push(tokio::spawn(async move {
            for _ in 0..200 {
                barrier.wait().await.unwrap();
            }
        }));
    }
    together(parties).await;
    let once = |key: &String| key.starts_with("stanchion_once:");
    assert_eq!(world.keys().iter().filter(|key| once(key)).count(), 3);
    // All keys have a TTL.
    for key in world.keys() {
        assert_ne!(world.admin(&["PTTL", &key]), "-1", "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_number_of_parties_is_refused_and_changes_nothing() {
    let world = engine();
    let first = wait(&barrier(&world, 2).await);
    settled(&world, 1).await;
    let before = world.dump();
    let refused = barrier(&world, 3).await.wait().await;
    let ours = matches!(
        refused,
        Err(BarrierError::Parties {
            theirs: 2,
            ours: 3,
            ..
        })
    );
    assert!(ours, "{refused:?}");
    assert_eq!(world.dump(), before);
    barrier(&world, 2).await.wait().await.unwrap();
    passed(first).await;
    for wrong in [0, 10_001] {
        let client = world.client().await;
        let invalid = InvalidBarrier::Parties { parties: wrong };
        assert_eq!(
            CyclicBarrier::new(&client, "b", wrong).unwrap_err(),
            invalid
        );
        assert_eq!(
            DoubleBarrier::new(&client, "b", wrong).unwrap_err(),
            invalid
        );
        assert!(invalid.to_string().contains("1 to 10000"));
        let none = barrier(&world, 1).await.set_parties(wrong).await;
        assert!(none.unwrap_err().to_string().contains("1 to 10000"));
    }
}

/// Between rounds the change applies at once, otherwise from the next round on.
#[tokio::test(start_paused = true)]
async fn the_number_of_parties_changes_between_rounds() {
    let world = engine();
    let pair = barrier(&world, 2).await;
    let first = wait(&pair);
    settled(&world, 1).await;
    assert!(!pair.set_parties(3).await.unwrap());
    let status = pair.status().await.unwrap().unwrap();
    assert_eq!((status.parties, status.next_parties), (2, Some(3)));
    assert_eq!((status.waiting, status.on_leave), (1, OnLeave::Free));
    assert!(status.first_lease.unwrap() <= LEASE);
    // The current round still has two parties.
    let last = pair.wait().await.unwrap();
    assert_eq!(passed(first).await.generation(), last.generation());
    let refused = pair.wait().await;
    let three = matches!(refused, Err(BarrierError::Parties { theirs: 3, .. }));
    assert!(three, "{refused:?}");
    assert_eq!(the_next_round_works(&world, 3).await, last.generation() + 1);
    assert!(pair.set_parties(2).await.unwrap());
    let next = the_next_round_works(&world, 2).await;
    let status = pair.status().await.unwrap().unwrap();
    assert_eq!(status.generation, next + 1);
    assert_eq!(
        (status.waiting, status.next_parties, status.first_lease),
        (0, None, None)
    );
}

/// The test runs far longer than the lease of a place and the TTL of the keys.
#[tokio::test(start_paused = true)]
async fn a_living_waiter_keeps_its_place_for_hours() {
    let world = World::engine().ends_after(HOURS);
    let first = wait(&barrier(&world, 2).await);
    settled(&world, 1).await;
    sleep(secs(7_300)).await;
    let last = barrier(&world, 2).await.wait().await.unwrap();
    assert!(last.is_last());
    assert_eq!(passed(first).await.generation(), last.generation());
}

#[tokio::test(start_paused = true)]
async fn an_expired_barrier_restarts_with_a_larger_round_number() {
    let world = World::engine().ends_after(HOURS);
    let alone = barrier(&world, 1).await;
    let before = alone.wait().await.unwrap().generation();
    sleep(secs(3_601)).await;
    assert!(alone.status().await.unwrap().is_none());
    assert!(alone.wait().await.unwrap().generation() > before);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_key_is_refused_and_stays() {
    let world = engine();
    let pair = barrier(&world, 2).await;
    let wrong = |error: &BarrierError| {
        matches!(
            error,
            BarrierError::Acquire(AcquireError::Rejected {
                rejection: Rejection::WrongType { .. },
                ..
            })
        )
    };
    for foreign in [
        &["SET", "stanchion_barrier:{b}", "x"][..],
        &["HSET", "stanchion_barrier:{b}", "x", "1"],
        &["SET", PLACES, "x"],
    ] {
        assert!(!world.admin(foreign).is_empty());
        let before = world.dump();
        let refused = pair.wait().await.unwrap_err();
        assert!(wrong(&refused), "{refused:?}");
        assert_eq!(world.dump(), before);
        let status = pair.status().await;
        let set = pair.set_parties(3).await;
        for answer in [
            status.map(drop),
            set.map(drop),
            pair.danger().break_all().await.map(drop),
        ] {
            assert!(
                matches!(answer, Err(QueryError::Rejected { .. })),
                "{foreign:?}: {answer:?}"
            );
        }
        world.faults().flush_all();
    }
}

/// By Redisson's rule the two names would have the same keys.
#[tokio::test(start_paused = true)]
async fn a_name_in_braces_is_another_barrier() {
    let (world, client) = engine().with_client().await;
    let braced = CyclicBarrier::new(&client, "{b}", 2).unwrap();
    let plain = wait(&of(&client, 2));
    let other = wait(&braced);
    settled(&world, 1).await;
    assert_eq!(braced.status().await.unwrap().unwrap().waiting, 1);
    braced.wait().await.unwrap();
    passed(other).await;
    assert!(!plain.is_finished());
    of(&client, 2).wait().await.unwrap();
    passed(plain).await;
}

/// The time-out and the last arrival meet at 40 different offsets.
#[tokio::test(start_paused = true)]
async fn a_wait_times_out_or_passes_and_never_both() {
    let (mut timed_out, mut met) = (0, 0);
    for offset in 0..40_u64 {
        let world = slow_engine();
        let (one, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
        let hasty = wait_with(&one, WaitOptions::new().timeout(ms(100)));
        sleep(ms(80 + offset)).await;
        let last = other.wait_timeout(ms(300)).await;
        match hasty.await.unwrap() {
            Ok(passed) => {
                assert_eq!(passed.generation(), last.unwrap().generation());
                met += 1;
            }
            result => {
                assert_uncounted(&result);
                assert_uncounted(&last);
                timed_out += 1;
            }
        }
    }
    assert!(timed_out > 0 && met > 0, "{timed_out} {met}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_with_a_zero_timeout_passes_only_if_it_completes_the_round() {
    let world = engine();
    let pair = barrier(&world, 2).await;
    assert_uncounted(&pair.wait_timeout(Duration::ZERO).await);
    taken(&world, 0).await;
    let first = wait(&pair);
    taken(&world, 1).await;
    assert!(pair.wait_timeout(Duration::ZERO).await.unwrap().is_last());
    passed(first).await;
}

/// P9, on a server that does not answer.
#[tokio::test(start_paused = true)]
async fn no_wait_outlives_its_deadline() {
    let world = engine();
    let pair = barrier(&world, 2).await;
    let began = Instant::now();
    let waiting = wait_with(&pair, WaitOptions::new().timeout(ms(1000)));
    settled(&world, 1).await;
    world.faults().freeze(None);
    let late = waiting.await.unwrap();
    assert!(began.elapsed() <= ms(1050), "{:?}", began.elapsed());
    let owed = matches!(
        late,
        Err(BarrierError::TimedOut {
            free_by: Some(_),
            ..
        })
    );
    assert!(owed, "{late:?}");
    world.faults().thaw(None);
    taken(&world, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_waits_and_returns_their_places() {
    let (world, client) = engine().with_client().await;
    let waiting = wait(&of(&client, 2));
    settled(&world, 1).await;
    client.shutdown(secs(1)).await;
    let ended = waiting.await.unwrap();
    let closing = matches!(
        ended,
        Err(BarrierError::Acquire(AcquireError::Shutdown { .. }))
    );
    assert!(closing, "{ended:?}");
    world.until(&["ZCOUNT", PLACES, "0", "+inf"], "0").await;
}

/// P11: the poll interval grows to about 100 ms.
#[tokio::test(start_paused = true)]
async fn a_polling_waiter_backs_off_to_ten_polls_a_second() {
    let world = engine();
    let polls = world
        .configured("polls", |it| it.wake(stanchion::client::Wake::Poll))
        .await;
    let first = wait(&of(&polls, 2));
    taken(&world, 1).await;
    let polls_sent = || world.as_engine().stats().count("EVALSHA");
    let before = polls_sent();
    sleep(secs(10)).await;
    let polls_sent = polls_sent() - before;
    assert!(
        (70..180).contains(&polls_sent),
        "{polls_sent} scripts in 10 s"
    );
    let last = barrier(&world, 2).await.wait().await.unwrap();
    assert_eq!(passed(first).await.generation(), last.generation());
}
