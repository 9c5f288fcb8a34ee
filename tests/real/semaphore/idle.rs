//! Tests semaphores with idle expiry (`ephemeral`).

use stanchion::{Event, LeasedSemaphore, Semaphore};
use stanchion_tests::permits::{KINDS, LEASES, LEDGER, NAME, free};
use stanchion_tests::{World, lease, ms, secs};
use tokio::time::sleep;

use stanchion_tests::idle::*;

suite! {
    an_unused_semaphore_expires_and_leaves_nothing,
    permits_of_a_closed_client_keep_the_semaphore_until_they_are_reclaimed,
    a_delete_removes_all_keys_of_the_semaphore,
    a_semaphore_without_the_option_does_not_expire,
    an_expiry_is_reported_as_an_event,
    semaphores_with_unusual_names_expire,
}

async fn an_unused_semaphore_expires_and_leaves_nothing(world: &World) {
    for kind in KINDS {
        let ours = world.client().await;
        let brief = lease(secs(1));
        let seats = ephemeral(kind, &ours, 1000).lease(brief);
        let held = seats.acquire(3).await.unwrap();
        sleep(ms(2500)).await;
        assert_eq!(free(world), 0, "the held semaphore exists");
        held.release().await.unwrap();
        let left = ttl(world, NAME);
        assert!(left > 0 && left <= 2000, "{left}");
        is_gone(world).await;
        // For handles without the option the semaphore does not exist.
        assert!(kind.on(&ours).try_acquire(1).await.unwrap().is_none());
        assert!(kind.on(&ours).init(1).await.unwrap());
        stays(world);
        clear(world);
    }
}

async fn permits_of_a_closed_client_keep_the_semaphore_until_they_are_reclaimed(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let seats = Semaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(LONG));
    let lost = Semaphore::new(&theirs, NAME).unwrap();
    assert!(seats.init(3).await.unwrap());
    let permit = lost.acquire_many(2).await.unwrap();
    let owner = permit.owner().as_str().to_owned();
    theirs.shutdown(secs(1)).await;
    drop(permit);
    assert_eq!(free(world), 1);
    assert!(ttl(world, NAME) > YEARS);
    assert_eq!(seats.danger().reclaim(&owner).await.unwrap(), 2);
    assert_eq!(free(world), 3);
    ends_in(world, LONG);
    // `reclaim` adds no permits beyond the total.
    let _ = world.admin(&["HSET", LEDGER, "gone:1", "2"]);
    assert_eq!(seats.danger().reclaim("gone:1").await.unwrap(), 0);
    assert_eq!(free(world), 3);
    ends_in(world, LONG);
}

async fn a_delete_removes_all_keys_of_the_semaphore(world: &World) {
    let ours = world.client().await;
    let seats = Semaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(LONG));
    let held = seats.acquire().await.unwrap();
    assert!(seats.danger().delete().await.unwrap());
    is_gone(world).await;
    // The next acquire creates a new semaphore.
    let another = seats.acquire().await.unwrap();
    assert!(held.release().await.is_err());
    another.release().await.unwrap();
    assert_eq!(free(world), 3);
    clear(world);
    let seats = LeasedSemaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(LONG));
    let held = seats.acquire().await.unwrap();
    assert!(seats.danger().delete().await.unwrap());
    is_gone(world).await;
    drop(held);
}

async fn a_semaphore_without_the_option_does_not_expire(world: &World) {
    for kind in KINDS {
        clear(world);
        let ours = world.client().await;
        let seats = kind.on(&ours);
        assert!(seats.init(2).await.unwrap());
        seats.acquire(1).await.unwrap().release().await.unwrap();
        let before = world.scripts_run();
        let held = seats.acquire(2).await.unwrap();
        held.release().await.unwrap();
        assert_eq!(world.scripts_run() - before, 2);
        stays(world);
        let held = seats.acquire(2).await.unwrap();
        let waiter = waiting(&seats, 1);
        world.quiet().await;
        held.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(seats.reduce(1).await.unwrap(), 1);
        stays(world);
        assert_eq!(ttl(world, LEASES), -2);
    }
}

async fn an_expiry_is_reported_as_an_event(world: &World) {
    let ours = world.client().await;
    let seats = LeasedSemaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(1000));
    let mut events = seats.events();
    assert!(
        matches!(events.next().await, Some(Event::Now(state)) if state.available.is_none()),
        "the semaphore does not exist yet"
    );
    assert!(seats.init(3).await.unwrap());
    assert_eq!(events.next().await, Some(Event::Available(3)));
    assert_eq!(events.next().await, Some(Event::Deleted));
}

async fn semaphores_with_unusual_names_expire(world: &World) {
    let ours = world.client().await;
    for name in ["{seats}", "a{7}b", "with\nnewline", "}{", "sch\u{f6}n"] {
        for kind in KINDS {
            let brief = lease(secs(1));
            let seats = kind.named(&ours, name).lease(brief);
            let seats = seats.ephemeral(2, after(1000));
            let held = seats.acquire(1).await.unwrap();
            assert_eq!(seats.available().await.unwrap(), 1);
            held.release().await.unwrap();
            is_gone(world).await;
        }
    }
}
