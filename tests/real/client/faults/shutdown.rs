//! Tests `Client::shutdown`: it waits for releases, ends all other calls, and reports live guards.

use stanchion::{AcquireError, LostReason, RenewError};
use stanchion_testkit::{Proxy, Switch, eventually, eventually_async};
use stanchion_tests::faults::*;

#[tokio::test]
async fn shutdown_waits_for_releases_in_flight() {
    let Some(server) = server() else { return };
    let scripts = Scripts::load(&server);
    let proxy = Proxy::start(server.addr());
    let client = stanchion::Client::connect_with(config(proxy.url()).response_timeout(LONG))
        .await
        .unwrap();
    let guard = lock(&client, "orders", LONG).acquire().await.unwrap();
    let held = proxy.hold_requests(run_of(&scripts.release, "orders"));
    drop(guard);
    held.wait(1).await;
    let other = lock(&client, "other", LONG);
    let mut closing = tokio::spawn(async move { client.shutdown(LONG).await });
    eventually_async("the client is closing", async || {
        matches!(
            other.try_acquire().await,
            Err(AcquireError::Shutdown { .. })
        )
    })
    .await;
    let early = tokio::time::timeout(ms(300), &mut closing).await;
    assert!(early.is_err(), "shutdown did not wait: {early:?}");
    assert_eq!(hold_count(&server, "orders"), 1);
    held.release();
    let report = soon(LONG / 3, closing).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(leftovers(&server), [] as [String; 0]);
}

#[tokio::test]
async fn shutdown_completes_the_releases_of_dropped_guards() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let mut guards = Vec::new();
    for i in 0..50 {
        guards.push(
            lock(&client, &format!("orders-{i}"), LONG)
                .acquire()
                .await
                .unwrap(),
        );
    }
    drop(guards);
    let report = client.shutdown(LONG / 3).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(leftovers(&server), [] as [String; 0]);
}

#[tokio::test]
async fn shutdown_closes_every_connection() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    lock(&client, "orders", LONG)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(client.shutdown(LONG / 3).await.is_clean());
    eventually("only the test's own connection is left", || {
        server.cli(&["CLIENT", "LIST"]).as_text().lines().count() == 1
    })
    .await;
    assert!(!client.is_connected());
}

#[tokio::test]
async fn shutdown_reports_releases_that_are_not_confirmed_within_its_grace() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let client = connect(proxy.url()).await;
    let guard = lock(&client, "orders", LONG).acquire().await.unwrap();
    proxy.freeze_all();
    drop(guard);
    let report = soon(ms(300) + SLACK, client.shutdown(ms(300))).await;
    assert_eq!(
        (report.unfinished, report.abandoned.len()),
        (1, 0),
        "{report:?}"
    );
}

#[tokio::test]
async fn shutdown_fails_waiters_and_later_calls() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let lock = lock(&client, "orders", LONG);
    let elsewhere = acquired(server.url(), "orders", LONG).await;
    let waiters = [waiting(&lock), waiting(&lock), waiting(&lock)];
    eventually("the calls wait", || client.waiters() == 3).await;
    let report = client.shutdown(LONG / 3).await;
    assert!(report.is_clean(), "{report:?}");
    for waiter in waiters {
        let error = soon(LONG / 3, waiter).await.unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::Shutdown { .. }), "{error:?}");
    }
    assert!(matches!(
        lock.acquire().await,
        Err(AcquireError::Shutdown { .. })
    ));
    assert!(matches!(
        lock.try_acquire().await,
        Err(AcquireError::Shutdown { .. })
    ));
    assert_eq!(client.waiters(), 0);
    elsewhere.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn shutdown_fails_waiters_without_a_connection() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let client = connect(proxy.url()).await;
    proxy.refuse_new(Switch::On);
    proxy.reset_all();
    eventually("the client is disconnected", || !client.is_connected()).await;
    let waiters = [
        waiting(&lock(&client, "orders", LONG)),
        waiting(&lock(&client, "orders", LONG)),
    ];
    eventually("the calls wait", || client.waiters() == 2).await;
    let report = soon(ms(300) + SLACK, client.shutdown(ms(300))).await;
    assert_eq!(report.abandoned, [], "{report:?}");
    for waiter in waiters {
        let error = soon(LONG / 3, waiter).await.unwrap().unwrap_err();
        assert!(
            matches!(error, AcquireError::Shutdown { .. }),
            "P8: {error:?}"
        );
    }
}

#[tokio::test]
async fn shutdown_loses_and_reports_live_guards_and_their_leases_end() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let guard = lock(&client, "orders", ms(2000)).acquire().await.unwrap();
    let again = guard.reenter().await.unwrap();
    let working = guard.run(std::future::pending::<()>());
    let (report, work) = tokio::join!(client.shutdown(LONG / 3), working);
    assert_eq!(
        report.abandoned.len(),
        1,
        "one hold with two guards: {report:?}"
    );
    assert_eq!(report.abandoned[0].name.as_bytes(), b"orders");
    assert_eq!(
        holder(&server, "orders").unwrap().0,
        report.abandoned[0].owner.to_string()
    );
    assert_eq!(work.unwrap_err().reason, LostReason::Shutdown);
    assert_eq!(loss(&guard).await, LostReason::Shutdown);
    assert!(
        matches!(again.renew().await, Err(RenewError::Lost(lost)) if lost.reason == LostReason::Shutdown)
    );
    drop((guard, again));
    // The work under the hold may still run, so the next grant comes after the end of the lease.
    assert_eq!(hold_count(&server, "orders"), 2);
    let next = acquired(server.url(), "orders", LONG).await;
    next.release().await.unwrap();
    nothing_left(&server).await;
}
