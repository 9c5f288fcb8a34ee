//! Tests foreign values under the names of locks: all operations refuse them and leave them unchanged. `real/kinds/foreign_keys` has the cases
//! of all kinds.

use stanchion::{QueryError, Rejection};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::faults::*;

const MINUTE: i64 = 60_000;

/// Stores a value of each other type under a different name, with a TTL. Returns the names.
fn foreign(server: &RedisServer) -> [&'static str; 5] {
    let commands: [&[&str]; 5] = [
        &["SET", "text", "precious"],
        &["RPUSH", "list", "precious"],
        &["SADD", "set", "precious"],
        &["ZADD", "sorted", "1", "precious"],
        &["XADD", "stream", "1-1", "precious", "1"],
    ];
    commands.map(|command| {
        admin(server, command);
        assert_eq!(
            server
                .cli(&["PEXPIRE", command[1], &MINUTE.to_string()])
                .as_int(),
            1
        );
        command[1]
    })
}

fn dump(server: &RedisServer, key: &str) -> Vec<u8> {
    match server.cli(&["DUMP", key]) {
        stanchion_testkit::Value::Bulk(bytes) => bytes,
        other => panic!("{key}: {other}"),
    }
}

fn is_wrong_type(error: &QueryError) -> bool {
    matches!(
        error,
        QueryError::Rejected {
            rejection: Rejection::WrongType { .. }
        }
    )
}

#[tokio::test]
async fn a_foreign_value_is_refused_and_not_touched() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    for name in foreign(&server) {
        let before = dump(&server, name);
        let lock = lock(&client, name, LONG);
        assert!(
            matches!(rejected(lock.acquire().await), Rejection::WrongType { .. }),
            "{name}"
        );
        assert!(
            matches!(
                rejected(lock.try_acquire().await.map(|_| ())),
                Rejection::WrongType { .. }
            ),
            "{name}"
        );
        let error = lock.status().await.unwrap_err();
        assert!(is_wrong_type(&error), "{name}: {error}");
        let error = lock.danger().force_release().await.unwrap_err();
        assert!(is_wrong_type(&error), "{name}: {error}");
        assert_eq!(dump(&server, name), before, "{name}");
        let ttl = server.cli(&["PTTL", name]).as_int();
        assert!((MINUTE / 2..=MINUTE).contains(&ttl), "{name}: {ttl}");
    }
    quiet(&server).await;
    assert_eq!(leftovers(&server).len(), 5);
}

/// Replaces the counter of the slot of `orders` by a list. Returns the key.
async fn break_counter(server: &RedisServer) -> String {
    let lock = lock_of(server.url(), "orders", LONG).await;
    lock.acquire().await.unwrap().release().await.unwrap();
    let [counter] = server.keys().try_into().unwrap();
    assert_eq!(server.cli(&["DEL", &counter]).as_int(), 1);
    assert_eq!(server.cli(&["RPUSH", &counter, "precious"]).as_int(), 1);
    counter
}

#[tokio::test]
async fn a_foreign_value_at_the_counter_is_refused_and_nothing_is_locked() {
    let Some(server) = server() else { return };
    let counter = break_counter(&server).await;
    let lock = lock_of(server.url(), "orders", LONG).await;
    assert!(matches!(
        rejected(lock.acquire().await),
        Rejection::WrongType { .. }
    ));
    assert!(matches!(
        rejected(lock.try_acquire().await.map(|_| ())),
        Rejection::WrongType { .. }
    ));
    let error = lock.status().await.unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    assert_eq!(server.keys(), std::slice::from_ref(&counter));
    assert_eq!(
        server.cli(&["LRANGE", &counter, "0", "-1"]).as_texts(),
        ["precious"]
    );
}

#[tokio::test]
async fn a_foreign_value_at_the_counter_does_not_keep_a_holder_from_releasing() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let lock = lock(&client, "orders", LONG);
    let guard = lock.acquire().await.unwrap();
    let waiter = waiting(&lock);
    eventually("the call waits", || client.waiters() == 1).await;
    let [counter] = server
        .keys()
        .into_iter()
        .filter(|key| key.starts_with("stanchion_fence"))
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    admin(&server, &["DEL", &counter]);
    admin(&server, &["RPUSH", &counter, "precious"]);
    // The hand-off cannot mint a token: it frees the lock, and the waiter gets the reason as an error.
    guard.release().await.unwrap();
    let refused = soon(LONG / 3, waiter).await.unwrap();
    assert!(matches!(rejected(refused), Rejection::WrongType { .. }));
    eventually("nothing else is left", || {
        server.keys() == [counter.as_str()]
    })
    .await;
}
