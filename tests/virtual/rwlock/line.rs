//! Tests the queue of processes that wait for a read-write lock: the order of grants, frozen processes, and Redisson. `virtual/fleets` has the
//! cost of a grant, and turns.

use futures_util::future::join_all;
use stanchion::{AcquireError, Client, ReadGuard, RwLock, WriteGuard};
use stanchion_testkit::eventually;
use stanchion_tests::{JAVA, World, assert_within, ms, secs};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::rwlock;

const BASE: &str = "redisson_rwlock:{job}";
const LINE: &str = "stanchion_rwlock_line:{job}";

/// The side of the lock that a process uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Read,
    Write,
}

fn writing(client: &Client) -> JoinHandle<Result<WriteGuard, AcquireError>> {
    tokio::spawn(rwlock(client).write())
}

fn reading(client: &Client) -> JoinHandle<Result<ReadGuard, AcquireError>> {
    tokio::spawn(rwlock(client).read())
}

/// A waiter of either side that releases the lock as soon as it is granted.
fn passing(client: &Client, side: Side) -> JoinHandle<()> {
    let lock = rwlock(client);
    match side {
        Side::Read => tokio::spawn(async move { drop(lock.read().await) }),
        Side::Write => tokio::spawn(async move { drop(lock.write().await) }),
    }
}

/// Waits until `writers` processes are queued to write, and `readers` to read.
async fn queued(world: &World, writers: usize, readers: usize) {
    eventually("the processes are queued", || {
        let all = "return table.concat(redis.call('ZRANGE', KEYS[1], 0, -1), ' ')";
        let entries = world.admin(&["EVAL", all, "1", LINE]);
        let reads = entries.matches(['r', 'R']).count();
        reads == readers && entries.matches(':').count() == writers + readers
    })
    .await;
    world.quiet().await;
}

/// A client that holds the write lock, and a fleet.
async fn written(world: &World, size: usize) -> (Client, WriteGuard, Vec<Client>) {
    let holder = world.named("holder").await;
    // Caches the scripts on the server.
    let first = rwlock(&holder).write().await.unwrap();
    first.release().await.unwrap();
    let guard = rwlock(&holder).write().await.unwrap();
    (holder, guard, world.fleet(size).await)
}

/// Freezes the first clients of the fleet.
fn freeze(world: &World, count: usize) {
    for n in 0..count {
        let faults = world.faults();
        faults.freeze(Some(&format!("p{n}")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_grants_the_readers_of_many_processes_together() {
    let world = World::engine();
    let (_holder, guard, clients) = written(&world, 40).await;
    let readers: Vec<_> = clients.iter().map(reading).collect();
    queued(&world, 0, 40).await;
    let before = world.scripts_run();
    let released = Instant::now();
    guard.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap().unwrap());
    }
    assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
    let scripts = world.scripts_run() - before;
    assert!(
        scripts <= 41,
        "{scripts} scripts for a release and 40 reads"
    );
    assert!(guards.iter().all(ReadGuard::is_held));
    drop(guards);
    world.at_rest().await;
}

/// Also if the readers arrived after a waiting writer.
#[tokio::test(start_paused = true)]
async fn waiting_readers_join_a_downgrade() {
    let world = World::engine();
    let (_holder, guard, clients) = written(&world, 3).await;
    let writer = writing(&clients[0]);
    queued(&world, 1, 0).await;
    let readers = [reading(&clients[1]), reading(&clients[2])];
    queued(&world, 1, 2).await;
    let downgraded = Instant::now();
    let own = guard.downgrade().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap().unwrap());
    }
    assert!(downgraded.elapsed() < ms(20), "{:?}", downgraded.elapsed());
    assert!(!writer.is_finished());
    let released = Instant::now();
    drop((own, guards));
    writer.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_granted_in_order_of_arrival() {
    let world = World::engine();
    let (_holder, guard, clients) = written(&world, 4).await;
    let first = writing(&clients[0]);
    queued(&world, 1, 0).await;
    let reader = reading(&clients[1]);
    queued(&world, 1, 1).await;
    let last = writing(&clients[2]);
    queued(&world, 2, 1).await;
    // This reader arrives after the last writer, and is granted with the other reader.
    let late = reading(&clients[3]);
    queued(&world, 2, 2).await;
    guard.release().await.unwrap();
    let first = first.await.unwrap().unwrap();
    world.quiet().await;
    assert!(!reader.is_finished() && !last.is_finished());
    first.release().await.unwrap();
    let (reader, late) = (reader.await.unwrap().unwrap(), late.await.unwrap().unwrap());
    world.quiet().await;
    assert!(!last.is_finished());
    drop((reader, late));
    drop(last.await.unwrap().unwrap());
    world.at_rest().await;
}

/// L6: the lock is left free for Redisson's clients for a short time. A new waiter does not acquire it in that time, even if its
/// subscription is confirmed.
#[tokio::test(start_paused = true)]
async fn a_new_waiter_does_not_acquire_a_lock_that_is_left_to_redisson() {
    for side in [Side::Read, Side::Write] {
        let world = World::engine();
        let _java = world.listen(BASE).await;
        let (_holder, guard, clients) = written(&world, 3).await;
        let first = writing(&clients[0]);
        queued(&world, 1, 0).await;
        let second = writing(&clients[1]);
        queued(&world, 2, 0).await;
        guard.release().await.unwrap();
        // After two turns of the queue Redisson has one: the lock stays free for a short time.
        first.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(world.admin(&["EXISTS", "job"]), "0");
        let new_waiter = passing(&clients[2], side);
        let second = second.await.unwrap().unwrap();
        assert!(!new_waiter.is_finished());
        second.release().await.unwrap();
        new_waiter.await.unwrap();
        world.at_rest().await;
    }
}

/// `x` and `{x}` share Redisson's channel, but not the queue.
#[tokio::test(start_paused = true)]
async fn a_name_in_braces_has_its_own_queue() {
    let (world, clients) = World::engine().with_fleet(3).await;
    let of = |client: &Client, name: &str| RwLock::new(client, name).unwrap();
    let plain = of(&clients[0], "job").write().await.unwrap();
    let braced = of(&clients[0], "{job}").write().await.unwrap();
    let writer = tokio::spawn(of(&clients[1], "{job}").write());
    let reader = tokio::spawn(of(&clients[2], "{job}").read());
    let line = "stanchion_rwlock_line_braced:{job}";
    world.until(&["ZCARD", line], "2").await;
    world.quiet().await;
    plain.release().await.unwrap();
    world.quiet().await;
    assert!(!writer.is_finished() && !reader.is_finished());
    braced.release().await.unwrap();
    let writer = async { writer.await.unwrap().unwrap().release().await.unwrap() };
    let reader = async { reader.await.unwrap().unwrap().release().await.unwrap() };
    tokio::join!(writer, reader);
    world.at_rest().await;
}

/// L13: the grants to the readers end after 1.5 s, and the next process in the queue looks then.
#[tokio::test(start_paused = true)]
async fn frozen_readers_delay_the_next_writer_by_one_short_lease() {
    let world = World::engine();
    let (_holder, guard, clients) = written(&world, 21).await;
    let _silent: Vec<_> = clients[..20].iter().map(reading).collect();
    queued(&world, 0, 20).await;
    let last = writing(&clients[20]);
    queued(&world, 1, 20).await;
    freeze(&world, 20);
    let released = Instant::now();
    guard.release().await.unwrap();
    last.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < ms(1600), "{:?}", released.elapsed());
}

