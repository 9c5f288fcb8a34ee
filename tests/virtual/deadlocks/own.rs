//! A task that waits for a lock that it holds itself logs a warning.

use std::sync::{Arc, Mutex};

use stanchion::{AcquireOptions, Client, FairLock, Lock, RwLock, Semaphore};
use stanchion_tests::{World, ms, secs};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A subscriber that collects warnings.
#[derive(Clone, Debug, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Warnings {
    /// Removes all warnings and returns those about a lock that is already held.
    fn taken(&self) -> Vec<String> {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap());
        all.retain(|it| it.contains("holds"));
        all
    }
}

async fn assert_waits<T>(work: impl Future<Output = T>) {
    let waited = tokio::time::timeout(secs(13), work).await;
    assert!(waited.is_err(), "the call must not end");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_an_own_lock_is_warned_of_once_per_name() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let world = World::engine();
    let client: Client = world.client().await;
    let task = async move {
        let lock = |name| Lock::new(&client, name).unwrap();
        let held = lock("orders").acquire().await.unwrap();
        // The first wait warns at once. The second, below, does not.
        let at_once = ms(50);
        assert!(lock("orders").acquire_timeout(at_once).await.is_err());
        let [warning] = &warnings.taken()[..] else {
            panic!("expected one warning");
        };
        assert!(
            warning.contains("this task holds \"orders\" already"),
            "{warning}"
        );
        assert_waits(lock("orders").acquire()).await;
        assert_eq!(warnings.taken(), [""; 0]);
        drop(held);

        let fair = FairLock::new(&client, "tickets").unwrap();
        let _held = fair.acquire().await.unwrap();
        assert!(fair.acquire_timeout(at_once).await.is_err());
        assert_eq!(warnings.taken().len(), 1);
        assert_waits(fair.acquire()).await;
        assert_eq!(warnings.taken(), [""; 0]);

        // No local queue knows the reader, so the next heartbeat logs the warning.
        let prices = RwLock::new(&client, "prices").unwrap();
        let _reads = prices.read().await.unwrap();
        assert_waits(prices.write()).await;
        assert_eq!(warnings.taken().len(), 1);

        // No warning: a task may hold several permits, and an owner may re-enter.
        let pool = Semaphore::new(&client, "pool").unwrap();
        pool.init(1).await.unwrap();
        let _permit = pool.acquire().await.unwrap();
        assert_waits(pool.acquire()).await;
        let owner = client.owner();
        let again = AcquireOptions::new().owner(&owner);
        let _held = lock("own").acquire_with(again.clone()).await.unwrap();
        let _twice = lock("own").acquire_with(again).await.unwrap();
        // No warning: another task holds the lock.
        let held = tokio::spawn(lock("other").acquire())
            .await
            .unwrap()
            .unwrap();
        assert_waits(lock("other").acquire()).await;
        drop(held);
        assert_eq!(warnings.taken(), [""; 0]);
    };
    tokio::spawn(task).await.unwrap();
}
