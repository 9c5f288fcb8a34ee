//! A contender's side of the benchmark `peers`: it reads orders from its standard input and prints the results.
//!
//! The peers written in Rust compile this file, too (`benches/peers/rust`); Go and Java have their own. A contender says
//! `ready` and a description of itself. Then, for each line like [`Order`]'s text: `set` when its clients are connected, at `go` it runs
//! the block and says `over`, at `tell` it prints a line for each grant, one for each wait without a grant, and `end`.

use std::fmt::Write as _;
use std::future::Future;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use futures_timer::Delay;
use tokio::sync::watch;

/// The primitive that is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Lock,
    Fair,
    Read,
    Semaphore,
    Leased,
}

impl Thing {
    const ALL: [Self; 5] = [
        Self::Lock,
        Self::Fair,
        Self::Read,
        Self::Semaphore,
        Self::Leased,
    ];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Semaphore => "semaphore",
            Self::Leased => "leased",
        }
    }
}

const TURNS: &str = "turns";

/// One block. Task `i` uses client `i % clients`, which has connections of its own, and name `i % names`.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) thing: Thing,
    pub(crate) name: String,
    pub(crate) names: usize,
    pub(crate) clients: usize,
    pub(crate) tasks: usize,
    pub(crate) permits: u32,
    pub(crate) hold: Duration,
    pub(crate) pause: Pause,
    pub(crate) block: Duration,
}

/// From a release to the next request of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    For(Duration),
    /// Until another task has been granted it: otherwise a contender that polls would almost always keep it. The word `turns`.
    Turns,
}

impl Order {
    pub(crate) fn name(&self, task: usize) -> String {
        format!("{}:{}", self.name, task % self.names)
    }

    /// The order as a contender reads it: `KIND NAME NAMES CLIENTS TASKS PERMITS HOLD_US PAUSE_US MILLIS`.
    #[allow(dead_code, reason = "the judge writes it, contenders read it")]
    pub(crate) fn line(&self) -> String {
        format!(
            "{} {} {} {} {} {} {} {} {}",
            self.thing.word(),
            self.name,
            self.names,
            self.clients,
            self.tasks,
            self.permits,
            self.hold.as_micros(),
            match self.pause {
                Pause::For(time) => time.as_micros().to_string(),
                Pause::Turns => TURNS.to_owned(),
            },
            self.block.as_millis()
        )
    }
}

impl FromStr for Order {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [
            thing,
            name,
            names,
            clients,
            tasks,
            permits,
            hold,
            pause,
            block,
        ] = words[..]
        else {
            bail!("no order: {line:?}");
        };
        let number = |word: &str| {
            word.parse::<u32>()
                .with_context(|| format!("no order: {line:?}"))
        };
        let micros =
            |word: &str| Ok::<_, anyhow::Error>(Duration::from_micros(number(word)?.into()));
        let thing = Thing::ALL.into_iter().find(|known| known.word() == thing);
        Ok(Self {
            thing: thing.with_context(|| format!("what is wanted in {line:?}?"))?,
            name: name.to_owned(),
            names: usize::try_from(number(names)?)?.max(1),
            clients: usize::try_from(number(clients)?)?.max(1),
            tasks: usize::try_from(number(tasks)?)?,
            permits: number(permits)?,
            hold: micros(hold)?,
            pause: match pause {
                TURNS => Pause::Turns,
                time => Pause::For(micros(time)?),
            },
            block: Duration::from_millis(number(block)?.into()),
        })
    }
}

/// A primitive that a task acquires and releases.
pub(crate) trait Taker: Send + Sync + 'static {
    type Held: Send;

    fn acquire(&self) -> impl Future<Output = Result<Self::Held>> + Send;

    fn release(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}

/// A block that is ready to run; its result is the report of each task.
pub(crate) type Block = Pin<Box<dyn Future<Output = Result<Vec<Told>>>>>;

/// The turns of a task. Times are nanoseconds since the epoch: requested, granted, releasing, released.
#[derive(Debug, Default)]
pub(crate) struct Told {
    grants: Vec<[u128; 4]>,
    /// The time of a request that was not granted before the end.
    vain: Option<u128>,
}

fn now() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos())
}

