//! Users, passwords and rights: refused at once, told by type, and survived when they change.

use stanchion::{AcquireError, Client, ConnectError, LostReason, Outage, Rejection, Secret};
use stanchion_testkit::{RedisServer, eventually, machine_clock};

use crate::support::*;

/// Whether the server refused these credentials.
fn unauthenticated(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Rejected {
            rejection: Rejection::Unauthenticated { .. },
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
        assert!(machine_clock() - began < timeout, "it does not try again");
    }
    let lock = lock_of(server.url(), "orders", LONG).await;
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_password_that_changes_under_a_client_is_reported_and_its_hold_lost_in_time() {
    let Some(server) = server() else { return };
    let user = |password: &str| {
        admin(
            &server,
            &[
                "ACL",
                "SETUSER",
                "app",
                "reset",
                "on",
                &format!(">{password}"),
                "~*",
                "&*",
                "+@all",
            ],
        );
    };
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
    eventually("the client knows", || !client.is_connected()).await;
    let error = soon(LONG / 3, lock(&client, "other", LONG).acquire())
        .await
        .unwrap_err();
    let told = match &error {
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
    assert!(told, "P8: {error:?}");
    assert_eq!(loss(&guard).await, LostReason::Expired);
    // The old password is valid again: the client has not given up.
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
    // No right on other keys, and later none to set a TTL.
    admin(
        &server,
        &[
            "ACL",
            "SETUSER",
            "app",
            "reset",
            "on",
            ">pw",
            "~app:*",
            "~stanchion_fence:*",
            "~stanchion_origin:*",
            "&*",
            "+@all",
        ],
    );
    let config = config(server.url())
        .username("app".to_owned())
        .password(Secret::new("pw"));
    let client = Client::connect_with(config).await.unwrap();
    assert!(matches!(
        rejected(lock(&client, "orders", LONG).acquire().await),
        Rejection::NotPermitted { .. }
    ));
    lock(&client, "app:orders", LONG)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    admin(&server, &["ACL", "SETUSER", "app", "-pexpire"]);
    let refused = lock(&client, "app:orders", LONG).acquire().await;
    assert!(matches!(
        rejected(refused),
        Rejection::NotPermitted { .. } | Rejection::Other { .. }
    ));
    assert_eq!(
        leftovers(&server),
        [] as [String; 0],
        "no lock without a TTL"
    );
}

#[tokio::test]
async fn a_server_whose_info_is_forbidden_can_be_used() {
    let Some(server) = server() else { return };
    admin(
        &server,
        &[
            "ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all", "-info",
        ],
    );
    let config = config(server.url())
        .username("app".to_owned())
        .password(Secret::new("pw"));
    let client = Client::connect_with(config).await.unwrap();
    assert_eq!(client.server().version, "unknown");
    lock(&client, "orders", LONG)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
