//! Tests server errors (P8): a rejected request returns a typed error, and a hold can be renewed and released at maxmemory.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::error::ServerRejection;
use stanchion::{AcquireError, Client, ConnectError, Lease, Lock, Outage, Rejection};
use stanchion_testkit::eventually;
use stanchion_tests::World;

fn rejection(error: AcquireError) -> Rejection {
    match error {
        AcquireError::Rejected { rejection, .. } => rejection,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn at_maxmemory_acquires_fail_and_holds_are_renewed_and_released() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job")
        .unwrap()
        .lease(Lease::new(Duration::from_secs(3)).unwrap());
    let guard = lock.acquire().await.unwrap();
    let keys = world.admin(&["DBSIZE"]);
    world.as_engine().faults().out_of_memory(Switch::On);
    let error = Lock::new(&client, "other")
        .unwrap()
        .acquire()
        .await
        .unwrap_err();
    assert!(matches!(rejection(error), Rejection::OutOfMemory { .. }));
    assert_eq!(world.admin(&["DBSIZE"]), keys, "nothing was written");
    let end = guard.valid_until();
    eventually("the watchdog renews", || guard.valid_until() > end).await;
    guard.renew().await.unwrap();
    let inner = guard.reenter().await.unwrap();
    inner.release().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    eventually("the next acquire waits", || client.waiters() == 1).await;
    world.quiet().await;
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_waits_for_a_server_that_is_loading_or_read_only() {
    for refuse in [
        |w: &World, s| w.as_engine().faults().loading(s),
        |w: &World, s| w.as_engine().faults().read_only(s),
    ] {
        let world = World::engine();
        let client = world.client().await;
        let lock = Lock::new(&client, "job").unwrap();
        refuse(&world, Switch::On);
        let error = lock
            .acquire_timeout(Duration::from_millis(300))
            .await
            .unwrap_err();
        assert!(
            matches!(
                &error,
                AcquireError::Unavailable {
                    outage: Outage::Refused { .. },
                    ..
                } | AcquireError::TimedOut { .. }
            ),
            "{error}"
        );
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap() }
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!waiting.is_finished());
        refuse(&world, Switch::Off);
        waiting.await.unwrap().release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flushed_script_cache_is_filled_again_without_an_error() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let flush = || world.as_engine().faults().flush_scripts();
    for _ in 0..3 {
        flush();
        let guard = lock.acquire().await.unwrap();
        flush();
        let inner = guard.reenter().await.unwrap();
        flush();
        guard.renew().await.unwrap();
        flush();
        inner.release().await.unwrap();
        flush();
        guard.release().await.unwrap();
    }
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_fence_of_another_type_is_an_error_and_nothing_is_held() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job")
        .unwrap()
        .fencing(stanchion::Fencing::PerName);
    let _ = world.admin(&["RPUSH", "redisson_lock_token:{job}", "x"]);
    assert!(matches!(
        rejection(lock.acquire().await.unwrap_err()),
        Rejection::WrongType { .. }
    ));
    assert!(world.keys().is_empty());
    assert_eq!(world.admin(&["LLEN", "redisson_lock_token:{job}"]), "1");
}

#[tokio::test(start_paused = true)]
async fn connecting_with_a_missing_or_wrong_password_fails() {
    let world = World::engine();
    world.as_engine().faults().password(Some("secret"));
    let refused = async |config| match Client::connect_with(config).await.unwrap_err() {
        ConnectError::Rejected {
            rejection: ServerRejection::Unauthenticated { .. },
            ..
        } => {}
        other => panic!("{other:?}"),
    };
    refused(world.config("client")).await;
    refused(
        world
            .config("client")
            .password(stanchion::Secret::new("wrong")),
    )
    .await;
    let config = world
        .config("client")
        .password(stanchion::Secret::new("secret"));
    let client = Client::connect_with(config).await.unwrap();
    Lock::new(&client, "job")
        .unwrap()
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn connecting_to_an_unreachable_server_fails() {
    let world = World::engine();
    world.as_engine().faults().refuse_connections(Switch::On);
    let error = Client::connect_with(world.config("client"))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}
