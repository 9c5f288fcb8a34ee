//! Tests smaller verbs of locks: tickets, `renew_for`, `rest_after_crash`, `wait_free`, `on_queued`, and a forced release of a part.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stanchion::{
    Acquire, AcquireError, AcquireOptions, AdoptError, Client, FairLock, HoldTicket, Lease, Lock,
    Lockable, LostReason, MultiLock, Rejection, RenewError, RwLock,
};
use stanchion_testkit::{eventually, eventually_async};
use stanchion_tests::World;

suite! {
    a_ticket_carries_a_hold_to_another_client,
    a_ticket_is_adopted_once,
    a_ticket_expires_with_its_lease_and_affects_no_later_hold,
    a_ticket_of_another_lock_is_refused_before_anything_is_sent,
    a_re_entered_hold_is_not_detached,
    a_shutdown_leaves_a_detached_hold_alone,
    a_waiter_acquires_after_the_release_of_an_adopted_hold,
    a_longer_renewal_lasts_and_is_not_shortened,
    a_name_rests_after_a_crash_and_not_after_a_release,
    waiting_for_a_free_lock_takes_nothing,
    a_release_wakes_calls_that_wait_for_a_free_lock,
    on_queued_is_called_once_for_each_waiter,
    force_release_frees_one_side_of_a_read_write_lock,
    force_release_frees_all_members_of_a_multi_lock,
}

fn lease(length: Duration) -> Lease {
    Lease::new(length).unwrap()
}

async fn a_ticket_carries_a_hold_to_another_client(world: &World) {
    let (one, two) = (world.client().await, world.client().await);
    let [lock, there] = [&one, &two].map(|client| Lock::new(client, "lock").unwrap());
    let guard = lock.acquire().await.unwrap();
    let token = guard.fencing_token();
    let ticket = guard.detach().await.unwrap();
    assert_eq!((ticket.kind(), ticket.name()), ("lock", &b"lock"[..]));
    assert_eq!(ticket.fencing_token(), token);
    assert!(
        there.try_acquire().await.unwrap().is_none(),
        "the lock is held"
    );
    assert!(
        lock.try_acquire().await.unwrap().is_none(),
        "for the old client, too"
    );
    let ticket: HoldTicket = ticket.to_string().parse().unwrap();
    let guard = there.adopt(&ticket).await.unwrap();
    assert!(guard.fencing_token() > token);
    let holder = lock.status().await.unwrap().holder.unwrap();
    assert!(holder.owner.starts_with(&two.id().to_string()));
    assert_eq!(holder.hold_count, 1);
    let again = guard.reenter().await.unwrap();
    guard.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    again.release().await.unwrap();

    let [fair, there] = [&one, &two].map(|client| FairLock::new(client, "fair").unwrap());
    let ticket = fair.acquire().await.unwrap().detach().await.unwrap();
    assert_eq!(ticket.kind(), "fair_lock");
    let guard = there.adopt(&ticket).await.unwrap();
    assert!(fair.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn a_ticket_is_adopted_once(world: &World) {
    let clients = [world.client().await, world.client().await];
    let locks = clients
        .each_ref()
        .map(|client| Lock::new(client, "lock").unwrap());
    let ticket = locks[0].acquire().await.unwrap().detach().await.unwrap();
    let (a, b) = tokio::join!(locks[0].adopt(&ticket), locks[1].adopt(&ticket));
    let mut won = 0;
    for outcome in [a, b] {
        match outcome {
            Ok(guard) => {
                won += 1;
                // The hold stays, so that the late adoption below does not meet a free name.
                guard.leave();
            }
            Err(error) => assert!(matches!(error, AdoptError::Gone { .. }), "{error}"),
        }
    }
    assert_eq!(won, 1);
    let late = locks[0].adopt(&ticket).await;
    assert!(matches!(late, Err(AdoptError::Gone { .. })), "{late:?}");
}

async fn a_ticket_expires_with_its_lease_and_affects_no_later_hold(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "lock").unwrap();
    let options = AcquireOptions::new().lease(lease(Duration::from_millis(200)));
    let guard = lock.acquire_with(options).await.unwrap();
    let ticket = guard.detach().await.unwrap();
    assert_eq!(ticket.lease().length(), Duration::from_millis(200));
    // A detached hold is not renewed, so a waiter acquires after its lease.
    let guard = lock.acquire().await.unwrap();
    let late = lock.adopt(&ticket).await;
    assert!(matches!(late, Err(AdoptError::Gone { .. })), "{late:?}");
    guard.renew().await.unwrap();
    let longer = guard
        .detach_for(lease(Duration::from_secs(600)))
        .await
        .unwrap();
    assert_eq!(longer.lease().length(), Duration::from_secs(600));
    let left: u64 = world.admin(&["PTTL", "lock"]).parse().unwrap();
    assert!(left > 590_000, "{left} ms");
    lock.adopt(&longer).await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

async fn a_ticket_of_another_lock_is_refused_before_anything_is_sent(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "lock").unwrap();
    let ticket = lock.acquire().await.unwrap().detach().await.unwrap();
    world.quiet().await;
    let before = world.scripts_run();
    let other = Lock::new(&client, "other").unwrap().adopt(&ticket).await;
    let fair = FairLock::new(&client, "lock").unwrap().adopt(&ticket).await;
    for error in [other.unwrap_err(), fair.unwrap_err()] {
        assert!(matches!(error, AdoptError::Other { .. }), "{error}");
        assert!(
            error.to_string().contains("for the lock lock, not for the"),
            "{error}"
        );
    }
    assert_eq!(world.scripts_run(), before);
    lock.adopt(&ticket).await.unwrap().release().await.unwrap();
}

async fn a_re_entered_hold_is_not_detached(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "lock").unwrap();
    let outer = lock.acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    match inner.detach().await {
        Err(RenewError::Rejected {
            rejection: Rejection::InvalidOption { rule },
            ..
        }) => assert!(rule.contains("held 2 times"), "{rule}"),
        other => panic!("{other:?}"),
    }
    eventually_async("one count is left", async || {
        let holder = lock.status().await.unwrap().holder.unwrap();
        holder.hold_count == 1
    })
    .await;
    outer.detach().await.unwrap();
}

