//! Lost replies and messages, late requests, and a server that loses its data.

use stanchion::Rejection;
use stanchion::embedded::Switch;
use stanchion_tests::{LostReply, assert_within, lease};
use tokio::time::{Instant, sleep};

use super::*;

/// P6. The lost reply is that of the last arrival, or that of an arrival that waits.
#[tokio::test(start_paused = true)]
async fn an_arrival_with_a_lost_reply_counts_once() {
    for way in LostReply::WAYS {
        for by_last in [false, true] {
            let world = engine();
            let (one, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
            // Loads the scripts, so that the lost reply is that of the arrival.
            the_next_round_works(&world, 2).await;
            if !by_last {
                world.lose_next_reply(way);
            }
            let first = wait(&one);
            taken(&world, 1).await;
            if by_last {
                world.lose_next_reply(way);
            }
            let last = other.wait().await.unwrap();
            assert!(last.is_last() && last.arrival() == 2);
            let first = passed(first).await;
            assert_eq!(first.generation(), last.generation());
            assert_eq!(first.arrival(), 1);
            taken(&world, 0).await;
            let next = the_next_round_works(&world, 2).await;
            assert_eq!(next, last.generation() + 1, "{way:?} {by_last}");
        }
    }
}

/// P6: other parties complete a round before the resend.
#[tokio::test(start_paused = true)]
async fn a_resend_finds_its_answer_after_another_round() {
    for by_last in [false, true] {
        let world = engine();
        let slow = of(&world.named("slow").await, 2);
        let (one, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
        let before = the_next_round_works(&world, 2).await;
        let faults = world.faults();
        let mut first = None;
        if by_last {
            first = Some(wait(&one));
            taken(&world, 1).await;
        }
        faults.lose_replies("EVALSHA", 1);
        faults.delay(Some("slow"), ms(500));
        let unanswered = wait(&slow);
        // The request has run on the server. Its answer is delayed for long enough for the rounds below.
        if by_last {
            first.take().unwrap().await.unwrap().unwrap();
        } else {
            taken(&world, 1).await;
            assert!(one.wait().await.unwrap().is_last());
        }
        assert_eq!(the_next_round_works(&world, 2).await, before + 2);
        let third = wait(&other);
        taken(&world, 1).await;
        let late = passed(unanswered).await;
        assert_eq!(late.generation(), before + 1);
        assert_eq!(late.is_last(), by_last);
        // The late party has no place in the round of the others.
        assert_eq!(world.admin(&["ZCOUNT", PLACES, "0", "+inf"]), "1");
        one.wait().await.unwrap();
        passed(third).await;
    }
}

/// P3.
#[tokio::test(start_paused = true)]
async fn a_request_that_outlived_its_caller_takes_no_place() {
    let world = engine();
    let pair = barrier(&world, 2).await;
    the_next_round_works(&world, 2).await;
    world.faults().hold_requests("EVALSHA", 1);
    let late = pair.wait_timeout(ms(200)).await;
    assert!(late.is_err());
    sleep(secs(120)).await;
    world.faults().deliver();
    sleep(ms(100)).await;
    taken(&world, 0).await;
}

/// P4: the message is lost for all waiters.
#[tokio::test(start_paused = true)]
async fn a_lost_message_delays_waiters_by_at_most_a_poll() {
    let (world, clients) = engine().with_fleet(3).await;
    let waits: Vec<_> = clients.iter().map(|client| wait(&of(client, 4))).collect();
    settled(&world, 3).await;
    world.faults().lose_messages(3);
    let began = Instant::now();
    let last = barrier(&world, 4).await.wait().await.unwrap();
    for waiting in waits {
        assert_eq!(passed(waiting).await.generation(), last.generation());
    }
    let took = began.elapsed();
    assert!(took <= POLL + ms(20), "{took:?}");
    assert!(took > ms(100), "the messages were not lost");
}

/// P4: the subscribed connections are closed before the round is completed.
#[tokio::test(start_paused = true)]
async fn a_lost_subscription_is_noticed() {
    let world = engine();
    let waits: Vec<_> = world
        .fleet(2)
        .await
        .iter()
        .map(|client| wait(&of(client, 3)))
        .collect();
    settled(&world, 2).await;
    world.faults().kill_subscribers();
    let began = Instant::now();
    let last = barrier(&world, 3).await.wait().await.unwrap();
    for waiting in waits {
        assert_eq!(passed(waiting).await.generation(), last.generation());
    }
    assert_within(began, secs(1), ());
}

/// Under `Free` the waiters arrive again in a later round. Under `Break` their waits fail. No round is complete with fewer parties.
#[tokio::test(start_paused = true)]
async fn data_loss_completes_no_round_with_fewer_parties() {
    for (broken, options) in [(false, WaitOptions::new()), (true, breaking())] {
        let world = engine();
        let before = the_next_round_works(&world, 4).await;
        let clients = world.fleet(3).await;
        let waits: Vec<_> = clients
            .iter()
            .map(|client| wait_with(&of(client, 4), options))
            .collect();
        settled(&world, 3).await;
        world.faults().flush_all();
        if broken {
            for waiting in waits {
                let ended = waiting.await.unwrap();
                let deleted = matches!(
                    ended,
                    Err(BarrierError::Acquire(AcquireError::Rejected {
                        rejection: Rejection::Deleted,
                        ..
                    }))
                );
                assert!(deleted, "{ended:?}");
            }
            the_next_round_works(&world, 4).await;
            continue;
        }
        taken(&world, 3).await;
        assert!(waits.iter().all(|waiting| !waiting.is_finished()));
        let last = barrier(&world, 4).await.wait().await.unwrap();
        assert!(last.generation() > before + 1);
        for waiting in waits {
            assert_eq!(passed(waiting).await.generation(), last.generation());
        }
    }
}

/// A removed place is taken again once. After the second removal the wait fails.
#[tokio::test(start_paused = true)]
async fn a_lost_place_is_taken_again_once() {
    let world = engine();
    let waiting = wait(&barrier(&world, 2).await);
    settled(&world, 1).await;
    for _ in 0..2 {
        assert!(!waiting.is_finished());
        assert_eq!(world.admin(&["DEL", PLACES]), "1");
        // The renewal, at most a third of the lease later, detects the removal.
        sleep(LEASE / 2).await;
    }
    let ended = waiting.await.unwrap();
    assert!(matches!(ended, Err(BarrierError::Lost { .. })), "{ended:?}");
    the_next_round_works(&world, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_at_the_end_of_its_round_is_no_loss() {
    let world = engine();
    world.faults().delay(None, ms(20));
    let (one, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
    for offset in 0..60 {
        let first = wait(&one);
        taken(&world, 1).await;
        // Completes the round around the first renewal, so that the renewal and the message cross.
        sleep(LEASE / 3 - ms(80) + ms(offset * 3)).await;
        let last = other.wait().await.unwrap();
        assert_eq!(passed(first).await.generation(), last.generation());
    }
}

/// P5: the expired party was not counted, so the message about that round must not let it pass.
#[tokio::test(start_paused = true)]
async fn an_expired_party_does_not_pass_a_round_of_others() {
    let world = World::engine();
    let slow = of(&world.named("slow").await, 2);
    let (one, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
    let before = the_next_round_works(&world, 2).await;
    let lost = wait(&slow);
    settled(&world, 1).await;
    let faults = world.faults();
    faults.freeze(Some("slow"));
    sleep(LEASE + secs(1)).await;
    let (first, second) = tokio::join!(one.wait(), other.wait());
    assert_eq!(first.unwrap().generation(), before + 1);
    assert_eq!(second.unwrap().generation(), before + 1);
    faults.thaw(Some("slow"));
    sleep(secs(1)).await;
    assert!(
        !lost.is_finished(),
        "the expired party passed a round of others"
    );
    let next = one.wait().await.unwrap();
    assert!(next.is_last());
    let late = passed(lost).await;
    assert_eq!((late.generation(), late.arrival()), (before + 2, 1));
}

/// The opposite case: the party was counted, and learns of it after its lease.
#[tokio::test(start_paused = true)]
async fn a_counted_party_passes_even_if_its_message_is_late() {
    let world = World::engine();
    let slow = of(&world.named("slow").await, 2);
    let one = barrier(&world, 2).await;
    let before = the_next_round_works(&world, 2).await;
    let late = wait(&slow);
    settled(&world, 1).await;
    let faults = world.faults();
    faults.freeze(Some("slow"));
    assert!(one.wait().await.unwrap().is_last());
    // The next round begins, and one of its parties dies.
    let dead = wait(&of(&world.named("dead").await, 2));
    taken(&world, 1).await;
    faults.freeze(Some("dead"));
    sleep(LEASE + secs(2)).await;
    faults.thaw(Some("slow"));
    assert_eq!(passed(late).await.generation(), before + 1);
    dead.abort();
}

/// P5, P6: an answer is kept for resends only as long as its place.
#[tokio::test(start_paused = true)]
async fn a_resend_after_the_loss_of_its_place_takes_a_new_place() {
    for way in LostReply::WAYS {
        let world = World::engine();
        let short = lease(ms(500));
        let slow = of(&world.named("slow").await, 2).lease(short);
        let (one, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
        let before = the_next_round_works(&world, 2).await;
        world.lose_next_reply(way);
        let unanswered = wait(&slow);
        taken(&world, 1).await;
        // The frozen client receives no answer until its place has expired.
        world.faults().freeze(Some("slow"));
        sleep(ms(600)).await;
        let (first, second) = tokio::join!(one.wait(), other.wait());
        assert_eq!(first.unwrap().generation(), before + 1);
        assert_eq!(second.unwrap().generation(), before + 1);
        world.faults().thaw(Some("slow"));
        sleep(secs(8)).await;
        assert!(
            !unanswered.is_finished(),
            "{way:?}: the expired party passed a round of others"
        );
        assert!(one.wait().await.unwrap().is_last());
        assert_eq!(passed(unanswered).await.generation(), before + 2);
    }
}

/// P5, P6: the remains of a lost place do not count as the loss of the next place.
#[tokio::test(start_paused = true)]
async fn an_arrival_that_completes_a_round_after_its_first_place_was_lost_counts_once() {
    for way in LostReply::WAYS {
        let world = engine();
        let slow = world
            .configured("slow", |it| it.response_timeout(ms(1_000)))
            .await;
        let slow = of(&slow, 2).lease(lease(ms(300)));
        let other = barrier(&world, 2).await;
        let before = the_next_round_works(&world, 2).await;
        let faults = world.faults();
        world.lose_next_reply(way);
        let unanswered = wait(&slow);
        taken(&world, 1).await;
        faults.freeze(Some("slow"));
        sleep(ms(400)).await;
        let first = wait(&other);
        world.until(&["ZCARD", PLACES], "2").await;
        settled(&world, 1).await;
        // The resend completes the round, and its reply is lost, too.
        world.lose_next_reply(way);
        faults.thaw(Some("slow"));
        assert_eq!(passed(first).await.generation(), before + 1);
        let late = tokio::time::timeout(POLL * 4, passed(unanswered)).await;
        let late = late.unwrap_or_else(|_| panic!("{way:?}: the arrival waits for another round"));
        assert_eq!(late.generation(), before + 1);
        assert!(late.is_last());
        assert_eq!(the_next_round_works(&world, 2).await, before + 2);
    }
}

/// Delivers the held request of `wait` late, so that its answer is slower than its lease. Returns `wait`.
async fn answered_late(world: &World, wait: Waiting) -> Waiting {
    sleep(ms(650)).await;
    world.faults().deliver();
    wait
}

fn short(barrier: CyclicBarrier) -> CyclicBarrier {
    barrier.lease(lease(ms(600)))
}

#[tokio::test(start_paused = true)]
async fn a_task_has_one_place_even_if_its_answer_is_slower_than_its_lease() {
    let world = slow_engine();
    let (slow, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
    let before = the_next_round_works(&world, 2).await;
    world.faults().hold_requests("EVALSHA", 1);
    let alone = answered_late(&world, wait(&short(slow))).await;
    sleep(ms(500)).await;
    assert!(!alone.is_finished(), "{:?}", alone.await);
    taken(&world, 1).await;
    let last = other.wait().await.unwrap();
    assert_eq!(last.generation(), before + 1);
    assert_eq!(passed(alone).await.generation(), last.generation());
}

/// The late party takes part in one round only.
#[tokio::test(start_paused = true)]
async fn an_arrival_passes_the_round_it_completed_even_if_its_answer_is_late() {
    let world = slow_engine();
    let (slow, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
    the_next_round_works(&world, 2).await;
    let first = wait(&other);
    settled(&world, 1).await;
    world.faults().hold_requests("EVALSHA", 1);
    let late = answered_late(&world, wait(&short(slow))).await;
    let first = passed(first).await;
    let late = tokio::time::timeout(POLL * 2, passed(late)).await.unwrap();
    assert_eq!(late.generation(), first.generation());
    assert!(late.is_last() && !first.is_last());
    the_next_round_works(&world, 2).await;
}

/// P6: a duplicate of an answered request does not overwrite a later change.
#[tokio::test(start_paused = true)]
async fn a_late_duplicate_does_not_change_the_number_of_parties() {
    let world = engine();
    let one = barrier(&world, 2).await;
    the_next_round_works(&world, 2).await;
    world.faults().hold_requests("EVALSHA", 1);
    assert!(one.set_parties(3).await.unwrap());
    assert!(one.set_parties(4).await.unwrap());
    world.faults().deliver();
    sleep(ms(100)).await;
    assert_eq!(one.status().await.unwrap().unwrap().parties, 4);
}

/// P8: the error has the reason of the server, and not only the time that passed.
#[tokio::test(start_paused = true)]
async fn a_deadline_at_a_server_that_refuses_names_the_refusal() {
    let world = engine();
    let one = barrier(&world, 2).await;
    let waiting = {
        let one = one.clone();
        tokio::spawn(async move { one.wait_timeout(ms(2000)).await })
    };
    taken(&world, 1).await;
    world.faults().loading(Switch::On);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("LOADING"), "{error}");
    world.faults().loading(Switch::Off);
    taken(&world, 0).await;
    the_next_round_works(&world, 2).await;
}
