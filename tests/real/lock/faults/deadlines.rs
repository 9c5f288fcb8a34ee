//! Tests calls on a frozen network: they end at their deadlines (P9) and leave nothing (P3).

use std::time::Duration;

use stanchion::{AcquireError, Client, LockGuard, QueryError, ReleaseError, RenewError};
use stanchion_testkit::{Proxy, RedisServer, eventually, machine_clock};
use stanchion_tests::faults::*;

const DEADLINE: Duration = Duration::from_millis(400);

struct Frozen {
    server: RedisServer,
    proxy: Proxy,
    client: Client,
}

/// Connects a client through a proxy that can freeze. Returns `None` without a server.
async fn world(response_timeout: Duration) -> Option<Frozen> {
    let server = server()?;
    // Prevents a NOSCRIPT reply to the first use.
    Scripts::load(&server);
    let proxy = Proxy::start(server.addr());
    let config = config(proxy.url())
        .response_timeout(response_timeout)
        .operation_timeout(DEADLINE);
    let client = Client::connect_with(config).await.unwrap();
    Some(Frozen {
        server,
        proxy,
        client,
    })
}

impl Frozen {
    async fn guard(&self) -> LockGuard {
        lock(&self.client, "orders", LONG).acquire().await.unwrap()
    }

    async fn clean(&self) {
        nothing_left(&self.server).await;
        quiet(&self.server).await;
        nothing_left(&self.server).await;
        assert!(is_free(&self.server, "orders").await);
    }
}

/// Runs `call`, which must end at its deadline.
async fn in_time<T>(call: impl Future<Output = T>) -> T {
    let began = machine_clock();
    let outcome = call.await;
    let took = machine_clock() - began;
    assert!(took < DEADLINE + SLACK, "P9: {took:?}");
    outcome
}

fn gave_up(error: &AcquireError) -> bool {
    matches!(
        error,
        AcquireError::TimedOut { .. }
            | AcquireError::Ambiguous { .. }
            | AcquireError::Unavailable { .. }
    )
}

#[tokio::test]
async fn an_acquire_with_a_deadline_ends_on_a_frozen_network_and_its_late_request_takes_nothing() {
    // With 2.5 s the request is still valid when the network thaws. With 25 ms it is late, and the script refuses it.
    for response_timeout in [ms(2500), ms(25)] {
        let Some(world) = world(response_timeout).await else {
            return;
        };
        world.proxy.freeze_all();
        let error = in_time(lock(&world.client, "orders", LONG).acquire_timeout(DEADLINE))
            .await
            .unwrap_err();
        assert!(gave_up(&error), "{error}");
        assert_eq!(
            leftovers(&world.server),
            [] as [String; 0],
            "no request arrived"
        );
        world.proxy.thaw();
        world.clean().await;
    }
}

#[tokio::test]
async fn a_release_ends_on_a_frozen_network_and_completes_in_the_background() {
    for response_timeout in [ms(2500), ms(25)] {
        let Some(world) = world(response_timeout).await else {
            return;
        };
        let guard = world.guard().await;
        world.proxy.freeze_all();
        let error = in_time(guard.release()).await.unwrap_err();
        assert!(
            matches!(&error, ReleaseError::Ambiguous { free_by, .. } if *free_by >= LONG.into()),
            "P8: {error}"
        );
        assert_eq!(hold_count(&world.server, "orders"), 1);
        world.proxy.thaw();
        world.clean().await;
    }
}

#[tokio::test]
async fn a_release_whose_reply_is_frozen_is_ambiguous_and_done() {
    let Some(world) = world(ms(2500)).await else {
        return;
    };
    let guard = world.guard().await;
    world.proxy.freeze_replies();
    let error = in_time(guard.release()).await.unwrap_err();
    assert!(
        matches!(error, ReleaseError::Ambiguous { .. }),
        "P8: {error}"
    );
    nothing_left(&world.server).await;
    world.proxy.thaw();
    world.clean().await;
}

#[tokio::test]
async fn a_renewal_and_a_reentry_end_on_a_frozen_network_and_the_hold_survives() {
    let Some(world) = world(ms(300)).await else {
        return;
    };
    let guard = world.guard().await;
    world.proxy.freeze_all();
    let error = in_time(guard.renew()).await.unwrap_err();
    assert!(
        matches!(error, RenewError::Unavailable { .. }),
        "P8: {error}"
    );
    let error = in_time(guard.reenter()).await.unwrap_err();
    assert!(
        matches!(error, RenewError::Unavailable { .. }),
        "P8: {error}"
    );
    assert!(guard.is_held());
    world.proxy.thaw();
    // The abandoned re-entry completes, and is then released.
    quiet(&world.server).await;
    eventually("one hold", || hold_count(&world.server, "orders") == 1).await;
    guard.release().await.unwrap();
    world.clean().await;
}

#[tokio::test]
async fn a_status_request_ends_on_a_frozen_network() {
    let Some(world) = world(ms(300)).await else {
        return;
    };
    let lock = lock(&world.client, "orders", LONG);
    world.proxy.freeze_all();
    let error = in_time(lock.status()).await.unwrap_err();
    assert!(
        matches!(error, QueryError::Unavailable { .. }),
        "P8: {error}"
    );
    let error = in_time(lock.danger().force_release()).await.unwrap_err();
    assert!(
        matches!(
            error,
            QueryError::Unavailable { .. } | QueryError::Unanswered { .. }
        ),
        "P8: {error}"
    );
}

#[tokio::test]
async fn a_waiter_with_a_deadline_ends_when_the_network_freezes() {
    let Some(world) = world(ms(2500)).await else {
        return;
    };
    let guard = acquired(world.server.url(), "orders", LONG).await;
    let waiter = lock(&world.client, "orders", LONG);
    let waiter = tokio::spawn(async move { in_time(waiter.acquire_timeout(DEADLINE)).await });
    subscribed(&world.server, "orders").await;
    world.proxy.freeze_all();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(gave_up(&error), "{error}");
    assert_eq!(world.client.waiters(), 0);
    guard.release().await.unwrap();
    world.proxy.thaw();
    world.clean().await;
}