async fn a_shutdown_leaves_a_detached_hold_alone(world: &World) {
    let (one, two) = (world.client().await, world.client().await);
    let lock = Lock::new(&one, "lock").unwrap();
    let ticket = lock.acquire().await.unwrap().detach().await.unwrap();
    let report = one.shutdown(Duration::from_secs(5)).await;
    assert!(report.abandoned.is_empty(), "{report:?}");
    let there = Lock::new(&two, "lock").unwrap();
    assert!(there.try_acquire().await.unwrap().is_none());
    there.adopt(&ticket).await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

async fn a_waiter_acquires_after_the_release_of_an_adopted_hold(world: &World) {
    let (one, two) = (world.client().await, world.client().await);
    let lock = Lock::new(&one, "lock").unwrap();
    let guard = lock.acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    world
        .waiting(&one, 1, "redisson_lock__channel:{lock}")
        .await;
    let ticket = guard.detach().await.unwrap();
    let there = Lock::new(&two, "lock").unwrap();
    let guard = there.adopt(&ticket).await.unwrap();
    let token = guard.fencing_token();
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    assert!(waiter.await.unwrap().fencing_token() > token);
}

async fn a_longer_renewal_lasts_and_is_not_shortened(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "lock").unwrap();
    let options = AcquireOptions::new().lease(lease(Duration::from_millis(300)));
    let guard = lock.acquire_with(options).await.unwrap();
    guard
        .renew_for(lease(Duration::from_secs(60)))
        .await
        .unwrap();
    let until = guard.valid_until();
    assert!(guard.remaining() > Duration::from_secs(58));
    guard.renew().await.unwrap();
    assert_eq!(guard.valid_until(), until, "the usual renewal is shorter");
    let left: u64 = world.admin(&["PTTL", "lock"]).parse().unwrap();
    assert!(left > 58_000, "{left} ms");
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn a_name_rests_after_a_crash_and_not_after_a_release(world: &World) {
    let (client, other) = (world.client().await, world.client().await);
    let lock = Lock::new(&client, "lock").unwrap();
    let options = AcquireOptions::new()
        .lease(lease(Duration::from_millis(500)))
        .rest_after_crash(Duration::from_secs(60));
    let guard = lock.acquire_with(options.clone()).await.unwrap();
    let pttl = || world.admin(&["PTTL", "lock"]).parse::<i64>().unwrap();
    assert!(pttl() > 58_000, "{} ms", pttl());
    assert!(guard.remaining() <= Duration::from_millis(500));
    guard.renew().await.unwrap();
    assert!(pttl() > 58_000, "{} ms", pttl());
    assert!(guard.remaining() <= Duration::from_millis(500));
    guard.release().await.unwrap();
    assert_eq!(pttl(), -2, "a released lock is free");

    // Not renewed, as if the process had been killed.
    let manual = options.renewal(stanchion::Renewal::Manual);
    let guard = lock.acquire_with(manual).await.unwrap();
    assert_eq!(
        guard.ended().await,
        stanchion::Ended::Lost(LostReason::Expired)
    );
    // The lease has ended, and the name rests: another client is refused.
    assert!(pttl() > 50_000, "{} ms", pttl());
    let there = Lock::new(&other, "lock").unwrap();
    assert!(there.try_acquire().await.unwrap().is_none());
    // The client has detected the loss, so the drop frees the name at once.
    drop(guard);
    world.at_rest().await;
}

async fn waiting_for_a_free_lock_takes_nothing(world: &World) {
    let (one, two) = (world.client().await, world.client().await);
    let [lock, there] = [&one, &two].map(|client| Lock::new(client, "lock").unwrap());
    lock.wait_free(None).await.unwrap();
    assert!(world.keys().is_empty());
    let guard = lock.acquire().await.unwrap();
    match there.wait_free(Some(Duration::from_millis(20))).await {
        Err(AcquireError::TimedOut { free_by: None, .. }) => {}
        other => panic!("{other:?}"),
    }
    guard.release().await.unwrap();
    there.wait_free(Some(Duration::ZERO)).await.unwrap();
    world.at_rest().await;
}

async fn a_release_wakes_calls_that_wait_for_a_free_lock(world: &World) {
    let (one, two) = (world.client().await, world.client().await);
    let lock = Lock::new(&one, "lock").unwrap();
    let guard = lock.acquire().await.unwrap();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let there = Lock::new(&two, "lock").unwrap();
            tokio::spawn(async move { there.wait_free(None).await })
        })
        .collect();
    eventually("the calls wait", || two.waiters() == 3).await;
    eventually("the client is subscribed", || {
        world.subscribers("redisson_lock__channel:{lock}") > 0
    })
    .await;
    world.quiet().await;
    // The first release grants to a queued client. The lock is free after the release of that client.
    let next = tokio::spawn({
        let lock = Lock::new(&one, "lock").unwrap();
        async move { lock.acquire().await.unwrap() }
    });
    eventually("the call waits", || one.waiters() == 1).await;
    guard.release().await.unwrap();
    let last = next.await.unwrap();
    let started = one.now();
    last.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    // By message: far below the poll interval and the rest of the lease.
    assert!(one.now().since(started) < world.limit(Duration::from_millis(50)));
    world.at_rest().await;
}

