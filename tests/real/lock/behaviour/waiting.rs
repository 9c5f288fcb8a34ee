//! Tests wake-ups of the lock (P4) and the local queue: order, cost, and fairness between processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stanchion::Lock;
use stanchion_tests::World;

suite! {
    waiters_of_one_process_are_served_in_order,
    a_hand_off_costs_one_command,
    waiters_in_other_processes_are_not_starved,
    force_release_wakes_a_waiter,
    ten_thousand_waiters_share_one_subscription,
}

const CHANNEL: &str = "redisson_lock__channel:{job}";

async fn waiters_of_one_process_are_served_in_order(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let held = lock.acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..40 {
        let (lock, order) = (lock.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push(i);
            guard.release().await.unwrap();
        }));
        stanchion_testkit::eventually("the call waits", || client.waiters() == i + 1).await;
    }
    held.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
}

async fn a_hand_off_costs_one_command(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let mut guard = lock.acquire().await.unwrap();
    let waiting = Lock::new(&client, "job").unwrap();
    let mut before = 0;
    for n in 0..17 {
        let before_wait = world.scripts_run();
        let next = tokio::spawn({
            let lock = waiting.clone();
            async move { lock.acquire().await.unwrap() }
        });
        stanchion_testkit::eventually("the call waits", || client.waiters() == 1).await;
        match n {
            // The waiter retries once after its subscription is confirmed.
            0 => {
                stanchion_testkit::eventually("the waiter retries", || {
                    world.scripts_run() > before_wait
                })
                .await;
            }
            // By now the client has removed its queue entry, which hand-offs do not need, and the hand-off script is loaded.
            2 => {
                world.quiet().await;
                before = world.scripts_run();
            }
            _ => {}
        }
        guard.release().await.unwrap();
        guard = next.await.unwrap();
    }
    assert_eq!(world.scripts_run() - before, 15);
}

async fn waiters_in_other_processes_are_not_starved(world: &World) {
    let (busy, other) = (world.client().await, world.client().await);
    let lock = Lock::new(&busy, "job").unwrap();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let contenders: Vec<_> = (0..4)
        .map(|_| {
            let (lock, done) = (lock.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let guard = lock.acquire().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    stanchion_testkit::eventually("tasks of the process wait", || busy.waiters() > 0).await;
    for _ in 0..5 {
        // The timeout ends a failing test: a starved waiter would wait indefinitely.
        Lock::new(&other, "job")
            .unwrap()
            .acquire_timeout(Duration::from_secs(20))
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    for contender in contenders {
        contender.await.unwrap();
    }
}

async fn force_release_wakes_a_waiter(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = Lock::new(&ours, "job").unwrap();
    let _held = lock.acquire().await.unwrap();
    for waiter in [&theirs, &ours] {
        let waiting = tokio::spawn({
            let lock = Lock::new(waiter, "job").unwrap();
            async move { lock.acquire().await.unwrap() }
        });
        world.subscribed(CHANNEL).await;
        stanchion_testkit::eventually("the call waits", || waiter.waiters() == 1).await;
        assert!(lock.danger().force_release().await.unwrap());
        // The guard is kept, because the next round releases it by force.
        std::mem::forget(waiting.await.unwrap());
        world.quiet().await;
    }
}

async fn ten_thousand_waiters_share_one_subscription(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let held = lock.acquire().await.unwrap();
    let tasks: Vec<_> = (0..10_000)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    stanchion_testkit::eventually("all calls wait", || client.waiters() == 10_000).await;
    world.subscribed(CHANNEL).await;
    let before = world.scripts_run();
    held.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let scripts = world.scripts_run() - before;
    assert!(scripts < 12_000, "{scripts} scripts for 10 000 grants");
    assert_eq!(world.subscribers(CHANNEL), 1);
    world.at_rest().await;
}
