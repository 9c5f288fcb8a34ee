//! Tests P7 for a queue of more processes than one call reaches.

use super::*;
use stanchion_tests::{ms, secs, together};

/// The processes that a call does not reach keep their places.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_not_taken_keeps_the_order_of_a_long_queue() {
    for stopped in [false, true] {
        let (world, clients) = World::engine().with_fleet(100).await;
        let lock = |n: usize| FairLock::new(&clients[n], "job").unwrap();
        let guard = lock(0).acquire().await.unwrap();
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let mut waiters = Vec::new();
        for n in 1..clients.len() {
            let (lock, order) = (lock(n), Arc::clone(&order));
            waiters.push(tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                order.lock().unwrap().push(n);
                sleep(ms(1)).await;
                // The hold of a process that was stopped may have ended.
                let _ = guard.release().await;
            }));
            sleep(ms(3)).await;
        }
        // All are subscribed, and have sent no request for a second.
        sleep(ms(1500)).await;
        let faults = world.faults();
        if stopped {
            faults.freeze(Some("p1"));
        } else {
            faults.lose_messages(1);
        }
        guard.release().await.unwrap();
        sleep(secs(8)).await;
        faults.thaw(None);
        together(waiters).await;
        let mut order = order.lock().unwrap().clone();
        assert_eq!(order.len(), 99, "{order:?}");
        if stopped {
            order.retain(|n| *n != 1);
        }
        assert!(order.is_sorted(), "stopped {stopped}: {order:?}");
    }
}
