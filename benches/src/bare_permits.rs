//! Plain permits without the library, for a fleet: the cost of notifying one process of a permit without a lease.
//!
//! A waiter is in a list, receives a message, and then sends a request. The message cannot be the grant: a permit without a lease that
//! was granted to a dead process would be lost. So a grant to a waiter takes three commands: refused, requested, released. These two
//! scripts do nothing else; they do not handle dead processes, lost messages or other waiters.

use std::pin::Pin;

use anyhow::{Context as _, Result};
use futures_util::{Stream, StreamExt as _};
use redis::aio::MultiplexedConnection;
use redis::{Client, Msg};

use crate::bare::{Invocation, connect};

const TAKE: &str = include_str!("../lua/bare_permit_take.lua");
const RELEASE: &str = include_str!("../lua/bare_permit_release.lua");

/// A process of the fleet, with a connection for commands and one for messages, as a client of the library has.
pub(crate) struct BarePermits {
    commands: MultiplexedConnection,
    messages: Pin<Box<dyn Stream<Item = Msg> + Send>>,
    take: Invocation,
    take_as_told: Invocation,
    release: Invocation,
}

impl BarePermits {
    /// Process number `nth` of a fleet that contends for permits of `name`. The first creates `permits` of them.
    pub(crate) async fn new(url: &str, name: &str, nth: usize, permits: u32) -> Result<Self> {
        let mut commands = connect(url).await?;
        let me = format!("{name}:{nth}");
        let mut messages = Client::open(url)?.get_async_pubsub().await?;
        messages.subscribe(&me).await?;
        let line = format!("{name}:line");
        let take = |how| Invocation::new(TAKE, &[name, &line], &[&me, how]);
        let release = Invocation::new(RELEASE, &[name, &line], &[]);
        if nth == 0 {
            take("").load(&mut commands).await?;
            release.load(&mut commands).await?;
            let mut set = redis::cmd("SET");
            set.arg(name).arg(permits);
            set.exec_async(&mut commands).await?;
        }
        Ok(Self {
            commands,
            messages: Box::pin(messages.into_on_message()),
            take: take(""),
            take_as_told: take("told"),
            release,
        })
    }

    pub(crate) async fn acquire(&mut self) -> Result<()> {
        let mut take = &self.take;
        while take
            .command()
            .query_async::<i64>(&mut self.commands)
            .await?
            == 0
        {
            let told = self.messages.next().await;
            told.context("the connection is gone")?;
            take = &self.take_as_told;
        }
        Ok(())
    }

    pub(crate) async fn release(&mut self) -> Result<()> {
        let release = self.release.command();
        Ok(release.exec_async(&mut self.commands).await?)
    }
}
