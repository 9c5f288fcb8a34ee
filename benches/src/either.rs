//! The lock and the fair lock, for figures that compare them.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use stanchion::{Client, FairLock, FairLockGuard, Lock, LockGuard};

use crate::contender::Contender;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Lock,
    Fair,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Lock, Self::Fair];

    /// As on the command line of a worker.
    pub(crate) fn arg(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Lock => "Lock",
            Self::Fair => "FairLock",
        }
    }

    pub(crate) fn named(self, client: &Client, name: &str) -> Result<Either> {
        // Each kind has its own name: one name is for one kind.
        let name = format!("{name}:{}", self.arg());
        Ok(match self {
            Self::Lock => Either::Lock(Lock::new(client, name)?),
            Self::Fair => Either::Fair(FairLock::new(client, name)?),
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Either {
    Lock(Lock),
    Fair(FairLock),
}

#[must_use = "dropping a guard releases at once"]
#[derive(Debug)]
pub(crate) enum Held {
    Lock(LockGuard),
    Fair(FairLockGuard),
}

impl Either {
    pub(crate) async fn acquire(&self) -> Result<Held> {
        Ok(match self {
            Self::Lock(lock) => Held::Lock(lock.acquire().await?),
            Self::Fair(lock) => Held::Fair(lock.acquire().await?),
        })
    }
}

impl Held {
    pub(crate) fn token(&self) -> Result<u64> {
        let token = match self {
            Self::Lock(guard) => guard.fencing_token(),
            Self::Fair(guard) => guard.fencing_token(),
        };
        Ok(token.context("no token")?.get())
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Self::Lock(guard) => guard.release().await?,
            Self::Fair(guard) => guard.release().await?,
        }
        Ok(())
    }
}

impl Contender for Either {
    async fn cycle(&mut self) -> Result<()> {
        self.acquire().await?.release().await
    }
}
