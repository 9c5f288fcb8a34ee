//! The cost of a grant as the fleet grows: many clients, each with its own connections, that contend for one name.

mod operations;
mod rows;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_timer::Delay;
use stanchion::{
    Acquire, Background, Client, ClientConfig, FairLock, Guard, LeasedSemaphore, Lock, Lockable,
    MultiLock, Permit, RwLock, Semaphore,
};
use stanchion_testkit::RedisServer;
use tokio::task::JoinSet;

use crate::bare_permits::BarePermits;
use crate::chart::{Chart, Scale, Series, Shape};
use crate::handoffs::sent;
use crate::measure::{Flavor, Plan, Spread};
use crate::redisson;
use crate::report::{Report, Row};
use rows::{beside, beside_bare, rows};

pub(crate) use operations::operations;

/// The numbers of clients.
const SIZES: [usize; 4] = [2, 16, 64, 256];

/// The time for which each holds, and pauses.
const HOLD: Duration = Duration::from_millis(1);

const PERMITS: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Lock,
    Fair,
    Write,
    /// Every eighth client writes, the others read.
    Mixed,
    Semaphore,
    Leased,
    Multi,
}

impl What {
    const ALL: [Self; 7] = [
        Self::Lock,
        Self::Fair,
        Self::Write,
        Self::Mixed,
        Self::Semaphore,
        Self::Leased,
        Self::Multi,
    ];

    const fn title(self) -> &'static str {
        match self {
            Self::Lock => "Lock",
            Self::Fair => "FairLock",
            Self::Write => "RwLock, write",
            Self::Mixed => "RwLock, 1 of 8 writes",
            Self::Semaphore => "Semaphore, 8 permits",
            Self::Leased => "LeasedSemaphore, 8 permits",
            Self::Multi => "MultiLock of 3",
        }
    }

    /// The name of the same primitive in Redisson's fleet.
    const fn of_redisson(self) -> Option<&'static str> {
        match self {
            Self::Lock => Some("lock"),
            Self::Fair => Some("fair"),
            Self::Write => Some("write"),
            Self::Semaphore => Some("semaphore"),
            Self::Leased => Some("leased"),
            Self::Mixed | Self::Multi => None,
        }
    }

    /// The primitive, as client `nth` of the fleet has it.
    fn of(self, client: &Client, nth: usize) -> Result<Worker> {
        let name = |n: usize| format!("bench:fleet:{n}:{}", self.title());
        Ok(match self {
            Self::Lock => Worker::Guarded(Arc::new(Lock::new(client, name(0))?)),
            Self::Fair => Worker::Guarded(Arc::new(FairLock::new(client, name(0))?)),
            Self::Write => Worker::Guarded(Arc::new(RwLock::new(client, name(0))?.write_side())),
            Self::Mixed => {
                let lock = RwLock::new(client, name(0))?;
                Worker::Guarded(Arc::new(match nth % 8 {
                    0 => lock.write_side(),
                    _ => lock.read_side(),
                }))
            }
            Self::Semaphore => Worker::Permits(Semaphore::new(client, name(0))?),
            Self::Leased => Worker::Guarded(Arc::new(LeasedSemaphore::new(client, name(0))?)),
            Self::Multi => {
                let mut locks = Vec::new();
                for n in 0..3 {
                    locks.push(Lock::new(client, name(n))?);
                }
                let locks = locks.iter().map(|lock| lock as &dyn Lockable);
                Worker::Guarded(Arc::new(MultiLock::new(locks)?))
            }
        })
    }
}

enum Worker {
    Guarded(Arc<dyn Acquire>),
    Permits(Semaphore),
    Bare(Box<BarePermits>),
}

/// The figures of one run.
#[derive(Clone, Debug, Default)]
struct Figures {
    commands: f64,
    rate: f64,
    /// From a release to the next grant, the median, in ms.
    gap: f64,
    longest: f64,
    mean: f64,
    server_micros: f64,
}

#[derive(Debug, Default)]
struct Log {
    waits: Vec<f64>,
    gaps: Vec<f64>,
    /// The start of the last release, until the next grant.
    released: Option<Instant>,
}

/// A turn of a worker.
enum Held {
    Guard(Guard),
    Permit(Permit),
    Bare,
}

