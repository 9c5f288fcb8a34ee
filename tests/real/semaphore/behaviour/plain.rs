//! Tests the plain semaphore: the limit, the ledger of holders, and Redisson's layout.
//!
//! Long: one suite with one set-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stanchion::{
    AcquireError, AcquireOptions, Client, OnDeadlock, Rejection, ReleaseError, Renewal, Semaphore,
};
use stanchion_tests::permits::{CHANNEL, Kind, LEDGER, NAME};
use stanchion_tests::{World, lease, ms, secs, spawn_ok, together};

suite! {
    a_semaphore_is_redissons_string_and_a_ledger,
    added_permits_wake_waiters,
    the_ledger_shows_the_holders,
    a_reclaimed_permit_is_not_released_again,
    delete_removes_the_semaphore_and_its_holders,
    options_of_an_acquire_apply,
    options_that_need_a_lease_are_refused_before_anything_is_sent,
}

async fn semaphore(client: &Client, permits: u32) -> Semaphore {
    let semaphore = Semaphore::new(client, NAME).unwrap();
    assert!(semaphore.init(permits).await.unwrap());
    semaphore
}

fn of(client: &Client) -> Semaphore {
    Semaphore::new(client, NAME).unwrap()
}

fn keys(world: &World) -> Vec<String> {
    Kind::Plain.keys(world)
}

async fn at_rest(world: &World, free: i64) {
    Kind::Plain.at_rest(world, free).await;
}

fn rejection<T: std::fmt::Debug>(result: Result<T, AcquireError>) -> Rejection {
    match result.unwrap_err() {
        AcquireError::Rejected { rejection, .. } => rejection,
        other => panic!("{other}"),
    }
}

async fn a_semaphore_is_redissons_string_and_a_ledger(world: &World) {
    let client = world.client().await;
    let semaphore = semaphore(&client, 5).await;
    assert_eq!(keys(world), [NAME]);
    assert_eq!(world.admin(&["GET", NAME]), "5");
    let one = semaphore.acquire().await.unwrap();
    let three = semaphore.acquire_many(3).await.unwrap();
    assert_eq!((one.count(), three.count()), (1, 3));
    assert_eq!(three.name().to_string(), NAME);
    assert_eq!(keys(world), [NAME, LEDGER]);
    assert_eq!(world.admin(&["GET", NAME]), "1");
    assert_eq!(world.admin(&["PTTL", NAME]), "-1");
    assert_eq!(world.admin(&["HGET", LEDGER, three.owner().as_str()]), "3");
    assert!(three.owner().as_str().starts_with(&client.id().to_string()));
    one.release().await.unwrap();
    assert_eq!(world.admin(&["GET", NAME]), "2");
    three.release().await.unwrap();
    assert_eq!(
        keys(world),
        [NAME],
        "the ledger exists while permits are held"
    );
    assert_eq!(world.admin(&["GET", NAME]), "5");
}

async fn added_permits_wake_waiters(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    semaphore(&ours, 0).await;
    let waiting: Vec<_> = (0..2).map(|_| spawn_ok(of(&theirs).acquire())).collect();
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    assert_eq!(of(&ours).add(2).await.unwrap(), 2);
    drop(together(waiting).await);
    at_rest(world, 2).await;
}

async fn the_ledger_shows_the_holders(world: &World) {
    let semaphore = semaphore(&world.client().await, 5).await;
    let (one, three) = (
        semaphore.acquire().await.unwrap(),
        semaphore.acquire_many(3).await.unwrap(),
    );
    let status = semaphore.status().await.unwrap();
    assert!(status.exists);
    assert_eq!(status.available, 1);
    let mut shown: Vec<_> = status
        .holders
        .iter()
        .map(|holder| (holder.permits, holder.owner.as_str()))
        .collect();
    shown.sort_unstable();
    assert_eq!(
        shown,
        [(1, one.owner().as_str()), (3, three.owner().as_str())]
    );
}

async fn a_reclaimed_permit_is_not_released_again(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = semaphore(&ours, 2).await.acquire_many(2).await.unwrap();
    let waiting = spawn_ok(of(&theirs).acquire_many(2));
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    let owner = held.owner().to_string();
    let operator = of(&theirs);
    assert_eq!(operator.danger().reclaim(&owner).await.unwrap(), 2);
    assert_eq!(operator.danger().reclaim(&owner).await.unwrap(), 0);
    assert_eq!(operator.danger().reclaim("nobody").await.unwrap(), 0);
    let next = waiting.await.unwrap();
    let error = held.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    assert_eq!(
        operator.available().await.unwrap(),
        0,
        "no permit was returned twice"
    );
    next.release().await.unwrap();
    at_rest(world, 2).await;
}

async fn delete_removes_the_semaphore_and_its_holders(world: &World) {
    let semaphore = semaphore(&world.client().await, 2).await;
    let held = semaphore.acquire().await.unwrap();
    assert!(semaphore.danger().delete().await.unwrap());
    assert!(!semaphore.danger().delete().await.unwrap());
    assert!(keys(world).is_empty());
    assert!(semaphore.init(1).await.unwrap());
    assert!(held.release().await.is_err());
    at_rest(world, 1).await;
}

async fn options_of_an_acquire_apply(world: &World) {
    let client = world.client().await;
    let semaphore = semaphore(&client, 2).await;
    let held = semaphore.acquire().await.unwrap();
    let queued = Arc::new(AtomicBool::new(false));
    let options = AcquireOptions::new().timeout(ms(300));
    let waiting = options.clone().on_queued({
        let queued = Arc::clone(&queued);
        move || queued.store(true, Ordering::Relaxed)
    });
    let late = semaphore.acquire_with(2, waiting).await;
    assert!(matches!(late, Err(AcquireError::TimedOut { .. })));
    assert!(queued.load(Ordering::Relaxed), "the wait was reported");
    let none = semaphore.try_acquire_with(2, options.clone()).await;
    assert!(none.unwrap().is_none());
    held.release().await.unwrap();
    let both = semaphore.acquire_with(2, options).await.unwrap();
    assert_eq!(both.count(), 2);
    both.release().await.unwrap();
    at_rest(world, 2).await;
}

async fn options_that_need_a_lease_are_refused_before_anything_is_sent(world: &World) {
    let client = world.client().await;
    let semaphore = semaphore(&client, 9).await; // without a refusal, each call would get its permit
    let before = world.scripts_run();
    let lease = lease(secs(45));
    let options = AcquireOptions::new;
    for (options, shown) in [
        (options().lease(lease), "lease 45s"),
        (options().first_lease(lease), "first_lease 45s"),
        (options().max_hold(secs(7)), "max_hold 7s"),
        (options().rest_after_crash(secs(8)), "rest_after_crash 8s"),
        (options().renewal(Renewal::Manual), "renewal Manual"),
    ] {
        let rule = format!("invalid option: {shown}: a semaphore has holds without a lease");
        let waits = rejection(semaphore.acquire_with(1, options.clone()).await);
        assert_eq!(waits.to_string(), rule);
        let tries = rejection(semaphore.try_acquire_with(1, options).await);
        assert_eq!(tries, waits);
    }
    let owned = semaphore.acquire_with(1, options().owner(&client.owner()));
    let owned = rejection(owned.await).to_string();
    assert!(owned.contains("owner"), "{owned}");
    let fails = semaphore.acquire_with(1, options().on_deadlock(OnDeadlock::Fail));
    let fails = rejection(fails.await).to_string();
    assert!(fails.contains("on_deadlock"), "{fails}");
    assert_eq!(world.scripts_run(), before);
}
