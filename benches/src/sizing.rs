//! Bytes on the server: its report for the keys that very many holds leave (MEMORY USAGE, all elements counted).

use std::time::Duration;

use anyhow::Result;
use stanchion::{Client, FairLock, LeasedSemaphore, Lock, RwLock, Semaphore};
use stanchion_testkit::RedisServer;

use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

/// The memory of all keys together.
fn used(server: &RedisServer) -> f64 {
    let bytes = |key: &String| {
        let usage = server.cli(&["MEMORY", "USAGE", key, "SAMPLES", "0"]);
        if usage.is_nil() { 0 } else { usage.as_int() }
    };
    server.keys().iter().map(bytes).sum::<i64>() as f64
}

pub(crate) fn server_memory(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let mut table = Table {
        server,
        many: plan.many.min(1000),
        report,
    };
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        table
            .holds("a held Lock", async |i| {
                Ok(Lock::new(&client, format!("bench:lock:{i:06}"))?
                    .acquire()
                    .await?)
            })
            .await?;
        table
            .holds("a held FairLock", async |i| {
                Ok(FairLock::new(&client, format!("bench:fair:{i:06}"))?
                    .acquire()
                    .await?)
            })
            .await?;
        table
            .holds("a reader of one RwLock", async |_| {
                Ok(RwLock::new(&client, "bench:readers")?.read().await?)
            })
            .await?;
        let leased = LeasedSemaphore::new(&client, "bench:leased")?;
        leased.init(2000).await?;
        table
            .holds("a permit of one LeasedSemaphore", async |_| {
                Ok(leased.acquire().await?)
            })
            .await?;
        let plain = Semaphore::new(&client, "bench:plain")?;
        plain.init(2000).await?;
        table
            .holds("a permit of one Semaphore", async |_| {
                Ok(plain.acquire().await?)
            })
            .await?;
        table.waiters().await
    })
}

struct Table<'a> {
    server: &'a RedisServer,
    many: usize,
    report: &'a mut Report,
}

impl Table<'_> {
    async fn holds<G>(
        &mut self,
        what: &str,
        mut acquire: impl AsyncFnMut(usize) -> Result<G>,
    ) -> Result<()> {
        // Creates the keys that always exist: the fence, the number of permits.
        drop(acquire(self.many).await?);
        self.settle().await;
        let before = used(self.server);
        let mut held = Vec::with_capacity(self.many);
        for i in 0..self.many {
            held.push(acquire(i).await?);
        }
        // Marks of finished operations last for some seconds.
        self.settle().await;
        self.row(what, before);
        drop(held);
        self.settle().await;
        self.server.flush();
        Ok(())
    }

    async fn waiters(&mut self) -> Result<()> {
        let client = Client::connect(self.server.url()).await?;
        let lock = FairLock::new(&client, "bench:queue")?;
        let _held = lock.acquire().await?;
        let before = used(self.server);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.many {
            let lock = lock.clone();
            tasks.spawn(async move { lock.acquire().await.map(drop) });
        }
        while client.waiters() < self.many {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.row("a waiter in the queue of one FairLock", before);
        Ok(())
    }

    /// Waits until no operation's mark is left.
    async fn settle(&self) {
        let is_mark = |key: &String| key.starts_with("stanchion_once:");
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if !self.server.keys().iter().any(is_mark) {
                break;
            }
        }
    }

    fn row(&mut self, what: &str, before: f64) {
        let bytes = (used(self.server) - before) / self.many as f64;
        self.report.row(
            "memory",
            format!("{what}: bytes on the server"),
            Spread::one(bytes),
            Target::None,
            format!("MEMORY USAGE, {} of them", self.many),
        );
    }
}
