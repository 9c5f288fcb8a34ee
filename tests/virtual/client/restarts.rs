//! Tests of a server that is killed and comes back with an older snapshot. Releases that the snapshot lacks are sent again, and holds that it
//! lacks are lost before that.

use std::time::Duration;

use stanchion::{
    Client, FairLock, LeasedSemaphore, Lock, Lockable, LostReason, MultiLock, RwLock, Semaphore,
};
use stanchion_tests::World;
use tokio::time::{sleep, timeout};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Longer than a reconnect and a few requests, much shorter than a third of a lease.
const SOON: Duration = ms(2000);

/// One object of each primitive with a release.
struct Kinds {
    lock: Lock,
    fair: FairLock,
    reads: RwLock,
    writes: RwLock,
    plain: Semaphore,
    leased: LeasedSemaphore,
    multi: MultiLock,
}

impl Kinds {
    fn new(client: &Client) -> Self {
        let members = ["m1", "m2"].map(|name| Lock::new(client, name).unwrap());
        Self {
            lock: Lock::new(client, "lock").unwrap(),
            fair: FairLock::new(client, "fair").unwrap(),
            reads: RwLock::new(client, "reads").unwrap(),
            writes: RwLock::new(client, "writes").unwrap(),
            plain: Semaphore::new(client, "plain").unwrap(),
            leased: LeasedSemaphore::new(client, "leased").unwrap(),
            multi: MultiLock::new(members.iter().map(|lock| lock as &dyn Lockable)).unwrap(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn releases_that_an_older_snapshot_lacks_are_sent_again() {
    let world = World::engine().ends_after(ms(120_000));
    let (ours, theirs) = (
        Kinds::new(&world.named("a").await),
        Kinds::new(&world.named("b").await),
    );
    assert!(ours.plain.init(1).await.unwrap());
    assert!(ours.leased.init(1).await.unwrap());
    let lock = ours.lock.acquire().await.unwrap();
    let fair = ours.fair.acquire().await.unwrap();
    let read = ours.reads.read().await.unwrap();
    let write = ours.writes.write().await.unwrap();
    let plain = ours.plain.acquire().await.unwrap();
    let leased = ours.leased.acquire().await.unwrap();
    let multi = ours.multi.acquire().await.unwrap();
    let faults = world.as_engine().faults();
    let saved = faults.save();
    lock.release().await.unwrap();
    fair.release().await.unwrap();
    read.release().await.unwrap();
    write.release().await.unwrap();
    plain.release().await.unwrap();
    leased.release().await.unwrap();
    multi.release().await.unwrap();
    // Longer than a failover takes to be noticed.
    sleep(ms(15_000)).await;
    faults.restart_from(&saved);
    macro_rules! free {
        ($kind:literal, $acquire:expr) => {
            let acquired = timeout(SOON, $acquire).await;
            let acquired = acquired.unwrap_or_else(|_| panic!("P4: {} is not free", $kind));
            acquired.unwrap().release().await.unwrap();
        };
    }
    free!("a lock", theirs.lock.acquire());
    free!("a fair lock", theirs.fair.acquire());
    free!("a lock with a reader", theirs.reads.write());
    free!("a lock with a writer", theirs.writes.read());
    free!("a permit", theirs.plain.acquire());
    free!("a leased permit", theirs.leased.acquire());
    free!("a multi-lock", theirs.multi.acquire());
    assert_eq!(theirs.plain.available().await.unwrap(), 1);
    assert_eq!(theirs.leased.available().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_plain_permit_is_free_again_although_its_release_was_long_ago() {
    let world = World::engine().ends_after(ms(7_200_000));
    let seats = Semaphore::new(&world.client().await, "seats").unwrap();
    assert!(seats.init(1).await.unwrap());
    let permit = seats.acquire().await.unwrap();
    let faults = world.as_engine().faults();
    let saved = faults.save();
    permit.release().await.unwrap();
    sleep(ms(3_000_000)).await;
    faults.restart_from(&saved);
    let again = timeout(SOON, seats.acquire()).await.expect("P4").unwrap();
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_snapshot_lacks_is_lost_at_the_reconnect() {
    let world = World::engine().ends_after(ms(120_000));
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let faults = world.as_engine().faults();
    let saved = faults.save();
    let held = lock.acquire().await.unwrap();
    faults.restart_from(&saved);
    assert_eq!(timeout(SOON, held.lost()).await, Ok(LostReason::Gone));
}

#[tokio::test(start_paused = true)]
async fn a_hold_in_the_snapshot_survives() {
    let world = World::engine().ends_after(ms(120_000));
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let held = lock.acquire().await.unwrap();
    let faults = world.as_engine().faults();
    let saved = faults.save();
    faults.restart_from(&saved);
    assert!(timeout(ms(60_000), held.lost()).await.is_err());
    held.release().await.unwrap();
}

/// `$ours` holds, other tasks of its process wait, and `$theirs`, another client, too. The snapshot has the first holder only; after it the hold
/// passes from task to task. When `$theirs` is granted, the last task must have lost its hold.
macro_rules! passed_on {
    ($world:expr, $ours:expr, $theirs:expr, $acquire:ident, $tasks:expr) => {{
        let mut held = $ours.$acquire().await.unwrap();
        let mut tasks = Vec::new();
        for _ in 0..$tasks {
            let ours = $ours.clone();
            tasks.push(tokio::spawn(async move { ours.$acquire().await.unwrap() }));
            sleep(ms(100)).await;
        }
        let theirs = $theirs.clone();
        let waiter = tokio::spawn(async move { theirs.$acquire().await.unwrap() });
        sleep(ms(300)).await;
        let faults = $world.as_engine().faults();
        let saved = faults.save();
        for task in tasks {
            held.release().await.unwrap();
            held = timeout(SOON, task).await.expect("handed over").unwrap();
        }
        faults.restart_from(&saved);
        let granted = timeout(SOON, waiter).await.expect("P4").unwrap();
        let what = stringify!($acquire $theirs);
        assert!(!held.is_held(), "P1: two hold: {what}, {}", $tasks);
        assert!(granted.is_held(), "{what}");
        granted.release().await.unwrap();
    }};
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_that_the_snapshot_lacks_leaves_no_second_holder() {
    for tasks in [1, 3] {
        let world = World::engine().ends_after(ms(300_000));
        let (ours, theirs) = (
            Kinds::new(&world.named("a").await),
            Kinds::new(&world.named("b").await),
        );
        assert!(ours.leased.init(1).await.unwrap());
        passed_on!(world, ours.lock, theirs.lock, acquire, tasks);
        passed_on!(world, ours.leased, theirs.leased, acquire, tasks);
        passed_on!(world, ours.multi, theirs.multi, acquire, tasks);
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_that_the_snapshot_lacks_leaves_no_second_holder() {
    let world = World::engine().ends_after(ms(120_000));
    let ours = RwLock::new(&world.named("a").await, "rwlock").unwrap();
    let theirs = RwLock::new(&world.named("b").await, "rwlock").unwrap();
    let held = ours.write().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.write().await.unwrap() });
    sleep(ms(300)).await;
    let faults = world.as_engine().faults();
    let saved = faults.save();
    let reads = held.downgrade().await.unwrap();
    faults.restart_from(&saved);
    let granted = timeout(SOON, waiter).await.expect("P4").unwrap();
    assert!(!reads.is_held(), "P1: a reader and a writer hold");
    granted.release().await.unwrap();
}

/// The client that detached the hold cannot know whether another one has adopted it. So it does not repeat the release.
#[tokio::test(start_paused = true)]
async fn a_detach_that_the_snapshot_lacks_leaves_no_second_holder() {
    let world = World::engine().ends_after(ms(120_000));
    let ours = Lock::new(&world.named("a").await, "job").unwrap();
    let theirs = Lock::new(&world.named("b").await, "job").unwrap();
    let third = Lock::new(&world.named("c").await, "job").unwrap();
    let held = ours.acquire().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.acquire().await.unwrap() });
    sleep(ms(300)).await;
    let faults = world.as_engine().faults();
    let saved = faults.save();
    let ticket = held.detach().await.unwrap();
    let adopted = third.adopt(&ticket).await.unwrap();
    world.as_engine().faults().freeze(Some("c"));
    faults.restart_from(&saved);
    sleep(SOON).await;
    assert!(adopted.is_held() && !waiter.is_finished(), "P1: two hold");
    faults.thaw(Some("c"));
    let granted = timeout(ms(40_000), waiter).await.expect("P4").unwrap();
    assert!(!adopted.is_held(), "P1: two hold");
    granted.release().await.unwrap();
}
