//! Tests of the whole life of a hold: re-entry, detach and adopt, `max_hold`. In virtual time.

use stanchion::{
    AcquireOptions, AdoptError, Client, FairLock, HoldTicket, LeasedSemaphore, Lock, LostReason,
    RenewError, RwLock, Semaphore,
};
use stanchion_tests::{World, lease, ms};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The server's time to live of `key`, in ms.
fn ttl(world: &World, key: &str) -> i64 {
    world.admin(&["PTTL", key]).parse().unwrap()
}

/// Waits for the end of `next` for a while. P1: the hold before it has ended by then.
async fn never_two<T>(next: &JoinHandle<T>, is_held: impl Fn() -> bool, kind: &str) {
    let until = Instant::now() + ms(20_000);
    while Instant::now() < until {
        assert!(!(next.is_finished() && is_held()), "{kind}: two hold");
        sleep(ms(5)).await;
    }
}

/// P1: the server's clock is stepped forward between the last reading and the message that grants. The client cannot know the moment of
/// the decision, but that moment is before the arrival of the message.
#[tokio::test(start_paused = true)]
async fn a_grant_by_message_is_not_dated_later_than_its_receipt() {
    macro_rules! check {
        ($kind:literal, $type:ident, $world:ident, $acquire:ident($($permits:literal)?)) => {{
            let clients = [$world.client().await, $world.client().await, $world.client().await];
            let options = || AcquireOptions::new().lease(lease(ms(60_000)));
            let acquire = |client: &Client| {
                let it = $type::new(client, $kind).unwrap();
                async move { it.$acquire($($permits,)? options()).await.unwrap() }
            };
            let first = acquire(&clients[0]).await;
            let second = tokio::spawn(acquire(&clients[1]));
            sleep(ms(1500)).await;
            let third = tokio::spawn(acquire(&clients[2]));
            sleep(ms(1500)).await;
            $world.faults().step_clock(5_000);
            first.release().await.unwrap();
            let second = second.await.unwrap();
            never_two(&third, || second.is_held(), $kind).await;
            second.release().await.unwrap();
            third.await.unwrap().release().await.unwrap();
        }};
    }
    let world = World::engine();
    check!("lock", Lock, world, acquire_with());
    check!("fair", FairLock, world, acquire_with());
    let setter = world.client().await;
    let permits = LeasedSemaphore::new(&setter, "permits").unwrap();
    permits.init(1).await.unwrap();
    check!("permits", LeasedSemaphore, world, acquire_with(1));
}

/// P1: either the re-entry counts, and the hold cannot be detached; or it is detached, and the re-entry is an acquire that waits.
#[tokio::test(start_paused = true)]
async fn a_hold_is_re_entered_or_detached_but_never_both() {
    let (mut detached, mut reentered) = (0, 0);
    for (reentry_first, pause) in [false, true]
        .into_iter()
        .flat_map(|it| (0..12).map(move |n| (it, n)))
    {
        let (world, [here, there]) = World::slow_engine().with_clients().await;
        let owner = here.owner();
        let [lock, other] = [&here, &there].map(|client| Lock::new(client, "job").unwrap());
        let own = || AcquireOptions::new().owner(&owner);
        let guard = lock.acquire_with(own()).await.unwrap();
        let detach = async move {
            sleep(ms(if reentry_first { pause } else { 0 })).await;
            guard.detach().await
        };
        let again = lock.clone();
        let options = own();
        let reenter = async move {
            sleep(ms(if reentry_first { 0 } else { pause })).await;
            again.acquire_with(options).await.unwrap()
        };
        let (detach, reenter) = (tokio::spawn(detach), tokio::spawn(reenter));
        match detach.await.unwrap() {
            Ok(ticket) => {
                detached += 1;
                let adopted = other.adopt(&ticket).await.unwrap();
                sleep(ms(200)).await;
                assert!(adopted.is_held() && !reenter.is_finished(), "two hold");
                adopted.release().await.unwrap();
                let guard = reenter.await.unwrap();
                assert!(guard.is_held());
                guard.release().await.unwrap();
            }
            Err(error) => {
                reentered += 1;
                assert!(matches!(error, RenewError::Rejected { .. }), "{error}");
                assert!(error.to_string().contains("held 2 times"), "{error}");
                let guard = reenter.await.unwrap();
                assert!(other.try_acquire().await.unwrap().is_none());
                guard.release().await.unwrap();
            }
        }
        world.at_rest().await;
    }
    assert!(detached > 0 && reentered > 0, "{detached}, {reentered}");
}

/// The lease and the longest hold that the tests of `max_hold` use.
fn bounded() -> AcquireOptions {
    AcquireOptions::new()
        .lease(lease(ms(3_000)))
        .max_hold(ms(10_000))
}