/// Waits for `time`. The runtime's timer has steps of a millisecond and wakes up to one too late; this one is a thread's.
async fn pass(time: Duration) {
    if !time.is_zero() {
        Delay::new(time).await;
    }
}

/// `grants` counts those of all tasks.
async fn turns<T: Taker>(
    taker: T,
    order: Order,
    began: Instant,
    grants: watch::Sender<usize>,
) -> Result<Told> {
    let mut told = Told::default();
    let over = tokio::time::sleep_until((began + order.block).into());
    tokio::pin!(over);
    while began.elapsed() < order.block {
        let asked = now();
        let acquired = tokio::select! {
            biased;
            acquired = taker.acquire() => acquired,
            () = &mut over => {
                told.vain = Some(asked);
                return Ok(told);
            }
        };
        let held = acquired?;
        let granted = now();
        let mut seen = 0;
        if order.pause == Pause::Turns {
            grants.send_modify(|grants| {
                *grants += 1;
                seen = *grants;
            });
        }
        pass(order.hold).await;
        let releasing = now();
        taker.release(held).await?;
        told.grants.push([asked, granted, releasing, now()]);
        match order.pause {
            Pause::For(time) => pass(time).await,
            Pause::Turns => {
                let mut grants = grants.subscribe();
                tokio::select! {
                    _ = grants.wait_for(|grants| *grants > seen) => {}
                    () = &mut over => return Ok(told),
                }
            }
        }
    }
    Ok(told)
}

/// Prepares a block of these takers, one for each task.
pub(crate) fn block<T: Taker>(takers: Vec<T>, order: &Order) -> Block {
    let order = order.clone();
    Box::pin(async move {
        let began = Instant::now();
        let grants = watch::Sender::new(0);
        let tasks: Vec<_> = takers
            .into_iter()
            .map(|taker| tokio::spawn(turns(taker, order.clone(), began, grants.clone())))
            .collect();
        let mut told = Vec::with_capacity(tasks.len());
        for task in tasks {
            told.push(task.await.context("a task panicked")??);
        }
        Ok(told)
    })
}

fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Reads a line on a separate thread, so that the runtime keeps the connections alive. `None` at the end.
async fn heard() -> Result<Option<String>> {
    tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim().to_owned()))
    })
    .await?
}

fn lines(told: &[Told]) -> String {
    let mut text = String::new();
    for (task, told) in told.iter().enumerate() {
        for [asked, granted, releasing, released] in &told.grants {
            let _ = writeln!(text, "{asked} {granted} {releasing} {released} {task}");
        }
        if let Some(asked) = told.vain {
            let _ = writeln!(text, "{asked} - - - {task}");
        }
    }
    text
}

/// Executes the judge's orders until the input ends. `prepare` makes clients and takers for an order.
///
/// # Errors
/// The first of the contender, or an order that makes no sense.
pub(crate) async fn serve(
    about: &str,
    mut prepare: impl AsyncFnMut(&Order) -> Result<Block>,
) -> Result<()> {
    say(&format!("ready {about}"))?;
    while let Some(line) = heard().await? {
        let order: Order = line.parse()?;
        let block = prepare(&order).await?;
        say("set")?;
        heard().await?;
        let told = block.await?;
        say("over")?;
        heard().await?;
        say(&(lines(&told) + "end"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let line = "leased peers:x 2 3 64 8 1000 500 250";
        let order: Order = line.parse().unwrap();
        assert_eq!(order.line(), line);
        assert_eq!(order.thing, Thing::Leased);
        assert_eq!(order.name(5), "peers:x:1");
        let line = "lock x 1 2 2 0 2000 turns 250";
        assert_eq!(line.parse::<Order>().unwrap().line(), line);
        for wrong in [
            "",
            "lock x 1 2",
            "bag x 1 1 1 1 0 0 1",
            "lock x 1 1 1 1 0 0 -1",
        ] {
            assert!(wrong.parse::<Order>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_contender_tells_its_grants_and_its_vain_waits() {
        let told = [
            Told {
                grants: vec![[1, 2, 3, 4], [5, 6, 7, 8]],
                vain: None,
            },
            Told {
                grants: Vec::new(),
                vain: Some(9),
            },
        ];
        assert_eq!(lines(&told), "1 2 3 4 0\n5 6 7 8 0\n9 - - - 1\n");
    }
}
