//! stanchion's contenders: the library, and Redisson's two scripts on the bare client.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use redis::Value;
use redis::aio::MultiplexedConnection;
use stanchion::{
    Background, Client, ClientConfig, FairLock, FairLockGuard, LeasedPermit, LeasedSemaphore, Lock,
    LockGuard, Permit, ReadGuard, RwLock, Semaphore,
};

use super::turns::{self, Block, Order, Taker, Thing};
use crate::bare::{Pair, connect};
use crate::measure::Flavor;

/// The hidden subcommand: a contender of the benchmark `peers`.
#[derive(Debug, Args)]
pub(crate) struct Contend {
    who: Who,
    url: String,
    /// On a runtime with one thread.
    #[arg(long)]
    current_thread: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Who {
    Stanchion,
    Raw,
}

impl Contend {
    pub(crate) fn run(&self) -> Result<()> {
        let flavor = if self.current_thread {
            Flavor::CurrentThread
        } else {
            Flavor::MultiThread
        };
        let url = &self.url;
        flavor.runtime()?.block_on(async {
            match self.who {
                Who::Stanchion => {
                    let about = concat!("stanchion ", env!("CARGO_PKG_VERSION"));
                    let mut clients = Vec::new();
                    turns::serve(about, async |order| {
                        while clients.len() < order.clients {
                            clients.push(client(url, order.clients).await?);
                        }
                        ours(&clients, order).await
                    })
                    .await
                }
                Who::Raw => {
                    let mut clients = Vec::new();
                    turns::serve("Redisson's scripts, sent bare", async |order| {
                        while clients.len() < order.clients {
                            clients.push(connect(url).await?);
                        }
                        bare(&clients, order).await
                    })
                    .await
                }
            }
        })
    }
}

/// A client as users make it. Of a fleet in one process all share the runtime: a thread for each would measure the scheduler.
async fn client(url: &str, fleet: usize) -> Result<Client> {
    let mut config = ClientConfig::new(url);
    if fleet > 2 {
        config = config.background(Background::CurrentRuntime);
    }
    Ok(Client::connect_with(config).await?)
}

async fn ours(clients: &[Client], order: &Order) -> Result<Block> {
    let (first, name) = (&clients[0], order.name(0));
    match order.thing {
        Thing::Semaphore => drop(Semaphore::new(first, name)?.init(order.permits).await?),
        Thing::Leased => drop(
            LeasedSemaphore::new(first, name)?
                .init(order.permits)
                .await?,
        ),
        Thing::Lock | Thing::Fair | Thing::Read => {}
    }
    Ok(match order.thing {
        Thing::Lock => block(clients, order, |client, name| Ok(Lock::new(client, name)?))?,
        Thing::Fair => block(clients, order, |client, name| {
            Ok(FairLock::new(client, name)?)
        })?,
        Thing::Read => block(clients, order, |client, name| {
            Ok(RwLock::new(client, name)?)
        })?,
        Thing::Semaphore => block(clients, order, |client, name| {
            Ok(Semaphore::new(client, name)?)
        })?,
        Thing::Leased => block(clients, order, |client, name| {
            Ok(LeasedSemaphore::new(client, name)?)
        })?,
    })
}

fn block<T: Taker>(
    clients: &[Client],
    order: &Order,
    taker: impl Fn(&Client, String) -> Result<T>,
) -> Result<Block> {
    let takers = (0..order.tasks)
        .map(|task| taker(&clients[task % order.clients], order.name(task)))
        .collect::<Result<Vec<_>>>()?;
    Ok(turns::block(takers, order))
}

/// Each primitive with its verb and its guard.
macro_rules! takers {
    ($($primitive:ty, $verb:ident, $guard:ty;)*) => {$(
        impl Taker for $primitive {
            type Held = $guard;

            async fn acquire(&self) -> Result<$guard> {
                Ok(self.$verb().await?)
            }

            async fn release(&self, held: $guard) -> Result<()> {
                Ok(held.release().await?)
            }
        }
    )*};
}

takers! {
    Lock, acquire, LockGuard;
    FairLock, acquire, FairLockGuard;
    RwLock, read, ReadGuard;
    Semaphore, acquire, Permit;
    LeasedSemaphore, acquire, LeasedPermit;
}

/// The raw scripts without waiters: a task that does not get the lock is an error.
struct Raw {
    connection: MultiplexedConnection,
    pair: Pair,
}

async fn bare(clients: &[MultiplexedConnection], order: &Order) -> Result<Block> {
    let mut takers = Vec::new();
    for task in 0..order.tasks {
        let mut connection = clients[task % order.clients].clone();
        let pair = Pair::redisson(&order.name(task));
        pair.load(&mut connection).await?;
        takers.push(Raw { connection, pair });
    }
    Ok(turns::block(takers, order))
}

impl Taker for Raw {
    type Held = ();

    async fn acquire(&self) -> Result<()> {
        let mut connection = self.connection.clone();
        let command = self.pair.acquire.command();
        match command.query_async(&mut connection).await? {
            Value::Nil => Ok(()),
            other => bail!("the lock is taken: {other:?}"),
        }
    }

    async fn release(&self, (): ()) -> Result<()> {
        let mut connection = self.connection.clone();
        let command = self.pair.release.command();
        match command.query_async(&mut connection).await? {
            Value::Int(1) => Ok(()),
            other => bail!("the lock was not held: {other:?}"),
        }
    }
}
