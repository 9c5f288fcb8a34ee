//! Measures stanchion's promised speeds: `cargo run --release -p stanchion-benches -- [FIGURE…] [--quick] [--json FILE] [--charts DIR]`,
//! and compares it with other lock libraries: `scripts/peers`.
//!
//! Starts a private server. Everything that is compared runs in alternating blocks of one process, because round trips
//! on a small machine jump between levels. The result is the median of the blocks' ratios. `docs/measurements.md` explains each
//! figure.
#![expect(clippy::print_stdout, reason = "its output is a table")]
#![expect(
    clippy::disallowed_methods,
    reason = "it measures real time and has no leases of its own"
)]
#![expect(clippy::cast_precision_loss, reason = "counts become rates")]

mod bare;
mod bare_permits;
mod barrier;
mod chart;
mod contended;
mod contender;
mod crowd;
mod fair;
mod fleet;
mod gap;
mod handoffs;
mod idle;
mod kind;
mod latch;
mod leave_out;
mod measure;
mod multilock;
mod names;
mod page;
mod parallel;
mod peers;
mod pin;
mod processes;
mod recipes;
mod redisson;
mod redlock;
mod report;
mod rwlock;
mod scale;
mod semaphore;
mod server_time;
mod sizing;
mod slowlog;
mod uncontended;
mod users;
mod watchdog;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use stanchion_testkit::RedisServer;

use crate::chart::Chart;
use crate::measure::Plan;
use crate::report::Report;

