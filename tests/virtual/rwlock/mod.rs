//! Tests the read-write lock: what only it has of cancellation and lost replies, the queue, and the scripts.

mod cancellation;
mod direct;
mod direct_queue;
mod direct_readers;
mod direct_redisson;

mod line;
mod lost;
mod outside;
mod sharers;
mod turns;

use stanchion::rwlock::Preference;
use stanchion::{Client, RwLock};
use stanchion_tests::ms;

fn rwlock(client: &Client) -> RwLock {
    RwLock::new(client, "job").unwrap()
}

fn preferring(client: &Client) -> RwLock {
    rwlock(client).preference(Preference::Writer)
}

/// Caches every script on the server, so that a fault on the next EVALSHA hits the operation under test.
async fn warm(client: &Client) {
    for lock in [rwlock(client), preferring(client)] {
        let reading = lock.read().await.unwrap();
        let again = reading.reenter().await.unwrap();
        reading.renew().await.unwrap();
        drop(lock.write_timeout(ms(50)).await);
        again.release().await.unwrap();
        reading.release().await.unwrap();
        let writing = lock.write().await.unwrap();
        let again = writing.reenter().await.unwrap();
        writing.renew().await.unwrap();
        again.release().await.unwrap();
        let reading = writing.downgrade().await.unwrap();
        reading.release().await.unwrap();
        let writing = lock.write().await.unwrap();
        writing.release().await.unwrap();
        lock.status().await.unwrap();
    }
}
