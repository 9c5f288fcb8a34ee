//! `DoubleBarrier`: all parties enter together and leave together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stanchion::DoubleBarrier;
use stanchion::barrier::Inside;
use stanchion_testkit::{cancel_after, for_each_await_point};
use stanchion_tests::{assert_is, lease};
use tokio::time::{Instant, sleep};

use super::*;

const MEMBERS: &str = "stanchion_double_in:{b}";

fn double(client: &Client, parties: u32) -> DoubleBarrier {
    DoubleBarrier::new(client, "b", parties).unwrap()
}

type Entering = JoinHandle<Result<Inside, BarrierError>>;

fn enter(barrier: &DoubleBarrier) -> Entering {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.enter().await })
}

async fn members(world: &World, count: usize) {
    let count = count.to_string();
    world.until(&["ZCOUNT", MEMBERS, "0", "+inf"], count).await;
}

async fn all_in(entering: Vec<Entering>) -> Vec<Inside> {
    let mut all: Vec<Inside> = Vec::new();
    for one in entering {
        all.push(one.await.unwrap().unwrap());
    }
    assert!(all.iter().all(|it| it.generation() == all[0].generation()));
    let mut arrivals: Vec<u32> = all.iter().map(Inside::arrival).collect();
    arrivals.sort_unstable();
    assert!(
        arrivals.iter().zip(1..).all(|(it, n)| *it == n),
        "{arrivals:?}"
    );
    assert_eq!(all.iter().filter(|it| it.is_last()).count(), 1);
    all
}

#[tokio::test(start_paused = true)]
async fn enter_and_leave_wait_for_all_parties() {
    let world = engine();
    let inside = Arc::new(AtomicUsize::new(0));
    let mut parties = Vec::new();
    for (seed, client) in world.fleet(4).await.into_iter().enumerate() {
        let (barrier, inside) = (double(&client, 4), Arc::clone(&inside));
        parties.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed as u64);
            let mut seen = Vec::new();
            for round in 0..100 {
                sleep(ms(random.u64(0..20))).await;
                let party = barrier.enter().await.unwrap();
                // The counter never decreases: it has four entries for each earlier round, and at most four for this round.
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst) / 4, round);
                sleep(ms(random.u64(0..20))).await;
                seen.push(party.generation());
                party.leave().await.unwrap();
                let in_all = inside.load(Ordering::SeqCst);
                assert!(in_all >= 4 * (round + 1), "{in_all} in round {round}");
            }
            seen
        }));
    }
    let mut all = Vec::new();
    for party in parties {
        all.push(party.await.unwrap());
    }
    assert!(all.iter().all(|seen| *seen == all[0]));
    assert!(all[0].windows(2).all(|pair| pair[1] == pair[0] + 1));
}

/// No `leave` returns before all have left.
#[tokio::test(start_paused = true)]
async fn a_fifth_party_enters_the_next_round() {
    let (_world, clients) = engine().with_fleet(5).await;
    let entering: Vec<_> = clients[..4]
        .iter()
        .map(|it| enter(&double(it, 4)))
        .collect();
    let mut all = all_in(entering).await;
    let first = all[0].generation();
    let fifth = enter(&double(&clients[4], 4));
    sleep(secs(60)).await;
    assert!(!fifth.is_finished());
    assert!(all.iter().all(Inside::is_held));
    let last = all.remove(3);
    let leaving: Vec<_> = all.into_iter().map(|it| tokio::spawn(it.leave())).collect();
    sleep(secs(60)).await;
    assert!(leaving.iter().all(|it| !it.is_finished()));
    assert!(!fifth.is_finished());
    let began = Instant::now();
    last.leave().await.unwrap();
    for left in leaving {
        left.await.unwrap().unwrap();
    }
    assert!(began.elapsed() <= ms(150), "{:?}", began.elapsed());
    let mut entering: Vec<_> = clients[..3]
        .iter()
        .map(|it| enter(&double(it, 4)))
        .collect();
    entering.push(fifth);
    let next = all_in(entering).await;
    assert_eq!(next[0].generation(), first + 1);
}

