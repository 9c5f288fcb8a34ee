//! Tests that bad input is refused before anything is sent, with a typed error that names the value and the rule.

use std::time::Duration;

use stanchion::error::NameRule;
use stanchion::{
    AcquireError, AcquireOptions, Client, ClientConfig, ConfigError, ConnectError, Lease, Lock,
};
use stanchion_tests::World;

suite! {
    bad_names_are_refused_before_anything_is_sent,
    odd_names_work_without_a_cluster,
    a_bad_max_hold_is_refused_before_anything_is_sent,
}

async fn bad_names_are_refused_before_anything_is_sent(world: &World) {
    let client = world.client().await;
    let before = world.scripts_run();
    let error = Lock::new(&client, "").unwrap_err();
    assert_eq!(error.rule, NameRule::Empty);
    let long = "x".repeat(513);
    let error = Lock::new(&client, &long).unwrap_err();
    assert_eq!(error.rule, NameRule::TooLong { bytes: 513 });
    let text = error.to_string();
    assert!(
        text.contains("xxxx…") && text.contains("at most 512 bytes") && text.contains("513"),
        "{text}"
    );
    assert_eq!(world.scripts_run(), before);
}

async fn odd_names_work_without_a_cluster(world: &World) {
    let client = world.client().await;
    for name in [
        &b"a{b"[..],
        b"{}x",
        b"a}b",
        b"{",
        b"\0\r\n",
        b"\xff\xfe",
        "schlo\u{df} \u{1f512}".as_bytes(),
        &[b'x'; 512],
    ] {
        let lock = Lock::new(&client, name).unwrap();
        let guard = lock.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap() }
        });
        stanchion_testkit::eventually("the call waits", || client.waiters() == 1).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
    }
    world.at_rest().await;
}

async fn a_bad_max_hold_is_refused_before_anything_is_sent(world: &World) {
    let client = world.client().await;
    let before = world.scripts_run();
    let options = AcquireOptions::new().max_hold(Duration::ZERO);
    let error = Lock::new(&client, "job")
        .unwrap()
        .acquire_with(options)
        .await
        .unwrap_err();
    assert!(matches!(error, AcquireError::Rejected { .. }), "{error}");
    assert!(error.to_string().contains("max_hold 0s"), "{error}");
    let rest = Lease::MAX.length() - Duration::from_secs(29);
    let options = AcquireOptions::new().rest_after_crash(rest);
    let lock = Lock::new(&client, "job").unwrap();
    let error = lock.acquire_with(options).await.unwrap_err().to_string();
    let rule = "rest_after_crash 29days 23h 59m 31s and the lease, 30s, exceed 30days together";
    assert!(error.ends_with(rule), "{error}");
    assert_eq!(world.scripts_run(), before);
}

#[test]
fn leases_that_are_too_short_or_too_long_are_refused() {
    for bad in [
        Duration::ZERO,
        Duration::from_millis(9),
        Duration::from_secs(365 * 86_400),
    ] {
        let text = Lease::new(bad).unwrap_err().to_string();
        assert!(text.contains("a lease is 10ms to 30days"), "{text}");
    }
}

#[tokio::test]
async fn bad_urls_and_settings_are_refused() {
    let refused = async |config: ClientConfig| match Client::connect_with(config).await.unwrap_err()
    {
        ConnectError::Config(error) => error,
        other => panic!("{other}"),
    };
    assert!(matches!(
        refused(ClientConfig::new("not a url")).await,
        ConfigError::InvalidUrl { .. }
    ));
    assert!(matches!(
        refused(ClientConfig::new("redis://h/eleven")).await,
        ConfigError::InvalidUrl { .. }
    ));
    let unknown = refused(ClientConfig::new("mysql://h")).await;
    assert!(matches!(unknown, ConfigError::UnknownScheme { .. }));
    assert!(
        unknown
            .to_string()
            .contains("redis://, rediss://, redis+sentinel://"),
        "{unknown}"
    );
    let setting = refused(ClientConfig::new("redis://h").response_timeout(Duration::ZERO)).await;
    assert!(
        setting
            .to_string()
            .contains("response_timeout 0s: 10ms to 1h"),
        "{setting}"
    );
    let prefix = refused(ClientConfig::new("redis://h").key_prefix("{x}")).await;
    assert!(prefix.to_string().contains("no braces"), "{prefix}");
}

#[tokio::test]
async fn on_a_cluster_names_that_split_slots_are_refused() {
    if !stanchion_testkit::RedisServer::available() {
        return drop(World::server(
            "on_a_cluster_names_that_split_slots_are_refused",
        ));
    }
    let server = stanchion_testkit::RedisServer::builder()
        .cluster_enabled()
        .start();
    let client = Client::connect(server.url()).await.unwrap();
    for odd in ["a{b", "{}x", "a}b"] {
        let error = Lock::new(&client, odd).unwrap_err();
        assert_eq!(error.rule, NameRule::SplitsSlots);
        assert!(error.to_string().contains(&format!("{odd:?}")), "{error}");
    }
    let guard = Lock::new(&client, "{t}:job")
        .unwrap()
        .acquire()
        .await
        .unwrap();
    guard.release().await.unwrap();
}
