//! Tests steps of a real server's clock (P1, P2). `virtual/refusals` has the cases of all kinds.

use stanchion::{LostReason, ReleaseError};
use stanchion_testkit::RedisServer;
use stanchion_tests::faults::*;

#[tokio::test]
async fn tokens_grow_and_leases_end_by_the_clock_of_the_server() {
    let Some(server) = start(RedisServer::builder().steppable_clock()) else {
        return;
    };
    let ours = lock_of(server.url(), "orders", LONG).await;
    let other = lock_of(server.url(), "orders", LONG).await;
    let first = ours.acquire().await.unwrap();
    let last = token(&first);
    server.step_clock(-60_000);
    first.renew().await.unwrap();
    first.release().await.unwrap();
    let second = soon(LONG / 3, other.acquire()).await.unwrap();
    assert!(token(&second) > last, "P2");
    // By the client's clock the lease is still valid.
    server.step_clock(31_000);
    let third = soon(LONG / 3, ours.acquire()).await.unwrap();
    assert!(token(&third) > token(&second), "P2");
    assert!(second.renew().await.is_err());
    assert_eq!(loss(&second).await, LostReason::Gone);
    assert!(matches!(second.release().await, Err(ReleaseError::Lost(_))));
    assert_eq!(hold_count(&server, "orders"), 1);
    third.renew().await.unwrap();
    third.release().await.unwrap();
    nothing_left(&server).await;
}
