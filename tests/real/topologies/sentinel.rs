//! Sentinel: a client finds the master, follows it, and leaves an old master in time.

use stanchion::error::ServerRejection;
use stanchion::{Client, ConnectError, Secret};
use stanchion_testkit::{RedisServer, SentinelSet, eventually};
use stanchion_tests::{assert_is, sentinels};

use super::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_loses_the_acquire_is_reported_in_time_and_tokens_grow() {
    let Some(mut set) = sentinels() else { return };
    let (a, b) = (connect(set.url()).await, connect(set.url()).await);
    let first = lock(&a, "orders", LONG).acquire().await.unwrap();
    let token_first = token(&first);
    first.release().await.unwrap();
    apart(|| set.settle());

    apart(|| set.hold_replication());
    let lost = lock(&a, "orders", ms(6000)).acquire().await.unwrap();
    assert!(token(&lost) > token_first);
    set.kill(0);
    set.resume_replicas(0);
    let other = waiting(&lock(&b, "orders", LONG));
    lost_in_time(&lost, &a).await;
    let guard = granted(other).await;
    assert!(
        token(&guard) > token(&lost),
        "P2: also when the counter is lost"
    );
    drop(lost);
    assert!(guard.is_held(), "the lost guard released nothing");
    guard.release().await.unwrap();
    let new = apart(|| set.master());
    eventually("nothing is left", || {
        leftovers(set.server(new).keys()).is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_leaves_a_replaced_master_that_still_has_its_role() {
    let Some(set) = sentinels() else { return };
    // The user name distinguishes the client's connections from others.
    for number in 0..3 {
        let app = ["ACL", "SETUSER", "app", "on", ">pw", "+@all", "~*", "&*"];
        assert!(!set.server(number).cli(&app).is_error());
    }
    let login = |url: String| {
        config(url)
            .username("app".to_owned())
            .password(Secret::new("pw"))
    };
    let client = Client::connect_with(login(set.url())).await.unwrap();
    let guard = lock(&client, "orders", LONG).acquire().await.unwrap();
    let connections = |server: &RedisServer| {
        let list = server.cli(&["CLIENT", "LIST"]);
        list.as_text().matches("user=app").count()
    };
    assert_eq!(connections(set.server(0)), 3);

    set.hide_from_sentinels(0);
    let new = apart(|| set.another_master(0));
    eventually("the client leaves the old master", || {
        connections(set.server(0)) == 0 && connections(set.server(new)) == 3
    })
    .await;
    assert!(
        set.server(0).cli(&["ROLE"]).as_array()[0].as_text() == "master",
        "the old master still has the role of a master"
    );
    let fresh = lock(&client, "fresh", LONG).acquire().await.unwrap();
    assert!(exists(set.server(new), "fresh"));
    assert!(!exists(set.server(0), "fresh"));
    fresh.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_sentinel_does_not_lead_a_client_away_from_the_master() {
    let Some(mut set) = sentinels() else { return };
    let client = connect(set.url()).await;
    let first = lock(&client, "first", LONG).acquire().await.unwrap();
    // One sentinel does not see the failover. Neither does the old master, which remains a master.
    set.kill_sentinel(0);
    set.hide_from_sentinels(0);
    let new = apart(|| set.another_master(0));
    eventually("the client uses the new master", || {
        sessions(set.server(new)).len() == 3
    })
    .await;
    let before = sessions(set.server(new));

    // From here on only the stale sentinel is reachable.
    set.kill_sentinel(1);
    set.kill_sentinel(2);
    set.restart_sentinel(0);
    let stale = set.sentinel(0);
    eventually("the client is subscribed to the stale sentinel", || {
        stale.cli(&["CLIENT", "LIST"]).as_text().contains(" sub=2 ")
    })
    .await;
    for _ in 0..10 {
        tokio::time::sleep(ms(50)).await;
        assert_eq!(sessions(set.server(new)), before, "P1: a live link is kept");
        assert_eq!(sessions(set.server(0)), [""; 0]);
    }
    // Also a new connection goes to the master that the client knows.
    for session in &before {
        let _ = set.server(new).cli(&["CLIENT", "KILL", "ID", session]);
    }
    eventually("the client has reconnected", || {
        let now = sessions(set.server(new));
        now.len() == 3 && now != before
    })
    .await;
    let fresh = lock(&client, "fresh", LONG).acquire().await.unwrap();
    assert!(exists(set.server(new), "fresh"));
    assert!(!exists(set.server(0), "fresh"));
    fresh.release().await.unwrap();
    drop(first);
}

/// The ids of the connections of clients of the library.
fn sessions(server: &RedisServer) -> Vec<String> {
    let list = server.cli(&["CLIENT", "LIST"]);
    let ours = list
        .as_text()
        .lines()
        .filter(|it| it.contains("name=stanchion"));
    let id = |line: &str| {
        line.split(' ')
            .next()?
            .strip_prefix("id=")
            .map(str::to_owned)
    };
    let mut ids: Vec<String> = ours.filter_map(id).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn unusable_sentinels_give_distinct_errors_in_time() {
    let Some(mut set) = sentinels() else { return };
    // A port without a listener, and one that never answers.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let unreachable = format!(
        "redis+sentinel://127.0.0.1:1,{}/x",
        mute.local_addr().unwrap()
    );
    let error = refused(config(unreachable)).await;
    assert_is!(error, ConnectError::Unreachable { .. });

    let unknown = set.url().replace(SentinelSet::SERVICE, "nobody");
    let error = refused(config(unknown)).await;
    assert!(
        matches!(&error, ConnectError::Rejected { rejection: ServerRejection::Other { detail }, .. } if detail.contains("\"nobody\"")),
        "{error:?}"
    );

    // A Redis server is no sentinel.
    let server = format!("redis+sentinel://{}/x", set.server(0).addr());
    let error = refused(config(server)).await;
    assert!(matches!(error, ConnectError::Rejected { .. }), "{error:?}");

    // A dead sentinel and one that never answers do not matter while another answers.
    set.kill_sentinel(0);
    let url = set.url().replace(
        "redis+sentinel://",
        &format!("redis+sentinel://{},", mute.local_addr().unwrap()),
    );
    let client = connect(url).await;
    lock(&client, "orders", LONG)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();

    for number in 1..3 {
        let password = ["ACL", "SETUSER", "default", "resetpass", ">secret"];
        assert!(!set.sentinel(number).cli(&password).is_error());
    }
    let error = refused(config(set.url())).await;
    assert!(
        matches!(
            error,
            ConnectError::Rejected {
                rejection: ServerRejection::Unauthenticated { .. },
                ..
            }
        ),
        "{error:?}"
    );
    let known = config(set.url()).sentinel_password(Secret::new("secret"));
    let client = Client::connect_with(known).await.unwrap();
    lock(&client, "orders", LONG)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_client_of_a_sentinel_set_connects_on_first_use() {
    let Some(set) = sentinels() else { return };
    let client = Client::connect_lazy(set.url()).await.unwrap();
    let guard = lock(&client, "orders", LONG).acquire().await.unwrap();
    assert!(exists(set.server(0), "orders"));
    guard.release().await.unwrap();
}
