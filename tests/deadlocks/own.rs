//! A task that waits for what it holds itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stanchion::{AcquireOptions, Client, FairLock, Lock, RwLock, Semaphore};
use stanchion_tests::World;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the warnings.
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
    /// Those of holding already, since the last call.
    fn taken(&self) -> Vec<String> {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap());
        all.retain(|it| it.contains("holds"));
        all
    }
}

async fn short<T>(work: impl Future<Output = T>) {
    let waited = tokio::time::timeout(Duration::from_secs(13), work).await;
    assert!(waited.is_err(), "it waits for itself");
}

#[tokio::test(start_paused = true)]
async fn is_warned_of_once_for_a_name() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let world = World::engine();
    let client: Client = world.client().await;
    let task = async move {
        let lock = |name| Lock::new(&client, name).unwrap();
        let held = lock("orders").acquire().await.unwrap();
        // At once, and once.
        let at_once = Duration::from_millis(50);
        assert!(lock("orders").acquire_timeout(at_once).await.is_err());
        let [warning] = &warnings.taken()[..] else {
            panic!("one warning");
        };
        assert!(
            warning.contains("this task holds \"orders\" already"),
            "{warning}"
        );
        short(lock("orders").acquire()).await;
        assert_eq!(warnings.taken(), [""; 0]);
        drop(held);

        let fair = FairLock::new(&client, "tickets").unwrap();
        let _held = fair.acquire().await.unwrap();
        assert!(fair.acquire_timeout(at_once).await.is_err());
        assert_eq!(warnings.taken().len(), 1);
        short(fair.acquire()).await;
        assert_eq!(warnings.taken(), [""; 0]);

        // Within a beat where no queue of this process knows the holder.
        let prices = RwLock::new(&client, "prices").unwrap();
        let _reads = prices.read().await.unwrap();
        short(prices.write()).await;
        assert_eq!(warnings.taken().len(), 1);

        // Permits may be held twice, and an owner re-enters.
        let pool = Semaphore::new(&client, "pool").unwrap();
        pool.init(1).await.unwrap();
        let _permit = pool.acquire().await.unwrap();
        short(pool.acquire()).await;
        let owner = client.owner();
        let again = AcquireOptions::new().owner(&owner);
        let _held = lock("own").acquire_with(again.clone()).await.unwrap();
        let _twice = lock("own").acquire_with(again).await.unwrap();
        // Another task's hold.
        let held = tokio::spawn(lock("other").acquire())
            .await
            .unwrap()
            .unwrap();
        short(lock("other").acquire()).await;
        drop(held);
        assert_eq!(warnings.taken(), [""; 0]);
    };
    tokio::spawn(task).await.unwrap();
}
