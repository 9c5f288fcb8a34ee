//! Contenders of the benchmark `peers` that are written in Rust: `stanchion-peers PEER URL [--current-thread]`.

#[path = "../../../src/peers/turns.rs"]
mod turns;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rlock::async_lock::{RLock, RLockGuard, RReadLockGuard};
use rslock::{LockGuard, LockManager};
use tokio::runtime::Builder;

use crate::turns::{Block, Order, Taker, Thing};

/// The lease that the caller must choose; as long as that of the other contenders.
const RSLOCK_TTL: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [peer, url, flags @ ..] = &args[..] else {
        bail!("usage: stanchion-peers rslock|rlock URL [--current-thread]");
    };
    let mut runtime = if flags.iter().any(|flag| flag == "--current-thread") {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    let about = format!("{peer} {}", locked(peer)?);
    runtime.enable_all().build()?.block_on(async {
        match peer.as_str() {
            "rslock" => {
                let mut clients = Vec::new();
                turns::serve(&about, async |order| {
                    while clients.len() < order.clients {
                        clients.push(LockManager::new(vec![url.clone()]));
                    }
                    rslock(&clients, order)
                })
                .await
            }
            "rlock" => {
                let mut clients = Vec::new();
                turns::serve(&about, async |order| {
                    while clients.len() < order.clients {
                        clients.push(RLock::new(url.clone()).await?);
                    }
                    rlock(&clients, order)
                })
                .await
            }
            other => bail!("no such peer: {other}"),
        }
    })
}

/// The version that is compiled in.
fn locked(peer: &str) -> Result<&'static str> {
    include_str!("../Cargo.lock")
        .split_once(&format!("name = \"{peer}\"\nversion = \""))
        .and_then(|(_, rest)| Some(rest.split_once('"')?.0))
        .with_context(|| format!("no such peer: {peer}"))
}

/// A lock manager of one client, and a name.
struct Rslock(LockManager, String);

fn rslock(clients: &[LockManager], order: &Order) -> Result<Block> {
    if order.thing != Thing::Lock {
        bail!("rslock has no {}", order.thing.word());
    }
    let taker = |task: usize| Rslock(clients[task % order.clients].clone(), order.name(task));
    Ok(turns::block((0..order.tasks).map(taker).collect(), order))
}

/// As its manual shows: retries without a limit.
impl Taker for Rslock {
    type Held = LockGuard;

    async fn acquire(&self) -> Result<LockGuard> {
        Ok(self.0.acquire(self.1.as_bytes(), RSLOCK_TTL).await?)
    }

    async fn release(&self, held: LockGuard) -> Result<()> {
        held.release().await;
        Ok(())
    }
}

struct Rlock(RLock, String);

struct Rread(RLock, String);

fn rlock(clients: &[RLock], order: &Order) -> Result<Block> {
    let client = |task: usize| clients[task % order.clients].clone();
    let lock = |task: usize| Rlock(client(task), order.name(task));
    let read = |task: usize| Rread(client(task), order.name(task));
    Ok(match order.thing {
        Thing::Lock => turns::block((0..order.tasks).map(lock).collect(), order),
        Thing::Read => turns::block((0..order.tasks).map(read).collect(), order),
        other => bail!("rlock has no {}", other.word()),
    })
}

/// With its default options.
impl Taker for Rlock {
    type Held = RLockGuard;

    async fn acquire(&self) -> Result<RLockGuard> {
        Ok(self.0.acquire_mutex(&self.1).await?)
    }

    async fn release(&self, mut held: RLockGuard) -> Result<()> {
        Ok(held.release().await?)
    }
}

impl Taker for Rread {
    type Held = RReadLockGuard;

    async fn acquire(&self) -> Result<RReadLockGuard> {
        Ok(self.0.acquire_read(&self.1).await?)
    }

    async fn release(&self, mut held: RReadLockGuard) -> Result<()> {
        Ok(held.release().await?)
    }
}
