//! Plain permits without the library, for a fleet: what it costs to tell one process where a permit has no lease.
//!
//! A waiter stands in a list, is told by message, and asks. The message cannot be the grant: a permit without a lease that was given to a
//! process which is gone would be lost for ever. So a grant to one who waits takes three commands: refused, asked, released. These two
//! scripts do nothing else; nobody minds deaths, lost messages or neighbours.

use std::pin::Pin;

use anyhow::{Context as _, Result};
use futures_util::{Stream, StreamExt as _};
use redis::aio::MultiplexedConnection;
use redis::{Client, Msg};

use crate::bare::{Invocation, connect};

const TAKE: &str = include_str!("../lua/bare_permit_take.lua");
const RELEASE: &str = include_str!("../lua/bare_permit_release.lua");

/// One of the fleet, with a connection for commands and one for messages, as a client of the library has.
pub(crate) struct BarePermits {
    commands: MultiplexedConnection,
    messages: Pin<Box<dyn Stream<Item = Msg> + Send>>,
    take: Invocation,
    take_as_told: Invocation,
    release: Invocation,
}

impl BarePermits {
    /// The `nth` of a fleet that wants permits of `name`. The first makes `permits` of them.
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
