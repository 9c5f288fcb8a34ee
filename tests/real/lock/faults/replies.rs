//! Tests lost replies (P6): the client runs the script again, and both runs together take effect once.

use stanchion::Client;
use stanchion_testkit::{Proxy, RedisServer, Then, eventually};
use stanchion_tests::faults::*;

const HOW: [Then; 2] = [Then::Reset, Then::Freeze];

struct World {
    server: RedisServer,
    proxy: Proxy,
    scripts: Scripts,
    client: Client,
}

async fn world() -> Option<World> {
    let server = server()?;
    let scripts = Scripts::load(&server);
    let proxy = Proxy::start(server.addr());
    let client = connect(proxy.url()).await;
    Some(World {
        server,
        proxy,
        scripts,
        client,
    })
}

impl World {
    fn lose_reply(&self, script: &str, then: Then) {
        self.proxy
            .swallow_next_reply(run_of(script, "orders"), then);
    }

    /// Asserts that the reply was lost, and waits until retries and clean-ups have ended.
    async fn settled(&self) {
        assert_eq!(self.proxy.swallowed(), 1, "the fault happened");
        self.proxy.thaw();
        quiet(&self.server).await;
    }
}

#[tokio::test]
async fn an_acquire_whose_reply_is_lost_gives_one_working_hold() {
    for then in HOW {
        let Some(world) = world().await else { return };
        world.lose_reply(&world.scripts.acquire, then);
        let guard = soon(LONG / 3, lock(&world.client, "orders", LONG).acquire())
            .await
            .unwrap();
        world.settled().await;
        assert_eq!(
            world.proxy.count(&run_of(&world.scripts.acquire, "orders")),
            2
        );
        assert_eq!(hold_count(&world.server, "orders"), 1, "{then:?}");
        assert!(!is_free(&world.server, "orders").await);
        let again = guard.reenter().await.unwrap();
        guard.renew().await.unwrap();
        again.release().await.unwrap();
        guard.release().await.unwrap();
        nothing_left(&world.server).await;
    }
}

#[tokio::test]
async fn a_try_whose_reply_is_lost_gives_one_working_hold() {
    for then in HOW {
        let Some(world) = world().await else { return };
        world.lose_reply(&world.scripts.acquire, then);
        let guard = lock(&world.client, "orders", LONG)
            .try_acquire()
            .await
            .unwrap()
            .unwrap();
        world.settled().await;
        assert_eq!(hold_count(&world.server, "orders"), 1, "{then:?}");
        guard.release().await.unwrap();
        nothing_left(&world.server).await;
    }
}

#[tokio::test]
async fn an_acquire_that_is_dropped_after_its_reply_was_lost_leaves_nothing() {
    for then in HOW {
        let Some(world) = world().await else { return };
        world.lose_reply(&world.scripts.acquire, then);
        let waiter = waiting(&lock(&world.client, "orders", LONG));
        world
            .proxy
            .wait_for("the reply is lost", |p| p.swallowed() == 1)
            .await;
        waiter.abort();
        nothing_left(&world.server).await;
        world.settled().await;
        nothing_left(&world.server).await;
        assert_eq!(world.client.waiters(), 0);
    }
}

#[tokio::test]
async fn a_reentry_whose_reply_is_lost_counts_once() {
    for then in HOW {
        let Some(world) = world().await else { return };
        let guard = lock(&world.client, "orders", LONG).acquire().await.unwrap();
        world.lose_reply(&world.scripts.reenter, then);
        let again = guard.reenter().await.unwrap();
        world.settled().await;
        assert_eq!(hold_count(&world.server, "orders"), 2, "{then:?}");
        guard.release().await.unwrap();
        assert_eq!(hold_count(&world.server, "orders"), 1);
        again.release().await.unwrap();
        nothing_left(&world.server).await;
    }
}

#[tokio::test]
async fn a_partial_release_whose_reply_is_lost_counts_once() {
    for then in HOW {
        let Some(world) = world().await else { return };
        let guard = lock(&world.client, "orders", LONG).acquire().await.unwrap();
        let (second, third) = (
            guard.reenter().await.unwrap(),
            guard.reenter().await.unwrap(),
        );
        world.lose_reply(&world.scripts.exit, then);
        third.release().await.unwrap();
        world.settled().await;
        assert_eq!(hold_count(&world.server, "orders"), 2, "{then:?}");
        second.release().await.unwrap();
        guard.release().await.unwrap();
        nothing_left(&world.server).await;
    }
}

