//! Bytes on the server: the growth of its memory by very many holds, the server's own overhead for keys included.

use std::time::Duration;

use anyhow::{Context as _, Result};
use stanchion::{Client, FairLock, LeasedSemaphore, Lock, RwLock, Semaphore};
use stanchion_testkit::RedisServer;

use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

fn used(server: &RedisServer) -> Result<f64> {
    let used = server.info("memory", "used_memory").context("no memory")?;
    Ok(used.trim().parse()?)
}

pub(crate) fn server_memory(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let mut table = Table {
        server,
        many: plan.many,
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
        leased.init(u32::try_from(plan.many)?).await?;
        table
            .holds("a permit of one LeasedSemaphore", async |_| {
                Ok(leased.acquire().await?)
            })
            .await?;
        let plain = Semaphore::new(&client, "bench:plain")?;
        plain.init(u32::try_from(plan.many)?).await?;
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
        // Scripts and the client's own buffers are there already.
        drop(acquire(self.many).await?);
        let before = used(self.server)?;
        let mut held = Vec::with_capacity(self.many);
        for i in 0..self.many - 1 {
            held.push(acquire(i).await?);
        }
        // Marks of operations that are over last for some seconds.
        tokio::time::sleep(Duration::from_secs(12)).await;
        self.row(what, before)
    }

    async fn waiters(&mut self) -> Result<()> {
        let client = Client::connect(self.server.url()).await?;
        let lock = FairLock::new(&client, "bench:queue")?;
        let _held = lock.acquire().await?;
        let before = used(self.server)?;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.many {
            let lock = lock.clone();
            tasks.spawn(async move { lock.acquire().await.map(drop) });
        }
        while client.waiters() < self.many {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.row("a waiter in the queue of one FairLock", before)
    }

    fn row(&mut self, what: &str, before: f64) -> Result<()> {
        let bytes = (used(self.server)? - before) / self.many as f64;
        self.report.row(
            "memory",
            format!("{what}: bytes on the server"),
            Spread::one(bytes),
            Target::None,
            format!("used_memory, {} of them", self.many),
        );
        Ok(())
    }
}
