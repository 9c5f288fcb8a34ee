//! P8, R7 for every kind of hold: a value of another type under the name is refused and left unchanged.

use stanchion::{AcquireError, Rejection, ReleaseError};
use stanchion_testkit::eventually;
use stanchion_tests::kinds::{Case, Target};
use stanchion_tests::permits;

super::table! {
    a_foreign_value_is_refused_and_left_unchanged,
    a_value_that_replaces_a_hold_is_left_unchanged,
    a_waiter_gets_an_error_when_the_name_is_overwritten,
}

/// A command that stores a value under a key, and one that reads it.
type Foreign = (&'static [&'static str], &'static [&'static str]);

const FOREIGN: [Foreign; 3] = [
    (&["SET", "precious"], &["GET"]),
    (&["RPUSH", "precious"], &["LINDEX", "0"]),
    (&["ZADD", "1", "precious"], &["ZCARD"]),
];

fn run(case: &Case, command: &[&str], key: &str) -> String {
    let mut words = command.to_vec();
    words.insert(1, key);
    case.world.admin(&words)
}

fn keys(case: &Case) -> Vec<String> {
    match case.theirs() {
        Target::Any(_) => case.world.keys(),
        Target::Seats(..) => permits::keys(&case.world),
    }
}

fn refused(case: &Case, outcome: Result<(), AcquireError>) {
    match outcome {
        Err(AcquireError::Rejected {
            rejection: Rejection::WrongType { .. },
            ..
        }) => {}
        other => panic!("{}: {other:?}", case.label),
    }
}

/// P8. No TTL is added or removed, and no other key is left.
async fn a_foreign_value_is_refused_and_left_unchanged(case: &Case) {
    for key in case.names() {
        for (make, read) in FOREIGN {
            for ttl in [None, Some("60000")] {
                let _ = case.world.admin(&["DEL", key]);
                run(case, make, key);
                if let Some(ttl) = ttl {
                    let _ = case.world.admin(&["PEXPIRE", key, ttl]);
                }
                let before = run(case, read, key);
                for tries in [false, true] {
                    let target = case.ours();
                    refused(
                        case,
                        match tries {
                            false => target.acquire().await.map(drop),
                            true => target.try_acquire().await.map(drop),
                        },
                    );
                    eventually("no other key is left", || keys(case) == [*key]).await;
                }
                assert_eq!(run(case, read, key), before, "{}: {make:?}", case.label);
                let left: i64 = run(case, &["PTTL"], key).parse().unwrap();
                assert_eq!(left > 0, ttl.is_some(), "{}: {left}", case.label);
            }
        }
        let _ = case.world.admin(&["DEL", key]);
    }
}

/// P5, P8.
async fn a_value_that_replaces_a_hold_is_left_unchanged(case: &Case) {
    for key in case.names() {
        for drops in [false, true] {
            let held = case.ours().acquire().await.unwrap();
            let _ = case.world.admin(&["SET", key, "precious"]);
            if drops {
                drop(held);
            } else {
                match held.release().await {
                    Err(ReleaseError::Lost(_) | ReleaseError::Rejected { .. }) => {}
                    other => panic!("{}: {other:?}", case.label),
                }
            }
            case.world.quiet().await;
            assert_eq!(case.world.admin(&["GET", key]), "precious");
            assert_eq!(case.world.admin(&["PTTL", key]), "-1");
            for key in case.world.keys() {
                let _ = case.world.admin(&["DEL", &key]);
            }
            case.init().await;
        }
    }
}

/// P4, P8: after one poll interval at most.
async fn a_waiter_gets_an_error_when_the_name_is_overwritten(case: &Case) {
    let _held = case.theirs().acquire().await.unwrap();
    let target = case.ours();
    let waiter = tokio::spawn(async move { target.acquire().await.map(drop) });
    eventually("the call waits", || {
        case.clients.iter().any(|client| client.waiters() > 0)
    })
    .await;
    case.world.quiet().await;
    let key = case.names()[0];
    let _ = case.world.admin(&["SET", key, "precious"]);
    refused(case, waiter.await.unwrap());
    assert_eq!(case.world.admin(&["GET", key]), "precious");
}
