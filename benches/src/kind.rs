//! The lock and the fair lock, for figures that compare them.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use stanchion::{Acquire, Client, FairLock, Guard, Lock};

use crate::contender::Contender;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Lock,
    Fair,
}

/// One of them.
pub(crate) type AnyLock = Arc<dyn Acquire>;

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

    pub(crate) fn named(self, client: &Client, name: &str) -> Result<AnyLock> {
        // Each kind has its own name: one name is for one kind.
        let name = format!("{name}:{}", self.arg());
        Ok(match self {
            Self::Lock => Arc::new(Lock::new(client, name)?),
            Self::Fair => Arc::new(FairLock::new(client, name)?),
        })
    }
}

pub(crate) fn token(guard: &Guard) -> Result<u64> {
    Ok(guard.fencing_token().context("no token")?.get())
}

impl Contender for AnyLock {
    async fn cycle(&mut self) -> Result<()> {
        Ok(self.acquire().await?.release().await?)
    }
}
