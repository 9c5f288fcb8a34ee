//! Tests P3 at every await point: a dropped operation leaves no key, waiter or task, and the other waiters still get the lock.

use std::time::Duration;

use stanchion::{AcquireOptions, Client, Lock};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::World;

/// Asserts that the client has left no key and no waiter, and that it has no more tasks than at rest.
async fn assert_no_leak(world: &World, client: &Client, tasks_at_rest: usize, polls: usize) {
    world.at_rest().await;
    assert_eq!(client.waiters(), 0, "after {polls} polls");
    eventually(&format!("no task is left after {polls} polls"), || {
        alive_tasks() <= tasks_at_rest
    })
    .await;
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

async fn settled_tasks() -> usize {
    // Time for handshakes and first subscriptions to finish.
    tokio::time::sleep(Duration::from_secs(10)).await;
    alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn an_uncontended_acquire_dropped_anywhere_leaves_nothing() {
    let world = World::slow_engine();
    let (client, other) = (world.client().await, world.client().await);
    let lock = Lock::new(&client, "job").unwrap();
    let tasks = settled_tasks().await;
    let polls = for_each_await_point(async |polls| {
        let done = cancel_after(lock.acquire(), polls).await.is_some();
        assert_no_leak(&world, &client, tasks, polls).await;
        // The next client acquires without waiting for a lease to end.
        let started = tokio::time::Instant::now();
        Lock::new(&other, "job")
            .unwrap()
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "after {polls} polls"
        );
        done
    })
    .await;
    assert!(polls > 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_dropped_anywhere_passes_its_wake_on() {
    for timeout in [None, Some(Duration::from_secs(60))] {
        let world = World::slow_engine();
        let (client, other) = (world.client().await, world.client().await);
        let lock = Lock::new(&client, "job").unwrap();
        let polls = for_each_await_point(async |polls| {
            let held = Lock::new(&other, "job").unwrap().acquire().await.unwrap();
            // The lock is released while the doomed waiter is at any point of its wait.
            let releasing = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(40)).await;
                held.release().await.unwrap();
            });
            let options =
                timeout.map_or_else(AcquireOptions::new, |t| AcquireOptions::new().timeout(t));
            let doomed = tokio::spawn({
                let lock = lock.clone();
                async move {
                    cancel_after(lock.acquire_with(options), polls)
                        .await
                        .is_some()
                }
            });
            tokio::task::yield_now().await;
            let started = tokio::time::Instant::now();
            let survivor = lock.acquire().await.unwrap();
            assert!(
                started.elapsed() < Duration::from_secs(1),
                "the survivor missed its wake-up after {polls} polls"
            );
            survivor.release().await.unwrap();
            releasing.await.unwrap();
            let covered = doomed.await.unwrap();
            world.at_rest().await;
            assert_eq!(client.waiters(), 0, "after {polls} polls");
            covered
        })
        .await;
        assert!(polls > 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_during_a_hand_off_passes_the_lock_on() {
    let world = World::slow_engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    // The hand-off takes 5 ms. The first waiter is dropped at every millisecond around it.
    for after in 0..12 {
        let held = lock.acquire().await.unwrap();
        let doomed = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        eventually("it waits", || client.waiters() == 1).await;
        let survivor = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap().release().await.unwrap() }
        });
        eventually("both wait", || client.waiters() == 2).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let releasing = tokio::spawn(held.release());
        tokio::time::sleep(Duration::from_millis(after)).await;
        doomed.abort();
        // Drops the guard, too, if the waiter has it already.
        drop(doomed);
        let started = tokio::time::Instant::now();
        survivor.await.unwrap();
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "dropped after {after} ms"
        );
        releasing.await.unwrap().unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_re_entry_dropped_anywhere_does_not_change_the_count() {
    let world = World::slow_engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    for_each_await_point(async |polls| {
        let done = cancel_after(guard.reenter(), polls).await;
        let finished = done.is_some();
        drop(done);
        // The clean-up runs in the background, as an operation of the same owner.
        stanchion_testkit::eventually_async("the count is 1 again", async || {
            lock.status().await.unwrap().holder.unwrap().hold_count == 1
        })
        .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(
            lock.status().await.unwrap().holder.unwrap().hold_count,
            1,
            "after {polls} polls"
        );
        assert!(guard.is_held());
        finished
    })
    .await;
    guard.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_dropped_anywhere_changes_nothing() {
    let world = World::slow_engine();
    let client = world.client().await;
    let tasks = settled_tasks().await;
    for_each_await_point(async |polls| {
        let guard = Lock::new(&client, "job").unwrap().acquire().await.unwrap();
        let done = cancel_after(guard.renew(), polls).await.is_some();
        assert!(guard.is_held());
        guard.release().await.unwrap();
        assert_no_leak(&world, &client, tasks, polls).await;
        done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_anywhere_still_frees_the_lock() {
    for waiters in [0, 1] {
        let world = World::slow_engine();
        let client = world.client().await;
        let lock = Lock::new(&client, "job").unwrap();
        for_each_await_point(async |polls| {
            let guard = lock.acquire().await.unwrap();
            let waiting: Vec<_> = (0..waiters)
                .map(|_| {
                    let lock = lock.clone();
                    tokio::spawn(
                        async move { lock.acquire().await.unwrap().release().await.unwrap() },
                    )
                })
                .collect();
            eventually("they wait", || client.waiters() == waiters).await;
            let covered = cancel_after(guard.release(), polls).await.is_some();
            let started = tokio::time::Instant::now();
            for waiter in waiting {
                waiter.await.unwrap();
            }
            world.at_rest().await;
            assert!(
                started.elapsed() < Duration::from_secs(1),
                "after {polls} polls"
            );
            covered
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_dropped_anywhere_leaves_nothing() {
    let world = World::slow_engine();
    let client = world.client().await;
    let tasks = settled_tasks().await;
    let lock = Lock::new(&client, "job").unwrap();
    for_each_await_point(async |polls| {
        let done = cancel_after(lock.try_acquire(), polls).await.is_some();
        assert_no_leak(&world, &client, tasks, polls).await;
        done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panicking_holder_releases_the_lock() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let task = tokio::spawn({
        let lock = lock.clone();
        async move {
            let _guard = lock.acquire().await.unwrap();
            panic!("on purpose");
        }
    });
    assert!(task.await.unwrap_err().is_panic());
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn random_cancellations_starve_no_waiter() {
    let world = World::engine();
    world
        .as_engine()
        .faults()
        .delay(None, Duration::from_millis(1));
    let clients = [world.client().await, world.client().await];
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..30 {
        let mut tasks = Vec::new();
        for i in 0..100 {
            let lock = Lock::new(&clients[i % 2], "job").unwrap();
            let patience = Duration::from_micros(rng.u64(0..60_000));
            let doomed = rng.bool();
            tasks.push(tokio::spawn(async move {
                if doomed {
                    // Dropped at a random time, often while it holds the lock.
                    let _ = tokio::time::timeout(patience, async {
                        let _guard = lock.acquire().await.unwrap();
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    })
                    .await;
                } else {
                    let guard = lock
                        .acquire_timeout(Duration::from_secs(20))
                        .await
                        .expect("a live waiter gets the lock");
                    guard.release().await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
        world.at_rest().await;
        assert_eq!(clients.iter().map(Client::waiters).sum::<usize>(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_detach_or_adopt_dropped_anywhere_leaves_a_valid_ticket_or_nothing() {
    let world = World::slow_engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let tasks = settled_tasks().await;
    for_each_await_point(async |polls| {
        let guard = lock.acquire().await.unwrap();
        let ticket = cancel_after(guard.detach(), polls).await;
        let done = ticket.is_some();
        if let Some(ticket) = ticket {
            lock.adopt(&ticket.unwrap())
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        assert_no_leak(&world, &client, tasks, polls).await;
        done
    })
    .await;
    for_each_await_point(async |polls| {
        let ticket = lock.acquire().await.unwrap().detach().await.unwrap();
        let done = cancel_after(lock.adopt(&ticket), polls).await.is_some();
        if let Ok(guard) = lock.adopt(&ticket).await {
            guard.release().await.unwrap();
        }
        assert_no_leak(&world, &client, tasks, polls).await;
        done
    })
    .await;
}
