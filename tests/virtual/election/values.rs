//! The value that a leader publishes.

use stanchion::{LostReason, RenewError};
use stanchion_testkit::{cancel_after, for_each_await_point};
use stanchion_tests::{LostReply, World, secs};

use stanchion_tests::election::*;

#[tokio::test(start_paused = true)]
async fn a_former_leader_proclaims_nothing() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let former = election(&ours).campaign("ours").await.unwrap();
    let _ = world.admin(&["DEL", "indexer"]);
    let refused = former.proclaim("again").await.unwrap_err();
    assert!(
        matches!(&refused, RenewError::Lost(lost) if lost.reason == LostReason::Gone),
        "{refused}"
    );
    assert!(!former.is_held(), "the loss is known at once");
    let term = election(&theirs).campaign("theirs").await.unwrap();
    assert!(former.proclaim("again").await.is_err());
    assert_eq!(value(election(&ours).leader().await.unwrap()), "theirs");
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn the_later_of_two_proclamations_wins_in_any_order_of_arrival() {
    let world = World::engine();
    let client = world.named("ours").await;
    let term = election(&client).campaign("first").await.unwrap();
    let faults = world.faults();
    // The request with `second` is held back.
    term.proclaim("known").await.unwrap();
    faults.hold_requests("EVALSHA", 1);
    let mut early = Box::pin(term.proclaim("second"));
    assert!(cancel_after(&mut early, 3).await.is_none());
    term.proclaim("third").await.unwrap();
    faults.deliver();
    let _ = tokio::time::timeout(secs(20), early).await;
    world.quiet().await;
    assert_eq!(value(election(&client).leader().await.unwrap()), "third");
}

#[tokio::test(start_paused = true)]
async fn a_proclamation_whose_reply_was_lost_is_done_once() {
    for way in LostReply::WAYS {
        let (world, client) = World::engine().with_client().await;
        let term = election(&client).campaign("first").await.unwrap();
        term.proclaim("known").await.unwrap();
        let mut messages = world.listen("stanchion_election:{indexer}").await;
        world.lose_next_reply(way);
        term.proclaim("second").await.unwrap();
        assert_eq!(value(election(&client).leader().await.unwrap()), "second");
        let message = messages.next().await;
        assert_eq!(message, format!("value {} 2", term.id()));
        let _ = world.admin(&["PUBLISH", "stanchion_election:{indexer}", "end"]);
        assert_eq!(
            messages.next().await,
            "end",
            "the change was published once"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_proclamation_dropped_anywhere_has_no_side_effects() {
    let (world, client) = World::slow_engine().with_client().await;
    let term = election(&client).campaign("first").await.unwrap();
    for_each_await_point(async |polls| {
        let done = cancel_after(term.proclaim("maybe"), polls).await.is_some();
        term.proclaim("sure").await.unwrap();
        world.quiet().await;
        assert_eq!(value(election(&client).leader().await.unwrap()), "sure");
        done
    })
    .await;
    assert!(term.is_held());
}

#[tokio::test(start_paused = true)]
async fn the_value_lasts_as_long_as_the_term() {
    let (world, client) = World::engine().with_client().await;
    let term = election(&client).campaign("v").await.unwrap();
    tokio::time::sleep(LEASE * 20).await;
    let leader = election(&client).leader().await.unwrap().unwrap();
    let since = leader.since.unwrap();
    assert!(since >= LEASE * 20 && since < LEASE * 21, "{since:?}");
    assert!(leader.remaining.unwrap() <= LEASE);
    assert_eq!(value(Some(leader)), "v");
    // After an eviction, the next proclamation writes the value again, with a TTL.
    let _ = world.admin(&["DEL", "stanchion_leader:{indexer}"]);
    assert_eq!(
        election(&client).leader().await.unwrap().unwrap().value,
        None
    );
    term.proclaim("w").await.unwrap();
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(value(election(&client).leader().await.unwrap()), "w");
    term.step_down().await.unwrap();
    tokio::time::sleep(LEASE).await;
    world.at_rest().await;
}
