//! The contract of the fair lock, on the engine: owners come in the order of arrival.

use std::sync::{Arc, Mutex};

use stanchion_fair::{AcquireOptions, Client, FairLock};
use tokio::sync::Notify;

#[tokio::test]
async fn owners_come_in_the_order_of_arrival() {
    let url = "memory://smoke";
    let holder = Client::connect(url).await.unwrap();
    let tickets = FairLock::new(&holder, "tickets").unwrap();
    let guard = tickets.acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for n in 0..4 {
        let client = Client::connect(url).await.unwrap();
        let (ours, order) = (
            FairLock::new(&client, "tickets").unwrap(),
            Arc::clone(&order),
        );
        let queued = Arc::new(Notify::new());
        let is_queued = Arc::clone(&queued);
        let options = AcquireOptions::new().on_queued(move || queued.notify_one());
        waiters.push(tokio::spawn(async move {
            let guard = ours.acquire_with(options).await.unwrap();
            order.lock().unwrap().push(n);
            guard.release().await.unwrap();
        }));
        is_queued.notified().await;
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}
