//! Tests wake-ups without reliable messages (P4): killed subscribers, and a user that may not publish.

use stanchion::{Client, Secret};
use stanchion_testkit::{Matcher, Proxy, RedisServer, eventually};
use stanchion_tests::faults::*;

/// Connects a client of a user with all rights except on channels.
async fn without_channels(server: &RedisServer) -> Client {
    let user = "ACL SETUSER mute reset on >pw ~* +@all resetchannels";
    admin(server, &user.split(' ').collect::<Vec<_>>());
    let config = config(server.url()).username("mute".to_owned());
    Client::connect_with(config.password(Secret::new("pw")))
        .await
        .unwrap()
}

#[tokio::test]
async fn no_wake_is_lost_while_subscribers_are_killed_again_and_again() {
    let Some(server) = server() else { return };
    let lock_a = lock_of(server.url(), "orders", LONG).await;
    let lock_b = lock_of(server.url(), "orders", LONG).await;
    for _ in 0..40 {
        let guard = lock_a.acquire().await.unwrap();
        let waiter = waiting(&lock_b);
        subscribed(&server, "orders").await;
        let killing = async { server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]) };
        let (released, killed) = tokio::join!(guard.release(), killing);
        released.unwrap();
        assert!(killed.as_int() > 0);
        served(waiter, ms(500) + SLACK).await;
    }
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_holder_that_may_not_publish_releases_and_the_waiter_polls() {
    let Some(server) = server() else { return };
    let mute = without_channels(&server).await;
    let lock_b = lock_of(server.url(), "orders", LONG).await;
    let guard = lock(&mute, "orders", LONG).acquire().await.unwrap();
    let again = guard.reenter().await.unwrap();
    let waiter = waiting(&lock_b);
    subscribed(&server, "orders").await;
    again.release().await.unwrap();
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    served(waiter, ms(500) + SLACK).await;
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_channel_is_subscribed_to_again_only_after_its_subscription_has_ended() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let config = config(proxy.url())
        .response_timeout(LONG)
        .poll_interval(LONG)
        .subscription_linger(ms(10));
    let client = Client::connect_with(config).await.unwrap();
    let (orders, other) = (lock(&client, "orders", LONG), lock(&client, "other", LONG));
    let guards = [
        orders.acquire().await.unwrap(),
        other.acquire().await.unwrap(),
    ];
    let sent = |command: &str, name: &str| {
        let of_name = |end| Matcher::command(command).containing(format!("{{{name}}}:{end}"));
        // Without the channel of all processes of the queue.
        match command {
            "EVALSHA" => proxy.count(&Matcher::command(command).containing(format!("{{{name}}}"))),
            _ => proxy.count(&of_name("")) - proxy.count(&of_name("all:stanchion")),
        }
    };
    let waiter = waiting(&orders);
    subscribed(&server, "orders").await;
    // The client handles a message after the confirmation. The reply to the status request comes after the refusal.
    let before = sent("EVALSHA", "orders");
    let own = format!("redisson_lock__channel:{{orders}}:{}", client.id());
    assert_eq!(server.cli(&["PUBLISH", &own, "0"]).as_int(), 1);
    eventually("the waiter retries", || sent("EVALSHA", "orders") > before).await;
    orders.status().await.unwrap();
    // The server unsubscribes, and its confirmation does not reach the client.
    proxy.freeze_replies();
    waiter.abort();
    // The first to end is the channel of all processes.
    let all = Matcher::command("UNSUBSCRIBE").containing("{orders}:all:stanchion");
    eventually("the client unsubscribes", || proxy.count(&all) == 1).await;
    // Channels are subscribed to in the order in which they are wanted.
    let waiters = [waiting(&orders), waiting(&other)];
    eventually("the other is subscribed to", || {
        sent("SUBSCRIBE", "other") == 1
    })
    .await;
    assert_eq!(
        sent("SUBSCRIBE", "orders"),
        1,
        "not before the confirmation"
    );
    proxy.thaw();
    eventually("subscribed again", || sent("SUBSCRIBE", "orders") == 2).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        served(waiter, LONG).await;
    }
}