/// Asserts that a hold that began at `began` is lost as `max_hold` says, and that the server does not keep it for much longer.
async fn ends_in_time(
    world: &World,
    key: &str,
    began: Instant,
    lost: impl Future<Output = LostReason>,
) {
    let left = ms(10_000).saturating_sub(began.elapsed()).as_millis();
    let kept = u128::try_from(ttl(world, key)).unwrap();
    // The margin of a lease of all that time: 1 %, and its rounding.
    assert!(
        kept <= left + 105,
        "{kept} ms on the server, {left} ms left"
    );
    assert_eq!(lost.await, LostReason::MaxHold);
    let lasted = began.elapsed();
    assert!(lasted >= ms(9_990) && lasted <= ms(10_010), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn max_hold_does_not_begin_again_with_a_downgrade() {
    let world = World::engine();
    let lock = RwLock::new(&world.client().await, "job").unwrap();
    let began = Instant::now();
    let guard = lock.write_with(bounded()).await.unwrap();
    sleep(ms(9_000)).await;
    let guard = guard.downgrade().await.unwrap();
    ends_in_time(&world, "job", began, guard.lost()).await;
}

#[tokio::test(start_paused = true)]
async fn a_ticket_carries_max_hold() {
    let (world, [here, there]) = World::engine().with_clients().await;
    for longer in [false, true] {
        let [lock, other] = [&here, &there].map(|client| Lock::new(client, "job").unwrap());
        let began = Instant::now();
        let guard = lock.acquire_with(bounded()).await.unwrap();
        sleep(ms(9_500)).await;
        let ticket = match longer {
            false => guard.detach().await.unwrap(),
            true => guard.detach_for(lease(ms(60_000))).await.unwrap(),
        };
        assert!(ttl(&world, "job") <= 510, "{}", ttl(&world, "job"));
        assert!(ticket.lease().length() <= ms(510), "{ticket:?}");
        let ticket: HoldTicket = ticket.to_string().parse().unwrap();
        let options = match longer {
            false => AcquireOptions::new(),
            true => bounded().max_hold(ms(3_600_000)),
        };
        let guard = other.adopt_with(&ticket, options).await.unwrap();
        ends_in_time(&world, "job", began, guard.lost()).await;
        drop(guard);
        world.at_rest().await;
    }
    // The client that adopts may set a shorter `max_hold`.
    let [lock, other] = [&here, &there].map(|client| Lock::new(client, "job").unwrap());
    let ticket = lock
        .acquire()
        .await
        .unwrap()
        .detach_for(lease(ms(60_000)))
        .await
        .unwrap();
    let began = Instant::now();
    let guard = other.adopt_with(&ticket, bounded()).await.unwrap();
    ends_in_time(&world, "job", began, guard.lost()).await;
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_hold_that_was_renewed_for_longer_or_re_entered() {
    let world = World::engine();
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let began = Instant::now();
    let guard = lock.acquire_with(bounded()).await.unwrap();
    guard.renew_for(lease(ms(60_000))).await.unwrap();
    sleep(ms(9_000)).await;
    let inner = guard.reenter().await.unwrap();
    drop(guard);
    inner.renew().await.unwrap();
    ends_in_time(&world, "job", began, inner.lost()).await;
    drop(inner);
    world.at_rest().await;
    // Shorter than the lease.
    let began = Instant::now();
    let options = AcquireOptions::new().max_hold(ms(10_000));
    let guard = lock.acquire_with(options).await.unwrap();
    ends_in_time(&world, "job", began, guard.lost()).await;
}

/// The data of a hold that the server shows is not enough to take the hold over.
#[tokio::test(start_paused = true)]
async fn a_ticket_cannot_be_forged_from_a_status() {
    let (_world, [here, there]) = World::engine().with_clients().await;
    let [lock, other] = [&here, &there].map(|client| Lock::new(client, "job").unwrap());
    let genuine = {
        let lock = Lock::new(&here, "other").unwrap();
        let ticket = lock.acquire().await.unwrap().detach().await.unwrap();
        ticket.to_string()
    };
    let forged = |owner: &str| {
        let number = owner.split_once(':').unwrap().1;
        let parts: Vec<&str> = genuine.split('/').collect();
        let mut texts = Vec::new();
        for mine in [
            owner.to_owned(),
            format!("{}:{number:0>32}", here.id()),
            format!("{}:{:032x}", here.id(), number.parse::<u128>().unwrap()),
        ] {
            let mut parts = parts.clone();
            parts[2] = &mine;
            *parts.last_mut().unwrap() = "job";
            texts.push(parts.join("/"));
        }
        texts
    };
    let read = async || lock.status().await.unwrap().holder.unwrap().owner;
    let refused = async |owner: String| {
        for text in forged(&owner) {
            // A text that is no ticket is refused earlier.
            let Ok(ticket) = text.parse::<HoldTicket>() else {
                continue;
            };
            let adopted = other.adopt(&ticket).await;
            assert!(
                matches!(adopted, Err(AdoptError::Gone { .. })),
                "{text}: {adopted:?}"
            );
        }
    };
    let guard = lock.acquire().await.unwrap();
    refused(read().await).await;
    assert!(guard.is_held() && other.try_acquire().await.unwrap().is_none());
    let ticket = guard.detach().await.unwrap();
    assert_eq!(read().await, ticket.owner());
    refused(read().await).await;
    other.adopt(&ticket).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_ticket_with_a_short_lease_ends_with_it() {
    let (world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "lock").unwrap();
    let ticket = lock
        .acquire()
        .await
        .unwrap()
        .detach_for(lease(ms(2_000)))
        .await
        .unwrap();
    assert!(ttl(&world, "lock") <= 2_000, "{}", ttl(&world, "lock"));
    drop(timeout(ms(2_500), lock.acquire()).await.unwrap().unwrap());
    assert!(lock.adopt(&ticket).await.is_err());
    let fair = FairLock::new(&client, "fair").unwrap();
    let guard = fair.acquire().await.unwrap();
    guard.detach_for(lease(ms(2_000))).await.unwrap();
    assert!(ttl(&world, "fair") <= 2_000, "{}", ttl(&world, "fair"));
    // The client that adopts has its own lease, even if the ticket would have lasted longer.
    let ticket = lock
        .acquire()
        .await
        .unwrap()
        .detach_for(lease(ms(600_000)))
        .await
        .unwrap();
    let guard = lock.adopt(&ticket).await.unwrap();
    assert!(ttl(&world, "lock") <= 30_000, "{}", ttl(&world, "lock"));
    guard.release().await.unwrap();
}

/// P8: a hold that `max_hold` has ended is not reported once the server no longer has it.
#[tokio::test(start_paused = true)]
async fn a_hold_over_its_max_hold_is_not_reported_for_its_lease() {
    let (world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let options = AcquireOptions::new().max_hold(ms(1_000));
    let guard = lock.acquire_with(options).await.unwrap();
    guard.lost().await;
    sleep(ms(5_000)).await;
    assert_eq!(world.admin(&["EXISTS", "job"]), "0");
    let report = client.shutdown(ms(1_000)).await;
    assert!(report.abandoned.is_empty(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn an_error_without_a_bound_shows_no_number() {
    let world = World::engine();
    let semaphore = Semaphore::new(&world.client().await, "permits").unwrap();
    semaphore.init(1).await.unwrap();
    world.faults().lose_replies_silently("EVALSHA", 100);
    world.faults().lose_replies_silently("EVAL", 100);
    let error = semaphore.acquire_timeout(ms(3_000)).await.unwrap_err();
    let text = format!("{error:?} {error}");
    assert!(text.contains("free_by"), "{text}");
    assert!(!text.contains("18446744073709551615"), "{text}");
    assert!(
        error
            .to_string()
            .contains("as soon as the server answers again"),
        "{error}"
    );
}

/// P6: a re-entry is sent again, and its first request arrives after the next re-entry. The count on the server, which Redisson reads, is
/// not lowered by it.
#[tokio::test(start_paused = true)]
async fn a_late_re_entry_does_not_lower_the_count() {
    let (world, client) = World::engine().with_client().await;
    let counts = |key: &str| {
        let script = "return table.concat(redis.call('HVALS', KEYS[1]), ' ')";
        world
            .admin(&["EVAL", script, "1", key])
            .replace("read ", "")
            .replace("write ", "")
    };
    macro_rules! check {
        ($key:literal, $guard:expr) => {{
            let guard = $guard.await.unwrap();
            // Loads the script.
            guard.reenter().await.unwrap().release().await.unwrap();
            world.faults().hold_requests("EVALSHA", 1);
            let second = guard.reenter().await.unwrap();
            let third = guard.reenter().await.unwrap();
            assert_eq!(counts($key), "3", "{}", $key);
            world.faults().deliver();
            sleep(ms(10)).await;
            assert_eq!(counts($key), "3", "{}", $key);
            for guard in [third, second, guard] {
                guard.release().await.unwrap();
            }
        }};
    }
    check!("lock", Lock::new(&client, "lock").unwrap().acquire());
    check!("fair", FairLock::new(&client, "fair").unwrap().acquire());
    check!("read", RwLock::new(&client, "read").unwrap().read());
    check!("write", RwLock::new(&client, "write").unwrap().write());
    world.at_rest().await;
}
