//! Tests that every kind of lock works behind the trait `Acquire`, that its futures can be spawned, and that unbound guards release.

use stanchion::{
    Acquire, AcquireError, AcquireOptions, Client, FairLock, Guard, LeasedSemaphore, Lock,
    Lockable, MultiLock, RedLock, RwLock,
};
use stanchion_testkit::eventually;
use stanchion_tests::{World, lease, secs};
use tokio::time::timeout;

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

/// One lock of each kind, on three servers, with its label.
async fn all_kinds(worlds: &[World; 3]) -> Vec<(&'static str, Box<dyn Acquire>)> {
    let mut clients = Vec::new();
    for world in worlds {
        clients.push(world.client().await);
    }
    let client = &clients[0];
    let permits = LeasedSemaphore::new(client, "permits").unwrap();
    permits.init(1).await.unwrap();
    let rwlock = RwLock::new(client, "rw").unwrap();
    let together = [lock(client, "a"), lock(client, "b")];
    let in_order = [lock(client, "c"), lock(&clients[1], "d")];
    let multi = |locks: &[Lock]| MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable));
    vec![
        ("Lock", Box::new(lock(client, "lock"))),
        ("FairLock", Box::new(FairLock::new(client, "fair").unwrap())),
        ("write side", Box::new(rwlock.write_side())),
        ("read side", Box::new(rwlock.read_side())),
        ("MultiLock, one script", Box::new(multi(&together).unwrap())),
        ("MultiLock, in order", Box::new(multi(&in_order).unwrap())),
        ("RedLock", Box::new(RedLock::new(&clients, "red").unwrap())),
        ("LeasedSemaphore", Box::new(permits)),
    ]
}

/// `real/kinds` shows what the other kinds do behind the trait.
#[tokio::test(start_paused = true)]
async fn a_guard_of_any_kind_has_a_name_a_token_and_its_work() {
    let worlds = [World::engine(), World::engine(), World::engine()];
    let (ours, theirs) = (all_kinds(&worlds).await, all_kinds(&worlds).await);
    for ((kind, mine), (_, yours)) in ours.iter().zip(&theirs) {
        let lease = lease(secs(3));
        let options = AcquireOptions::new().lease(lease);
        let guard = mine.acquire_with(options).await.unwrap();
        let shared = *kind == "read side";
        assert_eq!(guard.name(), &mine.name(), "{kind}");
        assert!(guard.remaining() <= lease.length(), "{kind}");
        let is_exclusive = !shared && *kind != "LeasedSemaphore";
        assert_eq!(guard.is_exclusive(), is_exclusive, "{kind}");
        let mints = ["Lock", "FairLock", "write side", "MultiLock, one script"];
        let token = guard.fencing_token();
        assert_eq!(token.is_some(), mints.contains(kind), "{kind}");
        let tried = yours.try_acquire().await.unwrap();
        assert_eq!(tried.is_some(), shared, "{kind}");
        assert_eq!(guard.run(async { 7 }).await.unwrap(), 7, "{kind}");
        let lost = timeout(secs(10), guard.lost()).await;
        assert!(lost.is_err(), "P10: {kind}: {lost:?}");
        guard.release().await.unwrap();
        let next = yours.try_acquire().await.unwrap();
        next.expect(kind).release().await.unwrap();
    }
}

/// No acquire method borrows its handle, so its future can be spawned directly.
#[tokio::test(start_paused = true)]
async fn an_acquire_outlives_its_handle() {
    let worlds = [World::engine(), World::engine(), World::engine()];
    for (kind, lock) in all_kinds(&worlds).await {
        let waiting = tokio::spawn(lock.acquire());
        drop(lock);
        let guard: Guard = waiting.await.unwrap().expect(kind);
        guard.release().await.unwrap();
    }
    let client = worlds[0].client().await;
    let rwlock = RwLock::new(&client, "rw").unwrap();
    let permits = LeasedSemaphore::new(&client, "permits").unwrap();
    let plain = || lock(&client, "lock");
    macro_rules! spawned {
        ($($acquire:expr),+) => { $(drop(tokio::spawn($acquire).await.unwrap().unwrap());)+ };
    }
    spawned!(
        plain().acquire(),
        plain().acquire_timeout(secs(1)),
        plain().try_acquire(),
        FairLock::new(&client, "fair").unwrap().acquire(),
        rwlock.write(),
        rwlock.read(),
        permits.acquire_many(1)
    );
    eventually("all are released", || {
        let keys = worlds[0].keys();
        !["lock", "fair", "rw"]
            .iter()
            .any(|name| keys.iter().any(|key| key == name))
    })
    .await;
}

/// A mistake that compiles with a warning. The build fails if the compiler does not give the warning.
#[expect(unused_must_use, reason = "a guard that nobody binds is reported")]
async fn not_bound(lock: &Lock) -> Result<(), AcquireError> {
    lock.acquire().await?;
    Ok(())
}

#[expect(let_underscore_drop, reason = "the lint to switch on for `let _ =`")]
async fn bound_to_nothing(lock: &Lock) -> Result<(), AcquireError> {
    let _ = lock.acquire().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_unbound_guard_releases_at_once() {
    let (world, client) = World::engine().with_client().await;
    let lock = lock(&client, "job");
    not_bound(&lock).await.unwrap();
    world.at_rest().await;
    bound_to_nothing(&lock).await.unwrap();
    world.at_rest().await;
    // No lint reports this guard: it is a temporary of the condition.
    if lock.try_acquire().await.unwrap().is_some() {
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_box_of_an_acquire_contains_its_future_once() {
    let lock = lock(&World::engine().client().await, "job");
    let own = size_of_val(&lock.acquire());
    let boxed = size_of_val(&*Acquire::acquire(&lock));
    // The box also contains the options.
    assert!(boxed < own * 3 / 2, "{boxed} bytes instead of {own}");
}
