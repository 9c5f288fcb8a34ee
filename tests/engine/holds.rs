//! Properties of the whole life of a hold: re-entry, detach and adopt, `max_hold`. In virtual time.

use std::time::Duration;

use stanchion::{
    AcquireOptions, Client, FairLock, Lease, LeasedSemaphore, Lock, RwLock, Semaphore,
};
use stanchion_tests::World;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn lease(millis: u64) -> Lease {
    Lease::new(ms(millis)).unwrap()
}

/// Waits for the end of `next` for a while. P1: the hold before it has ended by then.
async fn never_two<T>(next: &JoinHandle<T>, is_held: impl Fn() -> bool, kind: &str) {
    let until = Instant::now() + ms(20_000);
    while Instant::now() < until {
        assert!(!(next.is_finished() && is_held()), "{kind}: two hold");
        sleep(ms(5)).await;
    }
}

/// P1: the server's clock is stepped forward between the last reading and the message that grants. The client cannot know the moment of
/// the decision, but that moment is before the arrival of the message.
#[tokio::test(start_paused = true)]
async fn a_grant_by_message_is_not_dated_later_than_its_receipt() {
    macro_rules! check {
        ($kind:literal, $type:ident, $world:ident, $acquire:ident($($permits:literal)?)) => {{
            let clients = [$world.client().await, $world.client().await, $world.client().await];
            let options = || AcquireOptions::new().lease(lease(60_000));
            let acquire = |client: &Client| {
                let it = $type::new(client, $kind).unwrap();
                async move { it.$acquire($($permits,)? options()).await.unwrap() }
            };
            let first = acquire(&clients[0]).await;
            let second = tokio::spawn(acquire(&clients[1]));
            sleep(ms(1500)).await;
            let third = tokio::spawn(acquire(&clients[2]));
            sleep(ms(1500)).await;
            $world.as_engine().faults().step_clock(5_000);
            first.release().await.unwrap();
            let second = second.await.unwrap();
            never_two(&third, || second.is_held(), $kind).await;
            second.release().await.unwrap();
            third.await.unwrap().release().await.unwrap();
        }};
    }
    let world = World::engine();
    check!("lock", Lock, world, acquire_with());
    check!("fair", FairLock, world, acquire_with());
    let setter = world.client().await;
    let permits = LeasedSemaphore::new(&setter, "permits").unwrap();
    permits.init(1).await.unwrap();
    check!("permits", LeasedSemaphore, world, acquire_with(1));
}

/// A bound that does not exist is not shown as a number.
#[tokio::test(start_paused = true)]
async fn what_has_no_bound_is_not_shown_as_a_number() {
    let world = World::engine();
    let semaphore = Semaphore::new(&world.client().await, "permits").unwrap();
    semaphore.init(1).await.unwrap();
    world
        .as_engine()
        .faults()
        .lose_replies_silently("EVALSHA", 100);
    world
        .as_engine()
        .faults()
        .lose_replies_silently("EVAL", 100);
    let error = semaphore.acquire_timeout(ms(3_000)).await.unwrap_err();
    let text = format!("{error:?} {error}");
    assert!(text.contains("free_by"), "{text}");
    assert!(!text.contains("18446744073709551615"), "{text}");
    assert!(
        error
            .to_string()
            .contains("as soon as the server answers again"),
        "{error}"
    );
}

/// P6: a re-entry is sent again, and its first request arrives after the next re-entry. The count on the server, which Redisson reads, is
/// not lowered by it.
#[tokio::test(start_paused = true)]
async fn a_late_re_entry_does_not_lower_the_count() {
    let world = World::engine();
    let client = world.client().await;
    let counts = |key: &str| {
        let script = "return table.concat(redis.call('HVALS', KEYS[1]), ' ')";
        world
            .admin(&["EVAL", script, "1", key])
            .replace("read ", "")
            .replace("write ", "")
    };
    macro_rules! check {
        ($key:literal, $guard:expr) => {{
            let guard = $guard.await.unwrap();
            // Now the server knows the script.
            guard.reenter().await.unwrap().release().await.unwrap();
            world.as_engine().faults().hold_requests("EVALSHA", 1);
            let second = guard.reenter().await.unwrap();
            let third = guard.reenter().await.unwrap();
            assert_eq!(counts($key), "3", "{}", $key);
            world.as_engine().faults().deliver();
            sleep(ms(10)).await;
            assert_eq!(counts($key), "3", "{}", $key);
            for guard in [third, second, guard] {
                guard.release().await.unwrap();
            }
        }};
    }
    check!("lock", Lock::new(&client, "lock").unwrap().acquire());
    check!("fair", FairLock::new(&client, "fair").unwrap().acquire());
    check!("read", RwLock::new(&client, "read").unwrap().read());
    check!("write", RwLock::new(&client, "write").unwrap().write());
    world.at_rest().await;
}
