//! Tests of a multi-lock whose wait moves to the local queue of another name, where the process may have an entry on the server by then.

use stanchion::{Client, Lock, Lockable, MultiLock};
use stanchion_testkit::eventually;
use stanchion_tests::{World, ms, secs, spawn_ok};
use tokio::task::JoinHandle;
use tokio::time::timeout;

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

/// A task that acquires and releases both names.
fn both(client: &Client, names: [&str; 2]) -> JoinHandle<()> {
    let locks = names.map(|name| lock(client, name));
    let both = MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap();
    tokio::spawn(async move {
        let guard = both.acquire().await.unwrap();
        guard.release().await.unwrap();
    })
}

/// The tasks end without a poll.
async fn soon<const N: usize>(world: &World, tasks: [JoinHandle<()>; N]) {
    for task in tasks {
        let end = timeout(ms(200), task).await;
        end.expect("the names are free, and a task sleeps").unwrap();
    }
    world.at_rest().await;
}

/// P4: `y` is released between the refusal of a request for `x` and `y` and the move of its waiter to the queue of `y`. The server has
/// notified and removed the new entry by then, and no waiter in that queue knew of it.
#[tokio::test(start_paused = true)]
async fn a_release_during_the_move_to_its_queue_wakes_a_waiter() {
    for steps in 0..12 {
        let world = World::engine();
        let [client]: [Client; 1] = world.fleet(1).await.try_into().unwrap();
        world.faults().delay(None, ms(1));
        // The server knows the scripts from here on.
        both(&client, ["x", "y"]).await.unwrap();
        let y = || lock(&client, "y");
        // The subscription lingers. A new one would let the next waiter send a request.
        let held = y().acquire().await.unwrap();
        let next = spawn_ok(y().acquire());
        world
            .waiting(&client, 1, "redisson_lock__channel:{y}")
            .await;
        held.release().await.unwrap();
        next.await.unwrap().release().await.unwrap();
        let held = y().acquire().await.unwrap();
        // Behind a holder of its own process, so it has sent no request.
        let first = both(&client, ["y", "z"]);
        eventually("it waits", || client.waiters() == 1).await;
        world.quiet().await;
        let second = both(&client, ["x", "y"]);
        // The request is sent after one of these steps, and the release in the same millisecond.
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        held.release().await.unwrap();
        soon(&world, [first, second]).await;
    }
}

/// P4: an entry on the server expires without requests. While the process holds, its own entry is not that of the holder.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_long_hold_wakes_a_waiter_that_was_queued_before_it() {
    let world = World::engine();
    let [ours, theirs]: [Client; 2] = world.fleet(2).await.try_into().unwrap();
    let held = lock(&theirs, "x").acquire().await.unwrap();
    let waiting = both(&ours, ["x", "y"]);
    let line = ["ZCARD", "stanchion_line:{x}"];
    eventually("it is queued", || world.admin(&line) == "1").await;
    let ticket = held.detach().await.unwrap();
    let held = lock(&ours, "x").adopt(&ticket).await.unwrap();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(world.admin(&line), "1", "the entry has expired");
    held.release().await.unwrap();
    soon(&world, [waiting]).await;
}
