//! Tests users, passwords and rights: a bad login is a typed error, and a client survives changes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use stanchion::client::{Credentials, CredentialsProvider};
use stanchion::error::ServerRejection;
use stanchion::{
    AcquireError, Client, ConfigError, ConnectError, LostReason, Outage, Rejection, Secret,
};
use stanchion_testkit::{RedisServer, eventually, machine_clock};
use stanchion_tests::faults::*;

/// Creates a user with a password, all commands and channels, and these further rights.
fn user_with(server: &RedisServer, name: &str, password: &str, rights: &str) {
    let line = format!("ACL SETUSER {name} reset on >{password} &* +@all {rights}");
    admin(server, &line.split(' ').collect::<Vec<_>>());
}

/// Connects as a user of [`user_with`], with the password `pw`.
async fn app(server: &RedisServer) -> Client {
    let config = config(server.url()).username("app".to_owned());
    let config = config.password(Secret::new("pw"));
    Client::connect_with(config).await.unwrap()
}

/// The keys of a lock, next to its name.
const KEYS: &str = "~stanchion_fence:* ~stanchion_origin:* ~stanchion_line:* ~stanchion_wake:*";

/// Returns whether the server refused these credentials.
fn unauthenticated(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Rejected {
            rejection: ServerRejection::Unauthenticated { .. },
            ..
        }
    )
}

