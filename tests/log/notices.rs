//! Tests the warning for a user without the right to subscribe to notices about its holds.

use stanchion::Lock;
use stanchion_tests::{World, ms, secs};
use tokio::time::Instant;

use crate::outages::{count, listen};

#[tokio::test(start_paused = true)]
async fn a_refused_channel_logs_one_warning_and_the_next_renewal_notices_a_forced_release() {
    let (log, _listening) = listen();
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let faults = world.faults();
    let refusal = "NOPERM No permissions to access a channel";
    faults.fail_next("subscribe", refusal, 1000);
    let guard = lock.acquire().await.unwrap();
    let watching = tokio::spawn(guard.requested());
    tokio::time::sleep(secs(60)).await;
    // The client subscribes again on the next connection, and is refused again.
    faults.kill_connections();
    tokio::time::sleep(secs(63)).await;
    assert_eq!(count(&log, "WARN", "no right to hear"), 1, "{}", log.text());
    assert!(world.as_engine().stats().count("SUBSCRIBE") < 10);
    assert_eq!(lock.request_release("x").await.unwrap().heard, 0);
    let forced = Instant::now();
    assert!(lock.danger().force_release().await.unwrap());
    guard.lost().await;
    let third = guard.valid_until().since(client.now());
    assert!(third < secs(30) && forced.elapsed() < secs(11));
    assert!(forced.elapsed() > secs(1));
    assert!(!watching.is_finished());
    // The user gets the right later.
    faults.clear();
    let guard = lock.acquire().await.unwrap();
    faults.kill_connections();
    tokio::time::sleep(secs(3)).await;
    let forced = Instant::now();
    assert!(lock.danger().force_release().await.unwrap());
    guard.lost().await;
    assert!(forced.elapsed() < ms(10));
}
