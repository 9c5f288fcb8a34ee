//! Tests surveys of clients on real servers: the records that clients publish, the rights for them, and deadlocks.

use std::time::Duration;

use stanchion::survey::Certainty;
use stanchion::{AcquireOptions, Client, LeasedSemaphore, Secret};
use stanchion_testkit::{RedisServer, eventually_async};
use stanchion_tests::faults::*;

use super::rights;

/// Longer than a client takes to publish a new hold.
const PUBLISHED_WITHIN: Duration = secs(12);

async fn seen(observer: &Client, client: &Client) -> Option<stanchion::survey::SurveyedClient> {
    let survey = observer.survey().await.unwrap();
    survey
        .clients
        .into_iter()
        .find(|it| it.client == client.id())
}

fn record_of(server: &RedisServer, client: &Client) -> String {
    let key = format!("stanchion_client:{{{}}}", client.id());
    let text = server.cli(&["GET", &key]);
    if text.is_nil() {
        String::new()
    } else {
        text.as_text().to_owned()
    }
}

#[tokio::test]
async fn the_user_of_the_acl_line_publishes_its_holds_and_operators_read_them() {
    let Some(server) = server() else { return };
    let client = rights::client(&server).await;
    let observer = connect(server.url()).await;
    let held = lock(&client, "app:orders", LONG).acquire().await.unwrap();
    soon(PUBLISHED_WITHIN, async {
        while seen(&observer, &client).await.is_none() {
            tokio::time::sleep(ms(100)).await;
        }
    })
    .await;
    let record = seen(&observer, &client).await.unwrap();
    assert_eq!(record.holds[0].token, held.fencing_token());
    assert!(record.host.is_some() && record.pid == std::process::id());
    let text = record_of(&server, &client);
    for secret in [
        "password",
        "redis://",
        "127.0.0.1",
        &server.addr().to_string(),
    ] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    rights::nothing_refused(&server);
    // The user of the ACL line may write records, and not read them.
    assert!(client.survey().await.is_err());
    held.release().await.unwrap();
    client.shutdown(secs(1)).await;
    assert_eq!(record_of(&server, &client), "");
    assert_eq!(seen(&observer, &client).await, None);
}

#[tokio::test]
async fn a_client_without_the_right_to_publish_its_record_still_locks() {
    let Some(server) = server() else { return };
    admin(
        &server,
        &[
            "ACL",
            "SETUSER",
            "mute",
            "on",
            ">password",
            "~app:*",
            "~*{app:*",
            "~stanchion_fence:*",
            "&*",
            "+@all",
        ],
    );
    let mute = patient(server.url())
        .username("mute".to_owned())
        .password(Secret::new("password"));
    let mute = Client::connect_with(mute).await.unwrap();
    let held = lock(&mute, "app:orders", LONG).acquire().await.unwrap();
    let refused = || {
        let log = server.cli(&["ACL", "LOG"]);
        let objects = log.as_array().iter().map(|entry| entry.as_array());
        let of_records = objects.filter(|entry| entry[7].as_text().contains("stanchion_client"));
        of_records.map(|entry| entry[1].as_int()).sum::<i64>()
    };
    soon(PUBLISHED_WITHIN, async {
        while refused() == 0 {
            tokio::time::sleep(ms(100)).await;
        }
    })
    .await;
    let before = refused();
    // The client tries the record and the list once each, and not again over the same connections.
    assert!(before <= 3, "{before}");
    tokio::time::sleep(secs(12)).await;
    assert_eq!(refused(), before);
    assert!(held.is_held());
    held.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_deadlock_of_two_processes_is_found() {
    let Some(server) = server() else { return };
    let (a, b) = (connect(server.url()).await, connect(server.url()).await);
    let tasks: Vec<_> = [(&a, "x", "y"), (&b, "y", "x")]
        .map(|(client, holds, waits)| {
            let owner = AcquireOptions::new().owner(&client.owner());
            let (holds, waits) = (lock(client, holds, LONG), lock(client, waits, LONG));
            tokio::spawn(async move {
                let _held = holds.acquire_with(owner.clone()).await.unwrap();
                tokio::time::sleep(ms(500)).await;
                drop(waits.acquire_with(owner).await);
            })
        })
        .into();
    let observer = connect(server.url()).await;
    let mut found = Vec::new();
    soon(secs(40), async {
        while found.is_empty() {
            found = observer.deadlocks().await.unwrap();
            tokio::time::sleep(ms(100)).await;
        }
    })
    .await;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].certainty, found[0].edges.len()),
        (Certainty::Certain, 2)
    );
    for task in tasks {
        task.abort();
    }
    eventually_async("both locks are free", async || {
        is_free(&server, "x").await && is_free(&server, "y").await
    })
    .await;
}

/// MONITOR shows no password and no URL in the commands of a client, and none in its record.
#[tokio::test]
async fn no_secret_is_sent_after_the_login() {
    let Some(server) = server() else { return };
    admin(
        &server,
        &[
            "ACL", "SETUSER", "agent", "on", ">hunter2", "~*", "&*", "+@all",
        ],
    );
    let url = format!("redis://agent:hunter2@{}/", server.addr());
    let monitor = server.monitor();
    let client = || Client::connect_with(patient(&*url));
    let (holder, waiter) = (client().await.unwrap(), client().await.unwrap());
    let held = lock(&holder, "job", LONG).acquire().await.unwrap();
    let permits = LeasedSemaphore::new(&holder, "permits").unwrap();
    permits.init(2).await.unwrap();
    let permit = permits.acquire().await.unwrap();
    let waiting = lock(&waiter, "job", LONG);
    let next = tokio::spawn(waiting.acquire());
    for client in [&holder, &waiter] {
        soon(PUBLISHED_WITHIN, async {
            while seen(&waiter, client).await.is_none() {
                tokio::time::sleep(ms(100)).await;
            }
        })
        .await;
    }
    assert_eq!(waiter.processes().await.unwrap().list.unwrap().len(), 2);
    assert_eq!(waiter.deadlocks().await.unwrap(), []);
    waiting.status().await.unwrap();
    let reached = waiting.request_release("a reason").await.unwrap();
    assert_eq!(reached.heard, 1);
    waiting.danger().force_release().await.unwrap();
    held.lost().await;
    next.await.unwrap().unwrap().release().await.unwrap();
    permit.release().await.unwrap();
    for client in [holder, waiter] {
        client.shutdown(secs(1)).await;
    }
    let sent = monitor.lines();
    for expected in ["stanchion_client:{", "a reason", "CLIENT\" \"SETNAME"] {
        assert!(
            sent.iter().any(|line| line.contains(expected)),
            "{expected}"
        );
    }
    for line in &sent {
        assert!(
            !line.contains("hunter2") && !line.contains("redis://"),
            "{line}"
        );
    }
}
