//! The contenders: they acquire and release in a loop.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stanchion::Lock;

/// Something that can acquire and release once.
pub(crate) trait Contender: Send + 'static {
    fn cycle(&mut self) -> impl Future<Output = Result<()>> + Send;
}

impl Contender for Lock {
    async fn cycle(&mut self) -> Result<()> {
        let guard = self.acquire().await?;
        guard.release().await?;
        Ok(())
    }
}

/// The other library, used as its manual shows.
#[derive(Clone, Debug)]
pub(crate) struct Rslock {
    pub(crate) manager: rslock::LockManager,
    pub(crate) name: String,
}

impl Contender for Rslock {
    async fn cycle(&mut self) -> Result<()> {
        let lock = self
            .manager
            .lock(self.name.as_bytes(), Duration::from_secs(30))
            .await?;
        self.manager.unlock(&lock).await;
        Ok(())
    }
}

/// Lets every contender run in a task of its own for `block`; returns all their cycles per second.
pub(crate) async fn rate<C: Contender + Clone>(contenders: &[C], block: Duration) -> Result<f64> {
    let started = Instant::now();
    let tasks: Vec<_> = contenders
        .iter()
        .map(|contender| {
            let mut contender = contender.clone();
            tokio::spawn(async move {
                let mut cycles = 0_u32;
                while started.elapsed() < block {
                    contender.cycle().await?;
                    cycles += 1;
                }
                anyhow::Ok(cycles)
            })
        })
        .collect();
    let mut cycles = 0.0;
    for task in tasks {
        cycles += f64::from(task.await.context("a task panicked")??);
    }
    Ok(cycles / started.elapsed().as_secs_f64())
}
