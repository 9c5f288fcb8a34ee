//! `stanchion bench`: what locks cost on this server, from this machine.

mod measure;

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::{Client, Fencing, Lock, Name};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::measure::Measured;
use crate::beside;
use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::output;
use crate::probe::Names;
use crate::table::{self, Cell, Column, Row, Table};

/// Measure what locks cost on this server, from this machine.
///
/// Uses names of its own (stanchion-bench-…), and removes them at the end, also after Ctrl-C. It loads the server for a few seconds:
/// one processor of it, at most.
#[derive(Debug, Args)]
#[command(after_help = "\
What the figures mean:
  round trip   one request that does nothing: nothing below can be faster
  uncontended  one task acquires and releases a lock that nobody else wants: two requests
  hand-off     two clients want one lock all the time, and it passes between them by message: the
               rate is that of grants, the wait is what each of them waited
  in process   eight tasks of one client want one lock: handed on inside, mostly without the line

Exit codes:
  0     measured
  2     the command line is wrong
  69    the server cannot be reached
  78    the server or the rules refuse (rights: see --names, …)
  130   stopped by Ctrl-C; what was measured until then is shown

Examples:
  stanchion bench
  stanchion bench --seconds 20 --json
  stanchion bench --names 'app:*'      for a user who may use only such names")]
pub(crate) struct BenchArgs {
    /// Time to measure, for all parts together.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The names that the user may lock; with --prefix, what follows the prefix.
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    names: String,
    /// Print one line of JSON for each part.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Serialize)]
struct PartLine {
    part: &'static str,
    per_second: f64,
    p50_us: u64,
    p99_us: u64,
    longest_us: u64,
    count: u64,
}

/// The tasks of the part with many of them in one process.
const TASKS: usize = 8;

pub(crate) async fn bench(args: BenchArgs) -> Result<u8, Failure> {
    let (one, two) = (args.server.connect().await?, args.server.connect().await?);
    let names = Names::new(&one, args.server.prefix(), &args.names, "bench").map_err(Library)?;
    let Some(name) = names.own() else {
        let rule = "--names needs a *, so that there is a name of nobody else";
        return Err(Failure::new(exit::USAGE, rule));
    };
    let stop = CancellationToken::new();
    let interrupted = listen(&stop)?;
    let time = Duration::from_secs(args.seconds) / 4;
    let result = parts(&one, &two, name, time, &stop).await;
    interrupted.abort();
    // Also after an error, so that no key of the benchmark stays on the server.
    let removed = remove(&one, &names.some()).await;
    let lines = result?;
    removed?;
    show(&lines, args.json)?;
    Ok(if stop.is_cancelled() {
        exit::of_signal(2)
    } else {
        exit::SUCCESS
    })
}

/// Ends the measurement at the first INT or TERM.
fn listen(stop: &CancellationToken) -> Result<tokio::task::JoinHandle<()>, Failure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = stop.clone();
    Ok(tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    }))
}

async fn parts(
    one: &Client,
    two: &Client,
    name: &str,
    time: Duration,
    stop: &CancellationToken,
) -> Result<Vec<PartLine>, Failure> {
    // Without tokens: their counter would stay.
    let lock = |client| Lock::new(client, name).map(|lock| lock.fencing(Fencing::Off));
    let (mine, theirs) = (lock(one).map_err(Library)?, lock(two).map_err(Library)?);
    let mut lines = Vec::new();
    let trips = measure::round_trips(one, name, time, stop).await?;
    lines.push(trips.line("round trip"));
    let alone = measure::cycles(vec![mine.clone()], time, stop).await?;
    lines.push(alone.line("uncontended"));
    let passed = measure::cycles(vec![mine.clone(), theirs], time, stop).await?;
    lines.push(passed.line("hand-off"));
    let inside = measure::cycles(vec![mine; TASKS], time, stop).await?;
    lines.push(inside.line("in process"));
    lines.retain(|line| line.count > 0);
    Ok(lines)
}

/// Removes every key that the name may have.
async fn remove(client: &Client, name: &Name) -> Result<(), Failure> {
    let Some(console) = client.console_of(name.as_bytes()) else {
        return Ok(());
    };
    let keys = std::iter::once(name.as_bytes().to_vec()).chain(beside::keys_of(name));
    for key in keys {
        console
            .command(&[b"UNLINK".as_slice(), &key])
            .await
            .map_err(Library)?;
    }
    Ok(())
}

impl Measured {
    fn line(&self, part: &'static str) -> PartLine {
        PartLine {
            part,
            per_second: self.per_second(),
            p50_us: self.times.value_at_quantile(0.5),
            p99_us: self.times.value_at_quantile(0.99),
            longest_us: self.times.max(),
            count: self.times.len(),
        }
    }
}

fn show(lines: &[PartLine], json: bool) -> Result<(), Failure> {
    if json {
        for line in lines {
            output::json_line(line)?;
        }
        return Ok(());
    }
    let titles = ["PART", "PER SECOND", "MEDIAN", "99 %", "LONGEST"];
    let column = |title| Column { title, least: 0 };
    let row = |line: &PartLine| Row {
        cells: vec![
            line.part.into(),
            format!("{:.0}", line.per_second).into(),
            micros(line.p50_us).into(),
            micros(line.p99_us).into(),
            micros(line.longest_us).into(),
        ],
        note: Cell::default(),
    };
    let table = Table {
        columns: titles.map(column).to_vec(),
        rows: lines.iter().map(row).collect(),
    };
    let colour = output::may_colour(&std::io::stdout());
    output::line(&table.lines(table::width_of_output(), colour).join("\n"))?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn micros(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} us"),
        1000..1_000_000 => format!("{:.2} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}
