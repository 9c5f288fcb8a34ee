//! Tests smaller verbs of locks: tickets, `renew_for`, `first_lease`, `wait_free`, `on_queued`, and a forced release of a part.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stanchion::{
    Acquire, AcquireError, AcquireOptions, AdoptError, Client, FairLock, HoldTicket, Lock,
    LockGuard, Lockable, MultiLock, RwLock,
};
use stanchion_testkit::eventually;
use stanchion_tests::{World, kept, lease, ms, secs};

suite! {
    a_ticket_carries_a_hold_to_another_client,
    a_ticket_is_adopted_once,
    a_ticket_of_another_lock_is_refused_before_anything_is_sent,
    a_longer_renewal_lasts_and_is_not_shortened,
    a_hold_that_is_left_ends_with_its_first_lease,
    a_first_lease_does_not_end_the_renewals,
    a_hundred_holds_are_renewed_in_few_scripts,
    waiting_for_a_free_lock_takes_nothing,
    a_release_wakes_calls_that_wait_for_a_free_lock,
    on_queued_is_called_once_for_each_waiter,
    force_release_frees_one_side_of_a_read_write_lock,
    force_release_frees_all_members_of_a_multi_lock,
}

const CHANNEL: &str = "redisson_lock__channel:{job}";

/// Two clients, and their handles of one lock.
async fn two(world: &World) -> (Client, Client, [Lock; 2]) {
    let (one, two) = (world.client().await, world.client().await);
    let locks = [&one, &two].map(|client| Lock::new(client, "job").unwrap());
    (one, two, locks)
}

