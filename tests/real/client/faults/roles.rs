//! Tests servers that refuse calls temporarily: replicas (READONLY), servers that load their data (LOADING), and names that move to another
//! server.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use stanchion::client::{ByteStream, Connector};
use stanchion::{AcquireError, Client, Outage};
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
    let proxy = stanchion_testkit::Proxy::start(server.addr());
    let lock = lock_of(proxy.url(), "orders", LONG).await;
    demote(&server);
    let before = proxy.accepted();
    let waiter = waiting(&lock);
    // The client resolves the name of the server again and again, because it may lead to another server.
    proxy
        .wait_for("the client connects again", |p| p.accepted() > before + 3)
        .await;
    assert!(!waiter.is_finished());
    promote(&server);
    served(waiter, LONG / 3).await;
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_deadline_holds_on_a_replica_and_the_error_names_the_refusal() {
    let Some(server) = server() else { return };
    let client = Client::connect_with(config(server.url()).operation_timeout(ms(400)))
        .await
        .unwrap();
    let lock = lock(&client, "orders", LONG);
    demote(&server);
    let began = machine_clock();
    let error = lock.acquire_timeout(ms(400)).await.unwrap_err();
    assert!(machine_clock() - began < ms(400) + SLACK, "P9");
    assert!(error.to_string().contains("READONLY"), "P8: {error:?}");
    // A connection may be about to open at the deadline. On a slow machine this is frequent, so the test tries up to 40 times.
    let mut reported = false;
    for _ in 0..40 {
        let began = machine_clock();
        let error = lock.try_acquire().await.unwrap_err();
        assert!(machine_clock() - began < ms(400) + SLACK, "P9");
        assert!(
            matches!(error, AcquireError::Unavailable { .. }),
            "P8: {error:?}"
        );
        reported = error.to_string().contains("READONLY");
        if reported {
            break;
        }
    }
    assert!(reported, "P8");
    promote(&server);
    assert_eq!(leftovers(&server), [] as [String; 0]);
}

#[tokio::test]
async fn a_hold_survives_a_demotion_that_is_shorter_than_its_lease() {
    let Some(server) = server() else { return };
    let proxy = stanchion_testkit::Proxy::start(server.addr());
    let guard = acquired(proxy.url(), "orders", ms(3000)).await;
    demote(&server);
    let before = proxy.accepted();
    proxy
        .wait_for("the client connects again", |p| p.accepted() > before + 3)
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
    let status = tokio::spawn(async move { lock.status().await });
    // A new client can connect to the loading server.
    let new_client = connect(url).await;
    let guard = granted(waiter, LONG / 3).await;
    status.await.unwrap().unwrap();
    assert!(new_client.is_connected());
    guard.release().await.unwrap();
    drop(restarting.join().unwrap());
}

/// A name of a service. It leads to one server at a time.
#[derive(Clone, Debug)]
struct Name(Arc<Mutex<SocketAddr>>);

#[async_trait]
impl Connector for Name {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let addr = *self.0.lock().unwrap();
        Ok(Box::new(tokio::net::TcpStream::connect(addr).await?))
    }
}

/// The number of connections of this library's clients.
fn connections(server: &RedisServer) -> usize {
    let list = server.cli(&["CLIENT", "LIST"]);
    list.as_text().matches("name=stanchion:").count()
}

#[tokio::test]
async fn clients_follow_a_name_that_moves_while_the_old_master_lives_on_as_a_replica() {
    let (Some(old), Some(new)) = (server(), server()) else {
        return;
    };
    let port = |server: &RedisServer| server.addr().port().to_string();
    admin(&new, &["REPLICAOF", "127.0.0.1", &port(&old)]);
    eventually("the replica is in step", || {
        new.info("replication", "master_link_status").as_deref() == Some("up")
    })
    .await;
    let name = Name(Arc::new(Mutex::new(old.addr())));
    let client = async || {
        let config = config(old.url()).connector(name.clone());
        Client::connect_with(config).await.unwrap()
    };
    let (holding, waiting_client, idle) = (client().await, client().await, client().await);
    let guard = lock(&holding, "orders", ms(9000)).acquire().await.unwrap();
    let waiter = waiting(&lock(&waiting_client, "orders", LONG));
    subscribed(&old, "orders").await;
    eventually("the replica has the hold", || {
        new.cli(&["EXISTS", "orders"]).as_int() == 1
    })
    .await;
    promote(&new);
    admin(&old, &["REPLICAOF", "127.0.0.1", &port(&new)]);
    *name.0.lock().unwrap() = new.addr();
    // All links leave: those of calls, those of the background, and those of subscriptions.
    eventually("all connections have moved", || {
        connections(&old) == 0 && connections(&new) >= 6
    })
    .await;
    renewed(&guard).await;
    subscribed(&new, "orders").await;
    guard.release().await.unwrap();
    served(waiter, LONG / 3).await;
    let acquired = lock(&idle, "idle", LONG).acquire().await.unwrap();
    acquired.release().await.unwrap();
    nothing_left(&new).await;
}