async fn on_queued_is_called_once_for_each_waiter(world: &World) {
    let (one, two) = (world.client().await, world.client().await);
    let queued_calls = Arc::new(AtomicUsize::new(0));
    let options = AcquireOptions::new().on_queued({
        let queued_calls = Arc::clone(&queued_calls);
        move || {
            queued_calls.fetch_add(1, Ordering::SeqCst);
        }
    });
    let locks: [Box<dyn Acquire>; 2] = [
        Box::new(Lock::new(&one, "lock").unwrap()),
        Box::new(FairLock::new(&one, "fair").unwrap()),
    ];
    let others: [Box<dyn Acquire>; 2] = [
        Box::new(Lock::new(&two, "lock").unwrap()),
        Box::new(FairLock::new(&two, "fair").unwrap()),
    ];
    for (lock, other) in locks.iter().zip(&others) {
        let held = lock.acquire_with(options.clone()).await.unwrap();
        assert!(
            other
                .try_acquire_with(AcquireOptions::new())
                .await
                .unwrap()
                .is_none()
        );
        assert_eq!(queued_calls.load(Ordering::SeqCst), 0, "no call waits");
        // The first call waits for the other client, the second behind the first call in the local queue.
        let waiting = [other, other].map(|it| tokio::spawn(it.acquire_with(options.clone())));
        eventually("both calls are queued", || {
            queued_calls.load(Ordering::SeqCst) == 2
        })
        .await;
        held.release().await.unwrap();
        for waiter in waiting {
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(queued_calls.swap(0, Ordering::SeqCst), 2, "once each");
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
    let reading = lock.read_with(options).await.unwrap();
    assert!(!danger.force_release_readers().await.unwrap());
    writer.renew().await.unwrap();
    assert!(danger.force_release_writer().await.unwrap());
    assert!(writer.renew().await.is_err());
    drop(reading);
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
    let single = FairLock::new(&one, "b").unwrap().acquire().await.unwrap();
    assert_eq!(there.danger().force_release().await.unwrap(), 1);
    drop(single);
    let _all = there.acquire_timeout(Duration::from_secs(5)).await.unwrap();
    assert_eq!(there.danger().force_release().await.unwrap(), 3);
}
