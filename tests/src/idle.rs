//! Helpers for the tests of semaphores and latches with idle expiry.

use crate::permits::{IDLE, Kind, NAME, Seat, Seats};
use crate::{World, ms};
use stanchion::{AcquireError, Client, IdleExpiry};
use stanchion_testkit::eventually;
use tokio::task::JoinHandle;

/// An idle time in milliseconds, longer than any test on a real server takes.
pub const LONG: i64 = 1_000_000;
/// The default lease, in milliseconds.
pub const LEASE: i64 = 30_000;
/// The TTL in milliseconds is longer than this while a plain permit is held.
pub const YEARS: i64 = 9 * 365 * 86_400_000;

pub fn after(millis: i64) -> IdleExpiry {
    IdleExpiry::after(ms(millis.cast_unsigned())).unwrap()
}

/// A semaphore with three permits that expires after `idle` milliseconds.
pub fn ephemeral(kind: Kind, client: &Client, idle: i64) -> Seats {
    kind.on(client).ephemeral(3, after(idle))
}

pub fn waiting(seats: &Seats, n: u32) -> JoinHandle<Result<Seat, AcquireError>> {
    let seats = seats.clone();
    tokio::spawn(async move { seats.acquire(n).await })
}

pub fn ttl(world: &World, key: &str) -> i64 {
    world.admin(&["PTTL", key]).parse().unwrap()
}

/// Asserts that the TTLs of the semaphore and of its idle key are `ms`, or up to 5 s less.
#[track_caller]
pub fn ends_in(world: &World, ms: i64) {
    for key in [NAME, IDLE] {
        let left = ttl(world, key);
        assert!(left <= ms && left > ms - 5000, "{key}: {left}, not {ms}");
    }
}

/// Asserts that the semaphore has no TTL and no idle key.
#[track_caller]
pub fn stays(world: &World) {
    assert_eq!((ttl(world, NAME), ttl(world, IDLE)), (-1, -2));
}

pub fn clear(world: &World) {
    let _ = world.admin(&["FLUSHALL"]);
}

/// Waits until only keys are left that expire within seconds.
pub async fn is_gone(world: &World) {
    eventually("only marks of operations are left", || {
        let brief = [
            "stanchion_once:",
            "stanchion_semaphore_wake:",
            "stanchion_leased_wake:",
        ];
        world
            .keys()
            .iter()
            .all(|key| brief.iter().any(|it| key.starts_with(it)))
    })
    .await;
}

/// The latch `job`.
pub mod latch {
    use std::time::Duration;

    use stanchion::{AcquireError, Client, CountDownLatch, IdleExpiry};
    use tokio::task::JoinHandle;

    use super::ttl;
    use crate::{World, secs};

    /// Longer than any test on a real server takes.
    pub const LONG: Duration = secs(1000);

    pub fn plain(client: &Client) -> CountDownLatch {
        CountDownLatch::new(client, "job").unwrap()
    }

    pub fn ephemeral(client: &Client, idle: Duration) -> CountDownLatch {
        plain(client).ephemeral(IdleExpiry::after(idle).unwrap())
    }

    pub fn waiting(client: &Client) -> JoinHandle<Result<(), AcquireError>> {
        let latch = plain(client);
        tokio::spawn(async move { latch.wait().await })
    }

    /// Asserts that the TTL of a key is `ms`, or up to 5 s less.
    #[track_caller]
    pub fn ends_in(world: &World, key: &str, ms: i64) {
        let left = ttl(world, key);
        assert!(left <= ms && left > ms - 5000, "{key}: {left}, not {ms}");
    }

    /// Shortens the TTL of the latch, as if time had passed.
    pub fn age(world: &World, to: i64) {
        assert_eq!(world.admin(&["PEXPIRE", "job", &to.to_string()]), "1");
    }
}
