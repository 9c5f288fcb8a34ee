//! Tests latches with idle expiry in virtual time: exact expiry, waiters that keep a latch, lost replies, full memory.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{AcquireError, CountDownLatch, IdleExpiry, QueryError};
use stanchion_tests::idle::latch::*;
use stanchion_tests::{LostReply, World, assert_is, ms, secs};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_latch_with_a_waiter_does_not_expire() {
    let (_world, [ours, theirs]) = World::engine().with_clients().await;
    let second = secs(1);
    assert!(ephemeral(&ours, second).arm(1).await.unwrap());
    let waiter = waiting(&theirs);
    sleep(secs(3600)).await;
    assert!(!waiter.is_finished());
    assert_eq!(ephemeral(&ours, second).count_down().await.unwrap(), 0);
    waiter.await.unwrap().unwrap();
}

/// The poll interval is an hour: a request of the waiter extends the TTL for longer.
#[tokio::test(start_paused = true)]
async fn a_waiter_with_a_long_poll_interval_keeps_the_latch() {
    let (world, ours) = World::engine().with_client().await;
    let rare = world
        .configured("rare", |it| it.poll_interval(secs(3600)))
        .await;
    let second = secs(1);
    assert!(ephemeral(&ours, second).arm(1).await.unwrap());
    let waiter = waiting(&rare);
    sleep(secs(5 * 3600)).await;
    assert!(!waiter.is_finished());
    assert_eq!(plain(&ours).count().await.unwrap(), 1);
    plain(&ours).count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
}

/// Exact to the millisecond, and no key is left a minute later.
#[tokio::test(start_paused = true)]
async fn a_latch_expires_exactly_after_its_idle_time() {
    let (world, ours) = World::engine().with_client().await;
    let hour = secs(3600);
    let tick = ms(1);
    assert!(ephemeral(&ours, hour).arm(3).await.unwrap());
    for left in [2, 1] {
        sleep(hour - tick).await;
        assert_eq!(plain(&ours).count_down().await.unwrap(), left);
    }
    sleep(hour - tick).await;
    assert_eq!(plain(&ours).count().await.unwrap(), 1);
    sleep(2 * tick).await;
    assert_eq!(plain(&ours).count().await.unwrap(), 0);
    sleep(secs(61)).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_unopened_latches_leave_nothing() {
    let (world, ours) = World::engine().with_client().await;
    let day = IdleExpiry::after(secs(86_400)).unwrap();
    for n in 0..1000 {
        let latch = CountDownLatch::new(&ours, format!("import\n:{n}")).unwrap();
        assert!(latch.ephemeral(day).arm(3).await.unwrap());
    }
    sleep(secs(86_400 + 61)).await;
    world.at_rest().await;
}

/// P6: a repeated arm takes effect once, and does not change the TTL.
#[tokio::test(start_paused = true)]
async fn an_arm_whose_reply_is_lost_counts_once() {
    for way in LostReply::WAYS {
        let (world, ours) = World::engine().with_client().await;
        let hour = secs(3600);
        // Loads the script, so that the next reply is that of the script.
        assert!(ephemeral(&ours, hour).arm(1).await.unwrap());
        plain(&ours).count_down().await.unwrap();
        world.lose_next_reply(way);
        assert!(ephemeral(&ours, hour).arm(2).await.unwrap());
        assert_eq!(plain(&ours).count().await.unwrap(), 2);
        ends_in(&world, "job", 3_600_000);
    }
}

/// R8: a call that is refused at maxmemory writes nothing, and a latch in use keeps working.
#[tokio::test(start_paused = true)]
async fn without_memory_an_arm_is_refused_and_a_latch_in_use_is_kept() {
    let (world, ours) = World::engine().with_client().await;
    let faults = world.faults();
    faults.out_of_memory(Switch::On);
    let refused = ephemeral(&ours, LONG).arm(2).await;
    assert_is!(refused, Err(QueryError::Rejected { .. }));
    assert!(world.keys().is_empty(), "{:?}", world.keys());
    faults.out_of_memory(Switch::Off);
    assert!(ephemeral(&ours, LONG).arm(2).await.unwrap());
    age(&world, 10_000);
    faults.out_of_memory(Switch::On);
    let waited = plain(&ours).wait_timeout(Duration::ZERO).await;
    assert_is!(waited, Err(AcquireError::TimedOut { .. }));
    ends_in(&world, "job", 1_000_000);
    assert_eq!(plain(&ours).count_down().await.unwrap(), 1);
    assert_eq!(plain(&ours).count_down().await.unwrap(), 0);
}