impl Worker {
    /// Acquires, holds for `hold`, releases, and pauses for as long.
    async fn turn(&mut self, hold: Duration, log: &Mutex<Log>) -> Result<()> {
        let began = Instant::now();
        let granted = || {
            let mut log = locked(log);
            log.waits.push(began.elapsed().as_secs_f64() * 1e3);
            if let Some(released) = log.released.take() {
                log.gaps.push(released.elapsed().as_secs_f64() * 1e3);
            }
        };
        let releasing = || {
            locked(log).released = Some(Instant::now());
        };
        let held = match self {
            Self::Guarded(lock) => Held::Guard(lock.acquire().await?),
            Self::Permits(semaphore) => Held::Permit(semaphore.acquire().await?),
            Self::Bare(permits) => {
                permits.acquire().await?;
                Held::Bare
            }
        };
        granted();
        pause(hold).await;
        releasing();
        match held {
            Held::Guard(guard) => guard.release().await?,
            Held::Permit(permit) => permit.release().await?,
            Held::Bare => {
                if let Self::Bare(permits) = self {
                    permits.release().await?;
                }
            }
        }
        pause(hold).await;
        Ok(())
    }
}

/// Waits; a timer without a time to wait would still cost a change of threads.
async fn pause(time: Duration) {
    if !time.is_zero() {
        Delay::new(time).await;
    }
}

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time that scripts took since the last reset, in µs.
fn script_micros(server: &RedisServer) -> f64 {
    let info = server.cli(&["INFO", "commandstats"]);
    let of = |line: &str| -> Option<f64> {
        let rest = line
            .strip_prefix("cmdstat_evalsha:")
            .or_else(|| line.strip_prefix("cmdstat_eval:"))?;
        let usec = rest
            .split(',')
            .find_map(|part| part.strip_prefix("usec="))?;
        usec.parse().ok()
    };
    info.as_text().lines().filter_map(of).sum()
}

async fn run(
    server: &RedisServer,
    what: What,
    size: usize,
    hold: Duration,
    plan: Plan,
) -> Result<Figures> {
    let mut workers = Vec::new();
    for nth in 0..size {
        let mut config = ClientConfig::new(server.url());
        // A thread for each of 256 clients would measure the scheduler.
        config = config.background(Background::CurrentRuntime);
        let client = Client::connect_with(config).await?;
        workers.push(what.of(&client, nth)?);
        if workers.len() == 1 {
            let name = format!("bench:fleet:0:{}", what.title());
            match what {
                What::Semaphore => drop(Semaphore::new(&client, &name)?.init(PERMITS).await?),
                What::Leased => drop(LeasedSemaphore::new(&client, &name)?.init(PERMITS).await?),
                _ => {}
            }
        }
    }
    observe(server, workers, hold, plan).await
}

/// The same for plain permits without the library.
async fn run_bare(server: &RedisServer, size: usize, plan: Plan) -> Result<Figures> {
    let mut workers = Vec::new();
    for nth in 0..size {
        let bare = BarePermits::new(&server.url(), "bench:fleet:bare", nth, PERMITS).await?;
        workers.push(Worker::Bare(Box::new(bare)));
    }
    observe(server, workers, HOLD, plan).await
}

async fn observe(
    server: &RedisServer,
    workers: Vec<Worker>,
    hold: Duration,
    plan: Plan,
) -> Result<Figures> {
    let log = Arc::new(Mutex::new(Log::default()));
    let mut tasks = JoinSet::new();
    for mut worker in workers {
        let log = Arc::clone(&log);
        tasks.spawn(async move {
            loop {
                worker.turn(hold, &log).await?;
            }
            #[expect(unreachable_code, reason = "names the type of the errors above")]
            anyhow::Ok(())
        });
    }
    // Until the fleet has gathered and subscribed.
    tokio::time::sleep(plan.run.max(Duration::from_secs(1)) / 2).await;
    *locked(&log) = Log::default();
    server.reset_stats();
    let started = Instant::now();
    tokio::time::sleep(plan.run).await;
    let elapsed = started.elapsed().as_secs_f64();
    let (commands, server_micros) = (sent(server) as f64, script_micros(server));
    let Log { waits, gaps, .. } = std::mem::take(&mut *locked(&log));
    if let Some(ended) = tasks.try_join_next() {
        ended??;
    }
    tasks.shutdown().await;
    let grants = waits.len() as f64;
    Ok(Figures {
        commands: commands / grants,
        rate: grants / elapsed,
        gap: Spread::of(gaps).median,
        longest: waits.iter().copied().fold(0.0, f64::max),
        mean: waits.iter().sum::<f64>() / grants,
        server_micros: server_micros / grants,
    })
}