#[tokio::test]
async fn a_renewal_whose_reply_is_lost_is_done_again() {
    for then in HOW {
        let Some(world) = world().await else { return };
        let guard = lock(&world.client, "orders", LONG).acquire().await.unwrap();
        let before = guard.valid_until();
        world.lose_reply(&world.scripts.renew, then);
        guard.renew().await.unwrap();
        world.settled().await;
        assert!(guard.valid_until() > before);
        assert_eq!(hold_count(&world.server, "orders"), 1);
        guard.release().await.unwrap();
        nothing_left(&world.server).await;
    }
}

#[tokio::test]
async fn a_watchdogs_renewal_whose_reply_is_lost_is_done_again() {
    for then in HOW {
        let Some(world) = world().await else { return };
        let guard = lock(&world.client, "orders", ms(2400))
            .acquire()
            .await
            .unwrap();
        world.lose_reply(&world.scripts.renew, then);
        world
            .proxy
            .wait_for("the watchdog's reply is lost", |p| p.swallowed() == 1)
            .await;
        renewed(&guard).await;
        guard.release().await.unwrap();
        nothing_left(&world.server).await;
    }
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_succeeds_and_leaves_nothing() {
    for then in HOW {
        let Some(world) = world().await else { return };
        let guard = lock(&world.client, "orders", LONG).acquire().await.unwrap();
        world.lose_reply(&world.scripts.release, then);
        guard.release().await.unwrap();
        world.settled().await;
        assert_eq!(leftovers(&world.server), [] as [String; 0], "{then:?}");
        assert!(is_free(&world.server, "orders").await);
    }
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_does_not_free_the_next_holder() {
    for then in HOW {
        let Some(world) = world().await else { return };
        let guard = lock(&world.client, "orders", LONG).acquire().await.unwrap();
        let waiter = waiting(&lock_of(world.server.url(), "orders", LONG).await);
        subscribed(&world.server, "orders").await;
        world.lose_reply(&world.scripts.release, then);
        guard.release().await.unwrap();
        let next = granted(waiter, LONG / 3).await;
        world.settled().await;
        assert_eq!(hold_count(&world.server, "orders"), 1, "{then:?}: P1");
        next.release().await.unwrap();
        nothing_left(&world.server).await;
    }
}

#[tokio::test]
async fn a_dropped_guard_whose_release_reply_is_lost_is_released() {
    for then in HOW {
        let Some(world) = world().await else { return };
        let guard = lock(&world.client, "orders", LONG).acquire().await.unwrap();
        world.lose_reply(&world.scripts.release, then);
        drop(guard);
        world
            .proxy
            .wait_for("the reply is lost", |p| p.swallowed() == 1)
            .await;
        nothing_left(&world.server).await;
        world.settled().await;
        nothing_left(&world.server).await;
    }
}

#[tokio::test]
async fn a_hand_off_whose_reply_is_lost_gives_exactly_one_successor() {
    for then in HOW {
        let Some(world) = world().await else { return };
        let lock = lock(&world.client, "orders", LONG);
        let guard = lock.acquire().await.unwrap();
        let (second, third) = (waiting(&lock), waiting(&lock));
        eventually("both calls wait", || world.client.waiters() == 2).await;
        // The first waiter retries after its subscription is confirmed. A waiter with a request in flight gets no hand-off.
        subscribed(&world.server, "orders").await;
        quiet(&world.server).await;
        let first = token(&guard);
        world.lose_reply(&world.scripts.hand_off, then);
        guard.release().await.unwrap();
        let second = granted(second, LONG / 3).await;
        world.settled().await;
        assert!(!third.is_finished(), "P1");
        assert!(second.is_held() && token(&second) > first, "P2");
        assert_eq!(hold_count(&world.server, "orders"), 1, "{then:?}");
        second.release().await.unwrap();
        served(third, LONG / 3).await;
        quiet(&world.server).await;
        nothing_left(&world.server).await;
    }
}
