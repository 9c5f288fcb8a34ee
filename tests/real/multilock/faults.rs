//! Tests a multi-lock with members on two real servers, one of which is killed.

use stanchion::{AcquireError, Lock, Lockable, MultiLock};
use stanchion_tests::faults::*;

fn multi(locks: &[Lock]) -> MultiLock {
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

#[tokio::test]
async fn a_dead_second_server_rolls_the_first_back() {
    let (Some(first), Some(mut second)) = (server(), server()) else {
        return;
    };
    let clients = [connect(first.url()).await, connect(second.url()).await];
    let multi = multi(&[lock(&clients[0], "a", LONG), lock(&clients[1], "b", LONG)]);
    let guard = multi.acquire().await.unwrap();
    assert_eq!((hold_count(&first, "a"), hold_count(&second, "b")), (1, 1));
    guard.release().await.unwrap();
    second.kill();
    let error = soon(ms(400) + SLACK, multi.acquire_timeout(ms(400)))
        .await
        .unwrap_err();
    // P8: a request that was sent before the client detected the disconnect may have run.
    assert!(
        matches!(
            &error,
            AcquireError::TimedOut { name, .. }
                | AcquireError::Unavailable { name, .. }
                | AcquireError::Ambiguous { name, .. }
                if name.to_string() == "b"
        ),
        "{error}"
    );
    nothing_left(&first).await;
    // The client has detected the disconnect, and sends no request that could run.
    let error = soon(ms(400) + SLACK, multi.acquire_timeout(ms(400)))
        .await
        .unwrap_err();
    assert!(
        matches!(
            &error,
            AcquireError::TimedOut { name, free_by: None, .. } | AcquireError::Unavailable { name, .. }
                if name.to_string() == "b"
        ),
        "{error}"
    );
    nothing_left(&first).await;
    second.restart();
    let guard = soon(LONG / 3, multi.acquire()).await.unwrap();
    guard.release().await.unwrap();
    nothing_left(&first).await;
    nothing_left(&second).await;
}