/// The time in which a Java fleet warms up.
const WARM_UP: Duration = Duration::from_secs(5);

/// The same with Redisson's clients, all in one Java process.
fn run_redisson(
    server: &RedisServer,
    class_path: &str,
    what: What,
    kind: &str,
    size: usize,
    plan: Plan,
) -> Result<Figures> {
    let name = format!("bench:fleet:redisson:{}", what.title());
    let url = server.url();
    let hold = HOLD.as_micros();
    let mut fleet = redisson::Fleet::start(class_path, &url, kind, &name, size, hold, PERMITS)?;
    std::thread::sleep(WARM_UP.min(plan.run * 3));
    fleet.count()?;
    server.reset_stats();
    let started = Instant::now();
    std::thread::sleep(plan.run);
    let elapsed = started.elapsed().as_secs_f64();
    let (commands, server_micros) = (sent(server) as f64, script_micros(server));
    let count = fleet.count()?;
    Ok(Figures {
        commands: commands / count.grants.max(1.0),
        rate: count.grants / elapsed,
        gap: f64::NAN,
        longest: count.longest,
        mean: count.mean,
        server_micros: server_micros / count.grants.max(1.0),
    })
}

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let class_path = redisson::class_path();
    for what in What::ALL {
        let mut runs: Vec<Vec<Figures>> = vec![Vec::new(); SIZES.len()];
        let (mut theirs, mut bare) = (runs.clone(), runs.clone());
        for _ in 0..plan.runs {
            for (size, runs) in SIZES.into_iter().zip(&mut runs) {
                let runtime = Flavor::MultiThread.runtime()?;
                runs.push(runtime.block_on(run(server, what, size, HOLD, plan))?);
                server.flush();
            }
            if what == What::Semaphore {
                for (size, bare) in SIZES.into_iter().zip(&mut bare) {
                    let runtime = Flavor::MultiThread.runtime()?;
                    bare.push(runtime.block_on(run_bare(server, size, plan))?);
                    server.flush();
                }
            }
            let redisson = class_path.zip(what.of_redisson());
            // Fewer blocks: each of them warms a process up.
            let most = plan.runs.min(3);
            for (size, theirs) in SIZES.into_iter().zip(&mut theirs) {
                if theirs.len() < most
                    && let Some((class_path, kind)) = redisson
                {
                    theirs.push(run_redisson(server, class_path, what, kind, size, plan)?);
                    server.flush();
                }
            }
        }
        rows(report, what, &runs);
        if what == What::Semaphore {
            beside_bare(report, &runs, &bare);
        }
        if theirs.iter().all(|runs| !runs.is_empty()) {
            beside(report, what, &runs, &theirs);
        }
    }
    Ok(())
}

/// The commands of a grant, for each number of clients, from the rows of a run.
pub(crate) fn chart(rows: &[Row]) -> Option<Chart> {
    let lines = [
        ("Lock", "stanchion Lock"),
        ("FairLock", "stanchion FairLock"),
        ("Redisson: Lock", "Redisson Lock"),
        ("Redisson: FairLock", "Redisson FairLock"),
    ];
    let value = |what: String| {
        let mut rows = rows.iter().filter(|row| row.figure == "fleet");
        Some(rows.find(|row| row.what == what)?.value.median)
    };
    let line = |(what, name): (&str, &str)| {
        let values = SIZES.map(|size| value(format!("{what}, {size}: commands")));
        let values: Option<Vec<f64>> = values.into_iter().collect();
        values.map(|values| Series {
            name: name.to_owned(),
            values,
        })
    };
    let series: Vec<Series> = lines.into_iter().filter_map(line).collect();
    (!series.is_empty()).then(|| Chart {
        file: "fleet-commands".into(),
        title: "Commands for a grant of one lock, as more clients compete: fewer is better".into(),
        unit: "commands per grant".into(),
        along: "clients that compete".into(),
        categories: SIZES.map(|size| size.to_string()).to_vec(),
        series,
        scale: Scale::Log,
        shape: Shape::Lines,
        source: "Each client has one task, which holds for 1 ms and pauses for 1 ms.".into(),
    })
}
