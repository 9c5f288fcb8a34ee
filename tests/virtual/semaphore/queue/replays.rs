//! Tests requests for permits that are resent after a lost reply: the second reply says whether the process is queued.

use stanchion::LeasedSemaphore;
use stanchion_tests::{assert_within, manual, ms};

use super::*;

/// P4: another waiter of the process joins while the first sends its request again. The next release wakes it.
async fn joins_during_the_resend(
    world: &World,
    kind: Kind,
    here: &Client,
    first: JoinHandle<Seat>,
    held: Seat,
) {
    let next = taking(kind, here, 1);
    let first = first.await.unwrap();
    world.faults().clear();
    tokio::time::sleep(ms(200)).await;
    assert!(!next.is_finished());
    let released = Instant::now();
    held.release().await.unwrap();
    let next = next.await.unwrap();
    assert_within(released, ms(20), kind);
    first.release().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_joins_during_a_repeated_request_is_queued() {
    let kind = Kind::Plain;
    let (world, clients, held, mut waiters) = with_waiting_processes(kind, 2, 1).await;
    let holder = kind.on(&clients[1]);
    holder.add(1).await.unwrap();
    let first = waiters.remove(0).await.unwrap();
    let waiting = taking(kind, &clients[0], 1);
    processes_wait(&world, kind, 1).await;
    // Wakes the waiter in 20 ms. The reply to its request is lost.
    let faults = world.faults();
    faults.delay(Some("p0"), ms(20));
    holder.add(1).await.unwrap();
    faults.lose_replies("EVALSHA", 1);
    eventually("the request is granted", || kind.held(&world) == 4).await;
    joins_during_the_resend(&world, kind, &clients[0], waiting, held).await;
    first.release().await.unwrap();
    kind.at_rest(&world, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_joins_during_a_repeated_request_for_an_ended_lease_is_queued() {
    let kind = Kind::Leased;
    let world = World::engine();
    let [holder, other, here] = [
        world.named("holder").await,
        world.named("other").await,
        world.named("here").await,
    ];
    kind.on(&holder).init(2).await.unwrap();
    let held = kind.on(&holder).acquire(1).await.unwrap();
    let ends = manual(ms(2000));
    let permits = LeasedSemaphore::new(&other, NAME).unwrap();
    let _ended = permits.acquire_with(1, ends).await.unwrap();
    let acquired = Instant::now();
    let waiting = taking(kind, &here, 1);
    processes_wait(&world, kind, 1).await;
    // The waiter sends a request when the lease ends. Its reply is lost.
    tokio::time::sleep_until(acquired + ms(1990)).await;
    let faults = world.faults();
    faults.delay(Some("here"), ms(20));
    faults.lose_replies("EVALSHA", 1);
    tokio::time::sleep_until(acquired + ms(2005)).await;
    assert!(!waiting.is_finished());
    joins_during_the_resend(&world, kind, &here, waiting, held).await;
    kind.at_rest(&world, 2).await;
}
