//! P3: waits that are dropped at every await point, and at the moment at which the round is complete.

use stanchion_testkit::{cancel_after, for_each_await_point};
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_anywhere_leaves_no_place() {
    for options in [WaitOptions::new(), breaking()] {
        let world = slow_engine();
        let (pair, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
        let polls = for_each_await_point(async |polls| {
            let began = Instant::now();
            let late = tokio::spawn({
                let other = other.clone();
                async move {
                    tokio::time::sleep(ms(300)).await;
                    other.wait_timeout(ms(100)).await
                }
            });
            let ended = cancel_after(pair.wait_with(options), polls).await;
            let met = late.await.unwrap();
            if ended.is_none() && began.elapsed() < ms(390) {
                assert_uncounted(&met);
            }
            taken(&world, 0).await;
            assert!(began.elapsed() < secs(2), "after {polls}");
            ended.is_some()
        })
        .await;
        assert!(polls > 2, "{polls}");
        the_next_round_works(&world, 2).await;
    }
}

/// The wait is dropped while the message about the complete round is in flight.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_when_the_round_is_complete_is_counted_once() {
    let mut counted = 0;
    for offset in 0..12 {
        let world = slow_engine();
        let (pair, other) = (barrier(&world, 2).await, barrier(&world, 2).await);
        let first = wait(&pair);
        settled(&world, 1).await;
        let last = tokio::spawn(async move {
            tokio::time::sleep(ms(6)).await;
            other.wait_timeout(ms(500)).await
        });
        tokio::time::sleep(ms(offset)).await;
        first.abort();
        match last.await.unwrap() {
            Ok(passed) => {
                assert!(passed.is_last());
                counted += 1;
            }
            late => assert_uncounted(&late),
        }
        the_next_round_works(&world, 2).await;
    }
    assert!(counted > 0 && counted < 12, "{counted}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_not_polled_delays_no_other_party() {
    let (world, client) = engine().with_client().await;
    let (three, other) = (of(&client, 3), barrier(&world, 3).await);
    let mut unpolled = Box::pin(three.wait());
    // The wait has a place, and its future is not polled again until the end.
    assert!(
        cancel_after(std::future::poll_fn(|cx| unpolled.as_mut().poll(cx)), 3)
            .await
            .is_none()
    );
    let second = wait(&three);
    taken(&world, 2).await;
    let last = other.wait().await.unwrap();
    assert_eq!(passed(second).await.generation(), last.generation());
    assert_eq!(unpolled.await.unwrap().generation(), last.generation());
}
