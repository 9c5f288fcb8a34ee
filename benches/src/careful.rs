//! The limit of the rows with 64 names: what any lock does in its process on the way, without the library.
//!
//! Around the same two requests on a bare connection: an owner of its own for each cycle, the end of each request's time as the server
//! reads it, a deadline for each reply, a place in a table of names while it asks, and one in a table of holds that a watchdog would
//! renew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::watch;

use crate::bare::{Pair, UUID};
use crate::contender::Contender;

/// A request's time.
const PATIENCE: Duration = Duration::from_secs(5);

/// State that the tasks of a process share.
#[derive(Debug, Default)]
struct Shared {
    owners: AtomicU64,
    /// For each name how many tasks ask for it.
    asking: Mutex<HashMap<String, usize>>,
    /// For each owner how to tell it that its hold is lost, and when the lease was asked for.
    holds: Mutex<HashMap<u64, (watch::Sender<bool>, Instant)>>,
}

/// Acquires and releases one name.
#[derive(Clone, Debug)]
pub(crate) struct Careful {
    connection: MultiplexedConnection,
    name: String,
    pair: Pair,
    shared: Arc<Shared>,
}

impl Careful {
    /// One for each of `names`, all on `connection`.
    pub(crate) async fn of(
        connection: &MultiplexedConnection,
        names: impl IntoIterator<Item = String>,
    ) -> Result<Vec<Self>> {
        let shared = Arc::new(Shared::default());
        let mut all = Vec::new();
        for name in names {
            let (mut connection, pair) = (connection.clone(), Pair::ours(&name));
            pair.load(&mut connection).await?;
            all.push(Self {
                connection,
                name,
                pair,
                shared: Arc::clone(&shared),
            });
        }
        Ok(all)
    }

    /// Returns the time after which the server is to refuse a request that is sent now.
    fn limit() -> String {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        (now + PATIENCE).as_micros().to_string()
    }

    async fn ask(&mut self, command: Cmd) -> Result<Value> {
        let reply = command.query_async(&mut self.connection);
        Ok(tokio::time::timeout(PATIENCE, reply).await??)
    }
}

impl Contender for Careful {
    async fn cycle(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let number = shared.owners.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{UUID}:{number}");
        let sent = Instant::now();
        *locked(&shared.asking).entry(self.name.clone()).or_default() += 1;
        let acquire = self.pair.acquire.command_as(&owner, &Self::limit());
        let reply = self.ask(acquire).await?;
        locked(&shared.asking).remove(&self.name);
        anyhow::ensure!(matches!(reply, Value::Int(1..)), "not granted: {reply:?}");
        let (tell, mut lost) = watch::channel(false);
        locked(&shared.holds).insert(number, (tell, sent));

        let (_, since) = locked(&shared.holds).remove(&number).context("not held")?;
        anyhow::ensure!(!*lost.borrow_and_update() && since.elapsed() < PATIENCE);
        let release = self.pair.release.command_as(&owner, &Self::limit());
        self.ask(release).await?;
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