/// A round costs n arrivals, n − 1 reads, n departures and two messages.
#[tokio::test(start_paused = true)]
async fn a_round_costs_three_scripts_for_each_party() {
    let (world, clients) = engine().with_fleet(4).await;
    let round = async || {
        let entering: Vec<_> = clients.iter().map(|it| enter(&double(it, 4))).collect();
        let leaving = all_in(entering).await;
        let leaving: Vec<_> = leaving
            .into_iter()
            .map(|it| tokio::spawn(it.leave()))
            .collect();
        for left in leaving {
            left.await.unwrap().unwrap();
        }
    };
    round().await;
    world.quiet().await;
    let mut messages = world.listen("stanchion_double:{b}").await;
    let before = world.scripts_run();
    for _ in 0..5 {
        round().await;
    }
    let cost = world.scripts_run() - before;
    assert!(cost <= 5 * (4 + 3 + 4), "{cost}");
    for _ in 0..10 {
        messages.next().await;
    }
    assert!(
        tokio::time::timeout(ms(100), messages.next())
            .await
            .is_err()
    );
}

/// In virtual time; `servers` kills a real process. The dead member knows of its loss before the others leave (P5).
#[tokio::test(start_paused = true)]
async fn leave_waits_for_a_dead_member_until_its_lease_ends() {
    let world = engine();
    let mut clients = world.fleet(2).await;
    clients.push(world.named("dying").await);
    let mut all = all_in(clients.iter().map(|it| enter(&double(it, 3))).collect()).await;
    sleep(ms(3_300)).await;
    world.faults().freeze(Some("dying"));
    let dead = all.pop().unwrap();
    let began = Instant::now();
    let lost = tokio::spawn({
        let lost = dead.lost();
        async move {
            lost.await;
            Instant::now()
        }
    });
    let leaving: Vec<_> = all.into_iter().map(|it| tokio::spawn(it.leave())).collect();
    for left in leaving {
        left.await.unwrap().unwrap();
    }
    let took = began.elapsed();
    assert!(took <= LEASE && took >= LEASE / 2, "{took:?}");
    assert!(lost.await.unwrap() < Instant::now(), "P5");
    assert!(!dead.is_held());
    world.faults().thaw(None);
    let ended = dead.leave().await;
    assert!(matches!(ended, Err(BarrierError::Release(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_round_needs_all_parties_after_all_members_died() {
    let world = engine();
    let mut dying = Vec::new();
    for _ in 0..2 {
        dying.push(world.named("dying").await);
    }
    let all = all_in(dying.iter().map(|it| enter(&double(it, 2))).collect()).await;
    let first = all[0].generation();
    world.faults().freeze(Some("dying"));
    let one = world.client().await;
    let alone = enter(&double(&one, 2));
    sleep(LEASE * 2).await;
    assert!(!alone.is_finished());
    members(&world, 1).await;
    let other = enter(&double(&world.client().await, 2));
    let next = all_in(vec![alone, other]).await;
    assert_eq!(next[0].generation(), first + 1);
    assert!(all.iter().all(|it| !it.is_held()));
    // Late requests of the dead members do not affect the round of the others.
    world.faults().thaw(None);
    drop(all);
    world.quiet().await;
    members(&world, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_leave_that_times_out_has_left() {
    let (world, clients) = engine().with_fleet(2).await;
    let mut all = all_in(clients.iter().map(|it| enter(&double(it, 2))).collect()).await;
    let before = world.scripts_run();
    let began = Instant::now();
    let late = all.pop().unwrap().leave_timeout(ms(900)).await;
    assert_uncounted(&late);
    assert!(began.elapsed() <= ms(950), "{:?}", began.elapsed());
    // A departure and a read. CURATOR-233 is a busy loop here.
    assert!(world.scripts_run() - before <= 3);
    members(&world, 1).await;
    all.pop().unwrap().leave().await.unwrap();
    members(&world, 0).await;
    all_in(clients.iter().map(|it| enter(&double(it, 2))).collect()).await;
}

/// P9, on a server that does not answer. The party leaves in the background.
#[tokio::test(start_paused = true)]
async fn a_leave_does_not_outlive_its_deadline() {
    let (world, client) = engine().with_client().await;
    let alone = double(&client, 1).enter().await.unwrap();
    world.faults().freeze(None);
    let began = Instant::now();
    assert!(alone.leave_timeout(ms(300)).await.is_err());
    assert!(began.elapsed() <= ms(350), "{:?}", began.elapsed());
    world.faults().thaw(None);
    members(&world, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_party_has_left() {
    let (_world, clients) = engine().with_fleet(3).await;
    let mut all = all_in(clients.iter().map(|it| enter(&double(it, 3))).collect()).await;
    drop(all.pop());
    drop(all.pop().unwrap().leave());
    all.pop().unwrap().leave().await.unwrap();
    all_in(clients.iter().map(|it| enter(&double(it, 3))).collect()).await;
}

/// P3.
#[tokio::test(start_paused = true)]
async fn an_enter_that_is_dropped_anywhere_leaves_no_member() {
    let (world, clients) = slow_engine().with_fleet(2).await;
    let (ours, theirs) = (double(&clients[0], 2), double(&clients[1], 2));
    let polls = for_each_await_point(async |polls| {
        let other = tokio::spawn({
            let theirs = theirs.clone();
            async move {
                sleep(ms(100)).await;
                let inside = theirs.enter_timeout(ms(300)).await;
                if let Ok(inside) = inside {
                    inside.leave().await.unwrap();
                }
            }
        });
        let entered = cancel_after(ours.enter(), polls).await;
        let done = entered.is_some();
        drop(entered);
        other.await.unwrap();
        members(&world, 0).await;
        done
    })
    .await;
    assert!(polls > 2);
    all_in(vec![enter(&ours), enter(&theirs)]).await;
}

/// P6: the reply to an arrival or a departure is lost.
#[tokio::test(start_paused = true)]
async fn lost_replies_change_nothing() {
    let (world, clients) = engine().with_fleet(2).await;
    let round = async |lost: usize| {
        let lose = |n| {
            if n == lost {
                world.faults().lose_replies("EVALSHA", 1);
            }
        };
        lose(0);
        let first = enter(&double(&clients[0], 2));
        members(&world, 1).await;
        world.quiet().await;
        lose(1);
        let second = enter(&double(&clients[1], 2));
        let mut all = all_in(vec![first, second]).await;
        let number = all[0].generation();
        members(&world, 2).await;
        let waiting = tokio::spawn(all.pop().unwrap().leave());
        members(&world, 1).await;
        world.quiet().await;
        lose(2);
        all.pop().unwrap().leave().await.unwrap();
        waiting.await.unwrap().unwrap();
        members(&world, 0).await;
        number
    };
    let first = round(9).await;
    for lost in 0..3 {
        assert_eq!(round(lost).await, first + 1 + lost as u64, "{lost}");
    }
}

/// P4: the message that all are inside, or that all have left, is lost.
#[tokio::test(start_paused = true)]
async fn a_lost_message_delays_members_by_at_most_a_poll() {
    let (world, clients) = engine().with_fleet(2).await;
    let first = enter(&double(&clients[0], 2));
    members(&world, 1).await;
    world.quiet().await;
    world.faults().lose_messages(2);
    let began = Instant::now();
    let second = enter(&double(&clients[1], 2));
    let mut all = all_in(vec![first, second]).await;
    assert!(began.elapsed() <= POLL + ms(20), "{:?}", began.elapsed());
    world.faults().clear();
    let waiting = tokio::spawn(all.pop().unwrap().leave());
    members(&world, 1).await;
    sleep(ms(500)).await;
    world.faults().lose_messages(2);
    let began = Instant::now();
    all.pop().unwrap().leave().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(began.elapsed() <= POLL + ms(20), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_enter_times_out_or_succeeds_and_never_both() {
    let (mut inside, mut outside) = (0, 0);
    for offset in 0..30 {
        let (_world, clients) = slow_engine().with_fleet(2).await;
        let (ours, theirs) = (double(&clients[0], 2), double(&clients[1], 2));
        let hasty = tokio::spawn(async move { ours.enter_timeout(ms(100)).await });
        sleep(ms(80 + offset)).await;
        let other = theirs.enter_timeout(ms(300)).await;
        match hasty.await.unwrap() {
            Ok(one) => {
                assert_eq!(one.generation(), other.unwrap().generation());
                inside += 1;
            }
            late => {
                assert_uncounted(&late);
                assert_uncounted(&other);
                outside += 1;
            }
        }
    }
    assert!(inside > 0 && outside > 0, "{inside} {outside}");
}

#[tokio::test(start_paused = true)]
async fn members_lose_a_double_barrier_that_the_server_lost() {
    let (world, clients) = engine().with_fleet(2).await;
    let mut all = all_in(clients.iter().map(|it| enter(&double(it, 2))).collect()).await;
    let leaving = tokio::spawn(all.pop().unwrap().leave());
    members(&world, 1).await;
    world.faults().flush_all();
    let began = Instant::now();
    let deleted = leaving.await.unwrap();
    assert_is!(deleted, Err(BarrierError::Acquire(_)));
    let left = all.pop().unwrap();
    left.lost().await;
    assert!(began.elapsed() <= LEASE, "P5");
    all_in(clients.iter().map(|it| enter(&double(it, 2))).collect()).await;
}

#[tokio::test(start_paused = true)]
async fn a_cyclic_and_a_double_barrier_of_one_name_are_independent() {
    let (world, client) = engine().with_client().await;
    let inside = double(&client, 1).enter().await.unwrap();
    let waiting = wait(&of(&client, 2));
    settled(&world, 1).await;
    inside.leave().await.unwrap();
    assert!(!waiting.is_finished());
    of(&client, 2).wait().await.unwrap();
    passed(waiting).await;
}

/// P5, P6: an answer is kept for resends only as long as its place.
#[tokio::test(start_paused = true)]
async fn a_resend_after_the_loss_of_its_place_enters_no_round_of_others() {
    for way in stanchion_tests::LostReply::WAYS {
        let world = World::engine();
        let slow = double(&world.named("slow").await, 2).lease(lease(ms(500)));
        let (one, other) = (
            double(&world.client().await, 2),
            double(&world.client().await, 2),
        );
        let both = async || all_in(vec![enter(&one), enter(&other)]).await;
        for party in both().await {
            drop(party);
        }
        members(&world, 0).await;
        world.lose_next_reply(way);
        let unanswered = enter(&slow);
        members(&world, 1).await;
        world.faults().freeze(Some("slow"));
        sleep(ms(600)).await;
        let inside = both().await;
        world.faults().thaw(Some("slow"));
        sleep(secs(8)).await;
        assert!(
            !unanswered.is_finished(),
            "{way:?}: an uncounted third party is inside"
        );
        let generation = inside[0].generation();
        for party in inside {
            drop(party);
        }
        let next = enter(&one);
        let all = all_in(vec![unanswered, next]).await;
        assert_eq!(all[0].generation(), generation + 1);
    }
}

/// P3, for a waiting arrival and for one that completes the round.
#[tokio::test(start_paused = true)]
async fn a_task_is_one_member_even_if_its_answer_is_slower_than_its_lease() {
    for by_last in [false, true] {
        let (world, [slow, other]) = slow_engine().with_clients().await;
        for inside in all_in(vec![enter(&double(&slow, 2)), enter(&double(&other, 2))]).await {
            drop(inside);
        }
        members(&world, 0).await;
        let first = by_last.then(|| enter(&double(&other, 2)));
        world.quiet().await;
        world.faults().hold_requests("EVALSHA", 1);
        let lease = lease(ms(600));
        let late = enter(&double(&slow, 2).lease(lease));
        sleep(ms(650)).await;
        world.faults().deliver();
        sleep(ms(500)).await;
        assert!(!late.is_finished(), "{by_last}");
        // If the late party completed the first round, it has left that round and waits for the next.
        if let Some(first) = first {
            let first = tokio::time::timeout(POLL * 2, first).await.unwrap();
            first.unwrap().unwrap().leave().await.unwrap();
        }
        members(&world, 1).await;
        all_in(vec![late, enter(&double(&other, 2))]).await;
    }
}

/// P9: the last party to leave waits for no other.
#[tokio::test(start_paused = true)]
async fn the_last_leave_succeeds_with_any_timeout() {
    let (_world, client) = slow_engine().with_client().await;
    let alone = DoubleBarrier::new(&client, "d", 1).unwrap();
    for timeout in [0, 1, 7, 100] {
        let inside = alone.enter().await.unwrap();
        let began = Instant::now();
        inside.leave_timeout(ms(timeout)).await.unwrap();
        assert!(began.elapsed() < ms(50), "{:?}", began.elapsed());
    }
    // A party that leaves before the others does time out.
    let pair = DoubleBarrier::new(&client, "pair", 2).unwrap();
    let (one, other) = tokio::join!(pair.enter(), pair.enter());
    let late = one.unwrap().leave_timeout(ms(0)).await.unwrap_err();
    let timed_out = matches!(late, BarrierError::TimedOut { .. });
    assert!(timed_out, "{late}");
    other.unwrap().leave_timeout(ms(0)).await.unwrap();
}