/// The first waiter of a process gives up, and the next one wants the other side.
#[tokio::test(start_paused = true)]
async fn the_queue_entry_of_a_process_is_that_of_its_first_waiter() {
    let world = World::engine();
    let (_holder, guard, clients) = written(&world, 1).await;
    for (leaves, other) in [(Side::Read, Side::Write), (Side::Write, Side::Read)] {
        let first = passing(&clients[0], leaves);
        let [writers, readers] = [Side::Write, Side::Read].map(|it| usize::from(leaves == it));
        queued(&world, writers, readers).await;
        let second = passing(&clients[0], other);
        world.quiet().await;
        first.abort();
        queued(&world, readers, writers).await;
        second.abort();
        queued(&world, 0, 0).await;
    }
    guard.release().await.unwrap();
    world.at_rest().await;
}

/// The relay receives Redisson's release for all queued processes, readers included.
#[tokio::test(start_paused = true)]
async fn a_redisson_release_reaches_all_queued_processes() {
    let (world, clients) = World::engine().with_fleet(6).await;
    for (field, mode) in [
        (format!("{JAVA}:write"), "write"),
        (JAVA.to_owned(), "read"),
    ] {
        let hold = format!("{{job}}:{JAVA}:rwlock_timeout:1");
        let _ = world.admin(&["HSET", "job", "mode", mode, &field, "1"]);
        let _ = world.admin(&["PEXPIRE", "job", "30000"]);
        let _ = world.admin(&["SET", &hold, "1", "PX", "30000"]);
        let mut readers = Vec::new();
        if mode == "write" {
            readers = clients[1..].iter().map(reading).collect();
        }
        let writer = writing(&clients[0]);
        queued(&world, 1, readers.len()).await;
        world
            .until(&["HEXISTS", "stanchion_rwlock_wake:{job}", "heard"], "1")
            .await;
        world.quiet().await;
        let _ = world.admin(&["DEL", "job", &hold]);
        let released = Instant::now();
        let _ = world.admin(&["PUBLISH", BASE, if mode == "write" { "1" } else { "0" }]);
        let readers = join_all(readers.into_iter().map(async |reader| {
            reader.await.unwrap().unwrap().release().await.unwrap();
        }));
        let writer = async { writer.await.unwrap().unwrap().release().await.unwrap() };
        tokio::join!(readers, writer);
        assert_within(released, ms(60), mode);
        world.at_rest().await;
    }
}

/// The wait behind a writer of the same process is longer than the TTL of a queue entry without requests.
#[tokio::test(start_paused = true)]
async fn a_queue_entry_lasts_while_its_own_process_holds_the_lock() {
    for side in [Side::Write, Side::Read] {
        let world = World::engine();
        let client = world.named("both").await;
        let guard = rwlock(&client).write().await.unwrap();
        let waiting = passing(&client, side);
        eventually("the second waiter is queued", || client.waiters() == 1).await;
        tokio::time::sleep(secs(60)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        waiting.await.unwrap();
        assert!(released.elapsed() < ms(50), "{:?}", released.elapsed());
    }
}
