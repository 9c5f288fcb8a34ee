//! Tests that bad input is refused before anything is sent, with a typed error that names the value and the rule (P8).

use std::time::Duration;

use stanchion::error::NameRule;
use stanchion::{
    AcquireError, AcquireOptions, Client, ClientConfig, ConfigError, ConnectError, Lease, Lock,
};
use stanchion_tests::{World, lease, ms, secs};

#[tokio::test(start_paused = true)]
async fn bad_names_and_options_are_refused_before_anything_is_sent() {
    let (world, client) = World::engine().with_client().await;
    let before = world.as_engine().stats().commands;
    let error = Lock::new(&client, "").unwrap_err();
    assert_eq!(error.rule, NameRule::Empty);
    let error = Lock::new(&client, "x".repeat(513)).unwrap_err();
    assert_eq!(error.rule, NameRule::TooLong { bytes: 513 });
    let text = error.to_string();
    assert!(
        text.contains("xxxx…") && text.contains("at most 512 bytes") && text.contains("513"),
        "{text}"
    );
    let lock = Lock::new(&client, "job").unwrap();
    let eight = lease(secs(8));
    let options = AcquireOptions::new;
    for (options, rule) in [
        (options().max_hold(Duration::ZERO), "max_hold 0s"),
        // It would have no effect.
        (options().first_lease(eight), "first_lease 8s"),
        (
            options().rest_after_crash(Lease::MAX.length() - secs(29)),
            "rest_after_crash 29days 23h 59m 31s and the lease, 30s, exceed 30days together",
        ),
    ] {
        let error = lock.acquire_with(options).await.unwrap_err();
        assert!(matches!(error, AcquireError::Rejected { .. }), "{error}");
        assert!(error.to_string().contains(rule), "{error}");
    }
    assert_eq!(world.as_engine().stats().commands, before);
    let options = options().first_lease(eight).lease(eight);
    lock.acquire_with(options).await.unwrap().leave();
}

#[test]
fn leases_that_are_too_short_or_too_long_are_refused() {
    for bad in [Duration::ZERO, ms(9), secs(31_536_000)] {
        let text = Lease::new(bad).unwrap_err().to_string();
        assert!(text.contains("a lease is 10ms to 30days"), "{text}");
    }
}

#[tokio::test]
async fn bad_urls_and_settings_are_refused() {
    let url = |url: &str| ClientConfig::new(url);
    for (config, rule) in [
        (url("not a url"), ""),
        (url("redis://h/eleven"), ""),
        (url("mysql://h"), "redis://, rediss://, redis+sentinel://"),
        (
            url("redis://h").response_timeout(Duration::ZERO),
            "response_timeout 0s: 10ms to 1h",
        ),
        (url("redis://h").key_prefix("{x}"), "no braces"),
    ] {
        let is_url = rule.is_empty();
        match Client::connect_with(config).await.unwrap_err() {
            ConnectError::Config(ConfigError::InvalidUrl { .. }) if is_url => {}
            ConnectError::Config(error) if !is_url => {
                assert!(error.to_string().contains(rule), "{error}");
            }
            other => panic!("{other}"),
        }
    }
}