#[derive(Debug, Parser)]
#[command(
    about = "Measures stanchion next to bare redis-rs, to Redisson's scripts and to rslock",
    args_conflicts_with_subcommands = true
)]
struct Args {
    /// What to measure; everything by default.
    #[arg(value_enum)]
    figures: Vec<Figure>,
    /// Fewer and shorter blocks: shows that it works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Also writes the rows as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draws the charts, as SVG.
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Draws the chart that a JSON file describes: for scripts/incident.
    Draw {
        file: PathBuf,
        /// Where to put the SVG file.
        folder: PathBuf,
    },
    /// Writes the tables and charts of the book again, from docs/figures.
    Page,
    /// Measures stanchion beside other lock libraries, in turns; scripts/peers builds them and calls this.
    Peers(peers::Run),
    /// A contender of `peers`.
    #[command(hide = true)]
    Contend(peers::Contend),
    /// One process of the figure `processes`.
    #[command(hide = true)]
    Worker(processes::Worker),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Acquire + release alone, against the same two scripts sent by bare redis-rs.
    Uncontended,
    /// The same, against a minimal pair of scripts.
    Minimal,
    /// Server time of a cycle, against the commands of Redisson's lock.
    ServerTime,
    /// Server time of a cycle without each part of its scripts, against the whole.
    LeaveOneOut,
    /// Commands of an uncontended cycle.
    Commands,
    /// 64 tasks on 64 names, against bare redis-rs.
    Parallel,
    /// 64 tasks on 64 names, against rslock.
    Peer,
    /// 16 tasks on one name, against bare sequential cycles.
    Handoffs,
    /// Commands of a hand-off within one process.
    HandoffCommands,
    /// Four processes with eight tasks each on one name.
    Processes,
    /// 10 000 waiters on one name.
    Crowd,
    /// 10 000 held locks under the watchdog.
    Watchdog,
    /// 20 000 names that two processes want: the lease that is renewed beside them.
    Names,
    /// Fair lock and lock side by side: 2, 16 and 128 tasks, and four processes of eight.
    Fair,
    /// A fair cycle alone, against one of the lock.
    FairCycle,
    /// 2 to 256 clients on one name: commands, rate, waits, server time.
    Fleet,
    /// 4 and 64 processes that wait for a name which stays held: requests a second.
    Idle,
    /// From a release to the next holder in another client, against a round trip.
    FairGap,
    /// Server time of the fair lock's scripts with 10 000 waiters, against 10.
    FairServerTime,
    /// 64 readers of one name, against bare redis-rs.
    Readers,
    /// The same while 8 to 1024 others read.
    ReadersHeld,
    /// Server time of a reader's release beside 300 others, against 8.
    ReadersServerTime,
    /// 64 tasks and eight permits: commands of a grant.
    Semaphore,
    /// 1000 waiters of a latch let go.
    Latch,
    /// 4 and 64 parties at a barrier: commands of a participant.
    Barrier,
    /// Eight names at once.
    Multilock,
    /// A quorum of three and of five servers, against the slowest of them alone.
    Redlock,
    /// Commands of an election's term, a job's tick and a limiter's grant.
    Recipes,
    /// Bytes on the server.
    Memory,
    /// Server time of operations, to compare servers.
    Operations,
    /// CPU, commands and bytes as held locks, clients and names with waiters grow.
    Scale,
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.command {
        Some(Command::Worker(worker)) => return worker.run(),
        Some(Command::Page) => return page::write(),
        Some(Command::Draw { file, folder }) => {
            let chart: Chart = serde_json::from_str(&std::fs::read_to_string(file)?)?;
            return chart.write(&folder);
        }
        Some(Command::Peers(run)) => return run.run(),
        Some(Command::Contend(contend)) => return contend.run(),
        None => {}
    }
    let figures = if args.figures.is_empty() {
        Figure::value_variants()
    } else {
        &args.figures
    };
    let plan = if args.quick {
        Plan::quick()
    } else {
        Plan::full()
    };
    let server = RedisServer::start();
    let mut report = Report::new(&server);
    for figure in figures {
        match figure {
            Figure::Uncontended => uncontended::same_scripts(&server, plan, &mut report)?,
            Figure::Minimal => uncontended::minimal(&server, plan, &mut report)?,
            Figure::ServerTime => server_time::measure(&server, plan, &mut report)?,
            Figure::LeaveOneOut => leave_out::measure(&server, plan, &mut report)?,
            Figure::Commands => uncontended::commands(&server, &mut report)?,
            Figure::Parallel => parallel::bare(&server, plan, &mut report)?,
            Figure::Peer => parallel::peer(&server, plan, &mut report)?,
            Figure::Handoffs => contended::handoffs(&server, plan, &mut report)?,
            Figure::HandoffCommands => contended::commands(&server, plan, &mut report)?,
            Figure::Processes => processes::measure(&server, plan, &mut report)?,
            Figure::Crowd => crowd::measure(&server, plan, &mut report)?,
            Figure::Watchdog => watchdog::measure(&server, plan, &mut report)?,
            Figure::Names => names::measure(&server, plan, &mut report)?,
            Figure::Fair => fair::turns(&server, plan, &mut report)?,
            Figure::FairCycle => fair::uncontended(&server, plan, &mut report)?,
            Figure::Fleet => fleet::measure(&server, plan, &mut report)?,
            Figure::Idle => idle::measure(&server, plan, &mut report)?,
            Figure::FairGap => gap::measure(&server, plan, &mut report)?,
            Figure::FairServerTime => fair::server_time(&server, plan, &mut report)?,
            Figure::Readers => rwlock::readers(&server, plan, &mut report)?,
            Figure::ReadersHeld => rwlock::crowds(&server, plan, &mut report)?,
            Figure::ReadersServerTime => rwlock::server_time(&server, plan, &mut report)?,
            Figure::Semaphore => semaphore::grants(&server, plan, &mut report)?,
            Figure::Latch => latch::release(&server, plan, &mut report)?,
            Figure::Barrier => barrier::rounds(&server, plan, &mut report)?,
            Figure::Multilock => multilock::cycle(&server, plan, &mut report)?,
            Figure::Redlock => redlock::cycle(plan, &mut report)?,
            Figure::Recipes => recipes::commands(&server, plan, &mut report)?,
            Figure::Memory => sizing::server_memory(&server, plan, &mut report)?,
            Figure::Operations => fleet::operations(&server, plan, &mut report)?,
            Figure::Scale => scale::measure(&server, plan, &mut report)?,
        }
        server.flush();
    }
    report.finish(args.json.as_deref(), args.charts.as_deref())
}
