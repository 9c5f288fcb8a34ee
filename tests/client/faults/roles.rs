//! Tests servers that refuse calls temporarily: replicas (READONLY), and servers that load their data (LOADING).

use stanchion::{AcquireError, Outage};
use stanchion_testkit::{RedisServer, eventually, machine_clock};
use stanchion_tests::faults::*;

/// Makes the server a replica of a master that does not exist.
fn demote(server: &RedisServer) {
    admin(server, &["REPLICAOF", "127.0.0.1", "1"]);
}

fn promote(server: &RedisServer) {
    admin(server, &["REPLICAOF", "NO", "ONE"]);
}

fn refused_with(error: &AcquireError, wanted: &str) -> bool {
    matches!(error, AcquireError::Unavailable { outage: Outage::Refused { code, .. }, .. } if code == wanted)
}

#[tokio::test]
async fn an_acquire_waits_for_a_replica_to_become_master() {
    let Some(server) = server() else { return };
    let scripts = Scripts::load(&server);
    let proxy = stanchion_testkit::Proxy::start(server.addr());
    let lock = lock_of(proxy.url(), "orders", LONG).await;
    demote(&server);
    let waiter = waiting(&lock);
    proxy
        .wait_for("the waiter retries", |p| {
            p.count(&run_of(&scripts.acquire, "orders")) > 3
        })
        .await;
    assert!(!waiter.is_finished());
    promote(&server);
    served(waiter, LONG / 3).await;
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_deadline_holds_on_a_replica_and_the_error_names_the_refusal() {
    let Some(server) = server() else { return };
    let client = stanchion::Client::connect_with(config(server.url()).operation_timeout(ms(400)))
        .await
        .unwrap();
    let lock = lock(&client, "orders", LONG);
    demote(&server);
    let began = machine_clock();
    let error = lock.acquire_timeout(ms(400)).await.unwrap_err();
    assert!(machine_clock() - began < ms(400) + SLACK, "P9");
    assert!(
        refused_with(&error, "READONLY") || matches!(error, AcquireError::TimedOut { .. }),
        "P8: {error:?}"
    );
    // A request in flight at the deadline is ambiguous. On a slow machine this is frequent, so the test tries up to 40 times.
    let mut reported = false;
    for _ in 0..40 {
        let began = machine_clock();
        let error = lock.try_acquire().await.unwrap_err();
        assert!(machine_clock() - began < ms(400) + SLACK, "P9");
        reported = refused_with(&error, "READONLY");
        if reported {
            break;
        }
        assert!(
            matches!(error, AcquireError::Ambiguous { .. }),
            "P8: {error:?}"
        );
    }
    assert!(reported, "P8");
    promote(&server);
    assert_eq!(leftovers(&server), [] as [String; 0]);
}

#[tokio::test]
async fn a_hold_survives_a_demotion_that_is_shorter_than_its_lease() {
    let Some(server) = server() else { return };
    let scripts = Scripts::load(&server);
    let proxy = stanchion_testkit::Proxy::start(server.addr());
    let guard = acquired(proxy.url(), "orders", ms(3000)).await;
    demote(&server);
    let before = proxy.count(&run_of(&scripts.renew, "orders"));
    proxy
        .wait_for("a renewal was refused", |p| {
            p.count(&run_of(&scripts.renew, "orders")) > before + 1
        })
        .await;
    promote(&server);
    renewed(&guard).await;
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

/// A server with data that it takes about 1.5 s to load.
fn slow_to_load() -> Option<RedisServer> {
    let slow = RedisServer::builder()
        .arg("key-load-delay", "10000")
        .arg("loading-process-events-interval-bytes", "1024")
        .arg("rdbcompression", "no");
    let server = start(slow)?;
    let fill = "for i = 1, 150 do redis.call('SET', 'data' .. i, string.rep('x', 2000)) end";
    admin(&server, &["EVAL", fill, "0"]);
    admin(&server, &["SAVE"]);
    Some(server)
}

#[tokio::test]
async fn calls_on_a_loading_server_are_retried_until_it_is_ready() {
    let Some(mut server) = slow_to_load() else {
        return;
    };
    let client = connect(server.url()).await;
    let lock = lock(&client, "orders", LONG);
    let url = server.url();
    let restarting = std::thread::spawn(move || {
        server.restart();
        server
    });
    eventually("the client is disconnected", || !client.is_connected()).await;
    eventually("the client is connected again", || client.is_connected()).await;
    let seen = soon(LONG / 3, async {
        loop {
            match lock.acquire_timeout(ms(30)).await {
                Err(error) if refused_with(&error, "LOADING") => return true,
                Err(_) => {}
                Ok(_) => return false,
            }
        }
    });
    assert!(seen.await, "P8: no call was refused with LOADING");
    let waiter = waiting(&lock);
    let status = lock.clone();
    let status = tokio::spawn(async move { status.status().await });
    // A new client can connect to the loading server.
    let new_client = connect(url).await;
    let guard = granted(waiter, LONG / 3).await;
    status.await.unwrap().unwrap();
    assert!(new_client.is_connected());
    guard.release().await.unwrap();
    drop(restarting.join().unwrap());
}
