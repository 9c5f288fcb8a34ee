//! The allocations of an uncontended cycle, counted: they grow unnoticed.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking, and the figures are for the page of benchmarks"
)]

use std::alloc::System;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use stanchion::{Client, FairLock, LeasedSemaphore, Lock, RwLock, Semaphore};
use stanchion_testkit::RedisServer;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::sync::Mutex;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The counts are those of the whole process.
static ALONE: Mutex<()> = Mutex::const_new(());

const CYCLES: u32 = 500;

/// SHA-1 of the script `return 1`.
const RETURN_1: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";

/// The allocations of one cycle, after some that fill tables and pools.
async fn allocations(mut cycle: impl AsyncFnMut()) -> f64 {
    for _ in 0..100 {
        cycle().await;
    }
    let region = Region::new(COUNTED);
    for _ in 0..CYCLES {
        cycle().await;
    }
    let counted = region.change();
    let blocks = counted.allocations + counted.reallocations;
    f64::from(u32::try_from(blocks).unwrap()) / f64::from(CYCLES)
}

/// Two calls of a script with some ten arguments, by the redis crate alone, without the boxes of its traits.
async fn bare(connection: &mut MultiplexedConnection) {
    for _ in 0..2 {
        let mut call = redis::Cmd::with_capacity(13, 320);
        call.arg("EVALSHA").arg(RETURN_1).arg(0);
        for _ in 0..10 {
            call.arg("argument");
        }
        connection.send_packed_command(&call).await.unwrap();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_cycle_has_few_allocations_of_its_own() {
    let _alone = ALONE.lock().await;
    let Some(server) = RedisServer::or_skip("a_cycle_has_few_allocations_of_its_own") else {
        return;
    };
    let url = server.url();
    let raw = redis::Client::open(url.as_str()).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connection = raw
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap();
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg("return 1");
    load.exec_async(&mut connection).await.unwrap();
    let bare = allocations(async || bare(&mut connection).await).await;

    let client = Client::connect(url.as_str()).await.unwrap();
    let lock = Lock::new(&client, "lock").unwrap();
    let rwlock = RwLock::new(&client, "rwlock").unwrap();
    let fair = FairLock::new(&client, "fair").unwrap();
    let permits = Semaphore::new(&client, "permits").unwrap();
    permits.init(2).await.unwrap();
    let leased = LeasedSemaphore::new(&client, "leased").unwrap();
    leased.init(2).await.unwrap();
    macro_rules! own {
        ($acquire:expr) => {
            allocations(async || $acquire.await.unwrap().release().await.unwrap()).await - bare
        };
    }
    // Three of them are the labels of metrics, a feature that a build of the whole workspace turns on.
    let counted = [
        ("Lock", own!(lock.acquire()), 8.5),
        ("write side", own!(rwlock.write()), 8.5),
        ("Semaphore", own!(permits.acquire()), 8.5),
        ("FairLock", own!(fair.acquire()), 10.5),
        // Its ids, twice.
        ("LeasedSemaphore", own!(leased.acquire()), 10.5),
        // The key of its hold, twice.
        ("read side", own!(rwlock.read()), 12.5),
    ];
    println!("the redis crate: {bare:.2}; of its own: {counted:?}");
    for (what, own, most) in counted {
        assert!(own < most, "{what}: {own:.2} allocations a cycle");
    }
}

/// Idle queues are kept for a while, a bounded number of them.
#[tokio::test(flavor = "current_thread")]
async fn names_that_nobody_uses_any_more_take_no_memory() {
    let _alone = ALONE.lock().await;
    let Some(server) = RedisServer::or_skip("names_that_nobody_uses_any_more_take_no_memory")
    else {
        return;
    };
    let client = Client::connect(server.url().as_str()).await.unwrap();
    let region = Region::new(COUNTED);
    let mut live = Vec::new();
    for n in 0..3000 {
        let lock = Lock::new(&client, format!("job-{n}")).unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
        if n % 1000 == 999 {
            let counted = region.change();
            live.push(counted.bytes_allocated - counted.bytes_deallocated);
        }
    }
    client.shutdown(Duration::from_secs(5)).await;
    // The client remembers its last releases, 8192 at most, for a server that comes back with older data: some 0.7 KB each. A queue takes
    // some 2.6 KB, so 2000 more that stayed would be seen.
    assert!(live[2] < live[0] + 2000 * 800, "{live:?}");
}