/// The shutdown of the first client leaves the detached hold alone. P2, P4.
async fn a_ticket_carries_a_hold_to_another_client(world: &World) {
    let (one, two, [lock, there]) = two(world).await;
    let guard = lock.acquire().await.unwrap();
    let waiter = tokio::spawn(there.acquire());
    world.waiting(&two, 1, CHANNEL).await;
    let token = guard.fencing_token();
    let ticket = guard.detach().await.unwrap();
    assert_eq!((ticket.kind(), ticket.name()), ("lock", &b"job"[..]));
    assert_eq!(ticket.fencing_token(), token);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let report = one.shutdown(secs(5)).await;
    assert!(report.abandoned.is_empty(), "{report:?}");
    let ticket: HoldTicket = ticket.to_string().parse().unwrap();
    let guard = there.adopt(&ticket).await.unwrap();
    assert!(guard.fencing_token() > token);
    let holder = there.status().await.unwrap().holder.unwrap();
    assert!(holder.owner.starts_with(&two.id().to_string()));
    let again = guard.reenter().await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    assert!(!waiter.is_finished());
    again.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();

    let fair = FairLock::new(&two, "fair").unwrap();
    let ticket = fair.acquire().await.unwrap().detach().await.unwrap();
    assert_eq!(ticket.kind(), "fair_lock");
    let guard = fair.adopt(&ticket).await.unwrap();
    assert!(fair.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn a_ticket_is_adopted_once(world: &World) {
    let (_one, _two, [lock, there]) = two(world).await;
    let ticket = lock.acquire().await.unwrap().detach().await.unwrap();
    let (a, b) = tokio::join!(lock.adopt(&ticket), there.adopt(&ticket));
    let (Ok(held), Err(late)) = (if a.is_ok() { (a, b) } else { (b, a) }) else {
        panic!("adopted twice, or never")
    };
    assert!(matches!(late, AdoptError::Gone { .. }), "{late}");
    let late = lock.adopt(&ticket).await;
    assert!(matches!(late, Err(AdoptError::Gone { .. })), "{late:?}");
    held.release().await.unwrap();
}

async fn a_ticket_of_another_lock_is_refused_before_anything_is_sent(world: &World) {
    let (client, _two, [lock, _]) = two(world).await;
    let ticket = lock.acquire().await.unwrap().detach().await.unwrap();
    world.quiet().await;
    let before = world.scripts_run();
    let other = Lock::new(&client, "other").unwrap().adopt(&ticket).await;
    let fair = FairLock::new(&client, "job").unwrap().adopt(&ticket).await;
    for error in [other.unwrap_err(), fair.unwrap_err()] {
        assert!(matches!(error, AdoptError::Other { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("for the lock job, not for the"), "{text}");
    }
    assert_eq!(world.scripts_run(), before);
}

/// R3.
async fn a_longer_renewal_lasts_and_is_not_shortened(world: &World) {
    let (_one, _two, [lock, _]) = two(world).await;
    let options = AcquireOptions::new().lease(kept());
    let guard = lock.acquire_with(options).await.unwrap();
    guard.renew_for(lease(ms(60_000))).await.unwrap();
    let until = guard.valid_until();
    assert!(guard.remaining() > secs(50));
    guard.renew().await.unwrap();
    assert_eq!(guard.valid_until(), until, "the usual renewal is shorter");
    let inner = guard.reenter().await.unwrap();
    inner.release().await.unwrap();
    let left: u64 = world.admin(&["PTTL", "job"]).parse().unwrap();
    assert!(left > 50_000, "{left} ms");
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn a_hold_that_is_left_ends_with_its_first_lease(world: &World) {
    let (ours, theirs, [lock, there]) = two(world).await;
    let options = AcquireOptions::new().lease(lease(ms(300)));
    let began = ours.now();
    let guard = lock
        .acquire_with(options.first_lease(lease(ms(2000))))
        .await;
    let guard = guard.unwrap();
    let lost = guard.lost();
    guard.leave();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let next = there.acquire().await.unwrap();
    assert!(theirs.now() >= began + secs(2));
    next.release().await.unwrap();
    // A hold that was left is not reported as lost.
    assert!(futures_util::FutureExt::now_or_never(lost).is_none());
}

async fn a_first_lease_does_not_end_the_renewals(world: &World) {
    let (_one, _two, [lock, _]) = two(world).await;
    let options = AcquireOptions::new()
        .lease(kept())
        .first_lease(lease(ms(2500)));
    let guard = lock.acquire_with(options).await.unwrap();
    let twice = guard.valid_until() + ms(2500);
    eventually("the hold is renewed beyond its first lease", || {
        guard.valid_until() > twice
    })
    .await;
    guard.reenter().await.unwrap().leave();
    assert!(guard.is_held(), "the other guard keeps the hold");
}

async fn a_hundred_holds_are_renewed_in_few_scripts(world: &World) {
    let client = world.client().await;
    let mut guards = Vec::new();
    for i in 0..100 {
        let lock = Lock::new(&client, format!("job-{i}")).unwrap();
        guards.push(lock.lease(kept()).acquire().await.unwrap());
    }
    let ends: Vec<_> = guards.iter().map(LockGuard::valid_until).collect();
    let before = world.scripts_run();
    eventually("every hold is renewed", || {
        let mut all = guards.iter().zip(&ends);
        all.all(|(guard, end)| guard.valid_until() > *end)
    })
    .await;
    let scripts = world.scripts_run() - before;
    assert!(scripts <= 20, "{scripts} scripts for 100 renewals");
}

async fn waiting_for_a_free_lock_takes_nothing(world: &World) {
    let (_one, _two, [lock, there]) = two(world).await;
    lock.wait_free(None).await.unwrap();
    assert!(world.keys().is_empty());
    let guard = lock.acquire().await.unwrap();
    match there.wait_free(Some(ms(20))).await {
        Err(AcquireError::TimedOut { free_by: None, .. }) => {}
        other => panic!("{other:?}"),
    }
    guard.release().await.unwrap();
    there.wait_free(Some(Duration::ZERO)).await.unwrap();
    world.at_rest().await;
}

/// The first release grants to a queued client. The lock is free after the release of that client.
async fn a_release_wakes_calls_that_wait_for_a_free_lock(world: &World) {
    let (one, two, [lock, there]) = two(world).await;
    let guard = lock.acquire().await.unwrap();
    let waiters = [(); 3].map(|()| {
        let there = there.clone();
        tokio::spawn(async move { there.wait_free(None).await })
    });
    world.waiting(&two, 3, CHANNEL).await;
    let next = tokio::spawn(lock.acquire());
    eventually("the call waits", || one.waiters() == 1).await;
    guard.release().await.unwrap();
    let last = next.await.unwrap().unwrap();
    let started = one.now();
    last.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    // By message: far below the poll interval and the rest of the lease.
    assert!(one.now().since(started) < world.limit(ms(50)));
    world.at_rest().await;
}

async fn on_queued_is_called_once_for_each_waiter(world: &World) {
    let (one, two) = (world.client().await, world.client().await);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let options = AcquireOptions::new().on_queued(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let calls = || calls.load(Ordering::SeqCst);
    let locks = |client: &Client| -> [Box<dyn Acquire>; 2] {
        [
            Box::new(Lock::new(client, "lock").unwrap()),
            Box::new(FairLock::new(client, "fair").unwrap()),
        ]
    };
    for (n, (lock, other)) in locks(&one).iter().zip(&locks(&two)).enumerate() {
        let held = lock.acquire_with(options.clone()).await.unwrap();
        assert!(other.try_acquire().await.unwrap().is_none());
        assert_eq!(calls(), 2 * n, "no call waits");
        // The first call waits for the other client, the second behind the first call in the local queue.
        let waiting = [other, other].map(|it| tokio::spawn(it.acquire_with(options.clone())));
        eventually("both calls are queued", || calls() == 2 * n + 2).await;
        held.release().await.unwrap();
        for waiter in waiting {
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(calls(), 2 * n + 2, "once each");
    }
}

async fn force_release_frees_one_side_of_a_read_write_lock(world: &World) {
    let (one, two) = (world.client().await, world.client().await);
    let [lock, there] = [&one, &two].map(|client| RwLock::new(client, "data").unwrap());
    let danger = there.danger();
    assert!(
        !danger.force_release_readers().await.unwrap(),
        "there is no reader"
    );
    let readers = [lock.read().await.unwrap(), there.read().await.unwrap()];
    assert!(!danger.force_release_writer().await.unwrap());
    for reader in &readers {
        reader.renew().await.unwrap();
    }
    assert!(danger.force_release_readers().await.unwrap());
    for reader in readers {
        assert!(reader.renew().await.is_err());
    }
    let owner = one.owner();
    let options = AcquireOptions::new().owner(&owner);
    let writer = lock.write_with(options.clone()).await.unwrap();
    // A writer that also reads is a writer.
    let _reading = lock.read_with(options).await.unwrap();
    assert!(!danger.force_release_readers().await.unwrap());
    writer.renew().await.unwrap();
    assert!(danger.force_release_writer().await.unwrap());
    assert!(writer.renew().await.is_err());
}

async fn force_release_frees_all_members_of_a_multi_lock(world: &World) {
    let (one, two) = (world.client().await, world.client().await);
    let members = |client: &Client| {
        let plain = Lock::new(client, "a").unwrap();
        let fair = FairLock::new(client, "b").unwrap();
        let data = RwLock::new(client, "c").unwrap().read_side();
        MultiLock::new([&plain as &dyn Lockable, &fair, &data]).unwrap()
    };
    let (here, there) = (members(&one), members(&two));
    let guard = here.acquire().await.unwrap();
    assert_eq!(there.danger().force_release().await.unwrap(), 3);
    assert!(guard.renew().await.is_err());
    drop(guard);
    let _single = FairLock::new(&one, "b").unwrap().acquire().await.unwrap();
    assert_eq!(there.danger().force_release().await.unwrap(), 1);
    let _all = there.acquire_timeout(secs(5)).await.unwrap();
}