#[tokio::test]
async fn missing_and_wrong_passwords_are_refused_at_once_by_type() {
    let Some(server) = start(RedisServer::builder().password("right")) else {
        return;
    };
    let plain = format!("redis://{}/", server.addr());
    let wrong = [
        config(plain.clone()),
        config(plain.clone()).password(Secret::new("wrong")),
        config(plain.clone())
            .username("nobody".to_owned())
            .password(Secret::new("right")),
        config(plain.replace("redis://", "redis://:wrong@")),
    ];
    for config in wrong {
        let began = machine_clock();
        let timeout = config.connect_timeout;
        let error = Client::connect_with(config).await.unwrap_err();
        assert!(unauthenticated(&error), "P8: {error:?}");
        assert!(!error.to_string().contains("right"), "{error}");
        assert!(
            machine_clock() - began < timeout,
            "the client does not retry"
        );
    }
    let lock = lock_of(server.url(), "orders", LONG).await;
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_password_that_changes_under_a_client_is_reported_and_its_hold_lost_in_time() {
    let Some(server) = server() else { return };
    let user = |password| user(&server, "app", password);
    user("old");
    let config = config(server.url())
        .username("app".to_owned())
        .password(Secret::new("old"));
    let client = Client::connect_with(config.outage_tolerance(ms(500)))
        .await
        .unwrap();
    let guard = lock(&client, "orders", ms(700)).acquire().await.unwrap();
    user("new");
    assert!(server.cli(&["CLIENT", "KILL", "USER", "app"]).as_int() >= 3);
    // A request on a connection that is already dead would be ambiguous.
    eventually("the client detects the disconnect", || {
        !client.is_connected()
    })
    .await;
    let error = soon(LONG / 3, lock(&client, "other", LONG).acquire())
        .await
        .unwrap_err();
    let reported = match &error {
        AcquireError::Unavailable {
            outage: Outage::Disconnected { detail, .. },
            ..
        } => detail.contains("not authenticated"),
        AcquireError::Rejected {
            rejection: Rejection::Unauthenticated { .. },
            ..
        } => true,
        _ => false,
    };
    assert!(reported, "P8: {error:?}");
    assert_eq!(loss(&guard).await, LostReason::Expired);
    // The old password is valid again: the client must reconnect.
    user("old");
    drop(guard);
    let again = soon(LONG / 3, async {
        loop {
            if let Ok(guard) = lock(&client, "orders", LONG).acquire().await {
                return guard;
            }
        }
    });
    again.await.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_missing_right_is_a_rejection_and_leaves_nothing() {
    let Some(server) = server() else { return };
    // The user has no right on other keys, and later none to set a TTL.
    user_with(&server, "app", "pw", &format!("~app:* {KEYS}"));
    let client = app(&server).await;
    assert!(matches!(
        rejected(lock(&client, "orders", LONG).acquire().await),
        Rejection::NotPermitted { .. }
    ));
    let orders = lock(&client, "app:orders", LONG);
    orders.acquire().await.unwrap().release().await.unwrap();
    admin(&server, &["ACL", "SETUSER", "app", "-pexpire"]);
    assert!(matches!(
        rejected(orders.acquire().await),
        Rejection::NotPermitted { .. } | Rejection::Other { .. }
    ));
    assert_eq!(
        leftovers(&server),
        [] as [String; 0],
        "no lock without a TTL"
    );
}

#[tokio::test]
async fn a_revoked_right_loses_only_the_hold_that_needs_it() {
    let Some(server) = server() else { return };
    user_with(&server, "app", "pw", &format!("~kept ~taken {KEYS}"));
    let client = app(&server).await;
    // One request renews both holds.
    let kept = lock(&client, "kept", ms(1200)).acquire().await.unwrap();
    let taken = lock(&client, "taken", ms(1200)).acquire().await.unwrap();
    user_with(&server, "app", "pw", &format!("~kept {KEYS}"));
    assert_eq!(loss(&taken).await, LostReason::Expired);
    renewed(&kept).await;
    kept.release().await.unwrap();
}

#[tokio::test]
async fn a_user_without_the_right_to_info_can_lock() {
    let Some(server) = server() else { return };
    user_with(&server, "app", "pw", "~* -info");
    let client = app(&server).await;
    assert_eq!(client.server().version, "unknown");
    drop(lock(&client, "orders", LONG).acquire().await.unwrap());
}

/// The behaviour of a provider when it is called.
#[derive(Clone)]
enum Answer {
    /// A user, a password, and the time for which they are valid.
    Login(&'static str, &'static str, Option<Duration>),
    Fails,
    Panics,
    Hangs,
}

/// A provider with an answer that the test sets.
#[derive(Clone)]
struct Vault {
    answer: Arc<Mutex<Answer>>,
    calls: Arc<AtomicU32>,
}

impl Vault {
    fn new(answer: Answer) -> Self {
        Self {
            answer: Arc::new(Mutex::new(answer)),
            calls: Arc::default(),
        }
    }

    fn set(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Waits until every connection has called the provider again.
    async fn called_again(&self) {
        let before = self.calls();
        eventually("every connection calls the provider", || {
            self.calls() >= before + 6
        })
        .await;
    }
}

#[async_trait]
impl CredentialsProvider for Vault {
    async fn credentials(
        &self,
    ) -> Result<Credentials, Box<dyn std::error::Error + Send + Sync + 'static>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let answer = self.answer.lock().unwrap().clone();
        match answer {
            Answer::Login(user, password, valid_for) => {
                let credentials = Credentials::new(Secret::new(password)).username(user);
                Ok(match valid_for {
                    Some(valid_for) => credentials.valid_for(valid_for),
                    None => credentials,
                })
            }
            Answer::Fails => Err("the vault is sealed".into()),
            // Without a backtrace: printing one stops the thread of the renewals for longer than the lease on a busy machine.
            Answer::Panics => std::panic::resume_unwind(Box::new("the vault is on fire")),
            Answer::Hangs => std::future::pending().await,
        }
    }
}

/// Creates a user with all rights and one password.
fn user(server: &RedisServer, name: &str, password: &str) {
    user_with(server, name, password, "~*");
}

/// The ids of a user's connections.
fn connections(server: &RedisServer, user: &str) -> BTreeSet<String> {
    let list = server.cli(&["CLIENT", "LIST"]);
    let lines = list.as_text().lines();
    let mine = lines.filter(|line| line.contains(&format!(" user={user} ")));
    mine.filter_map(|line| Some(line.split(' ').next()?.to_owned()))
        .collect()
}

#[tokio::test]
async fn an_expiring_login_is_renewed_on_the_same_connections() {
    let Some(server) = server() else { return };
    user(&server, "monday", "one");
    user(&server, "tuesday", "two");
    let vault = Vault::new(Answer::Login("monday", "one", Some(ms(1000))));
    let client = Client::connect_with(config(server.url()).credentials(vault.clone()))
        .await
        .unwrap();
    let guard = lock(&client, "orders", LONG).acquire().await.unwrap();
    let waiter = waiting(&lock(&client, "orders", LONG));
    let elsewhere = waiting(&lock_of(server.url(), "orders", LONG).await);
    subscribed(&server, "orders").await;
    let before = connections(&server, "monday");
    assert_eq!(before.len(), 3);

    vault.set(Answer::Login("tuesday", "two", Some(ms(1000))));
    eventually("all connections log in again", || {
        connections(&server, "tuesday") == before
    })
    .await;
    assert_eq!(connections(&server, "monday"), BTreeSet::new());
    // The next renewal has the same user and password.
    vault.called_again().await;
    assert_eq!(
        connections(&server, "tuesday"),
        before,
        "no connection was replaced"
    );
    assert!(guard.is_held());
    guard.release().await.unwrap();
    served(waiter, LONG / 3).await;
    served(elsewhere, LONG / 3).await;
    nothing_left(&server).await;
}

#[tokio::test]
async fn each_connect_calls_the_provider() {
    let Some(server) = server() else { return };
    user(&server, "app", "old");
    let vault = Vault::new(Answer::Login("app", "old", None));
    let client = Client::connect_with(config(server.url()).credentials(vault.clone()))
        .await
        .unwrap();
    let guard = lock(&client, "orders", LONG).acquire().await.unwrap();
    user(&server, "app", "new");
    vault.set(Answer::Login("app", "new", None));
    assert_eq!(server.cli(&["CLIENT", "KILL", "USER", "app"]).as_int(), 3);
    eventually("the client has reconnected", || {
        connections(&server, "app").len() == 3
    })
    .await;
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_failing_provider_is_a_typed_error_and_is_called_again() {
    let Some(server) = server() else { return };
    user(&server, "app", "pw");
    let vault = Vault::new(Answer::Fails);
    let with = || config(server.url()).credentials(vault.clone());
    let error = Client::connect_with(with()).await.unwrap_err();
    let reported = matches!(&error, ConnectError::Credentials { detail, .. } if detail == "the vault is sealed");
    assert!(reported, "{error:?}");
    vault.set(Answer::Hangs);
    let error = Client::connect_with(with().connect_timeout(ms(300)))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::Unreachable { .. }),
        "P9: {error:?}"
    );
    let both = with().password(Secret::new("pw"));
    let error = Client::connect_with(both).await.unwrap_err();
    let setting = matches!(
        error,
        ConnectError::Config(ConfigError::InvalidSetting {
            setting: "password",
            ..
        })
    );
    assert!(setting, "{error:?}");

    vault.set(Answer::Login("app", "pw", Some(ms(500))));
    let client = Client::connect_with(with().connect_timeout(ms(300)))
        .await
        .unwrap();
    let guard = lock(&client, "orders", ms(1500)).acquire().await.unwrap();
    let before = connections(&server, "app");
    // A failing renewal closes no connection.
    for answer in [
        Answer::Fails,
        Answer::Hangs,
        Answer::Panics,
        Answer::Login("app", "wrong", None),
        Answer::Login("nobody", "pw", None),
    ] {
        vault.set(answer);
        vault.called_again().await;
        renewed(&guard).await;
        assert_eq!(connections(&server, "app"), before);
    }
    // Closed connections return as soon as the provider returns a valid login.
    vault.set(Answer::Panics);
    assert_eq!(server.cli(&["CLIENT", "KILL", "USER", "app"]).as_int(), 3);
    vault.called_again().await;
    assert!(!client.is_connected());
    vault.set(Answer::Login("app", "pw", Some(ms(500))));
    eventually("the client has reconnected", || {
        connections(&server, "app").len() == 3
    })
    .await;
    drop(guard);
    nothing_left(&server).await;
}
