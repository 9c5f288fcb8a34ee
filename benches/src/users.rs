//! The tables of the users' pages: what an operation costs, which goals were missed, and when one server is full.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::chart::short;
use crate::page::read;
use crate::peers::{Peers, markdown};
use crate::report::{Row, Run, digits};
use crate::scale::rounded;

/// The goals that the latest runs missed, in words for users.
const MISSED: [(&str, &str, &str); 16] = [
    (
        "uncontended",
        "cycle / same scripts, current_thread",
        "a free lock, one thread: time ÷ bare",
    ),
    (
        "minimal",
        "cycle / minimal scripts, current_thread",
        "a free lock, one thread: time ÷ scripts without a token",
    ),
    (
        "parallel",
        "64 names: cycles / bare, current_thread",
        "64 free locks, one thread: rate ÷ bare",
    ),
    (
        "peer",
        "64 names: cycles / rslock, current_thread",
        "64 free locks, one thread: rate ÷ `rslock`",
    ),
    (
        "peer",
        "64 names: cycles / rslock, multi_thread",
        "64 free locks, several threads: rate ÷ `rslock`",
    ),
    (
        "crowd",
        "10000 waiters: bytes for each",
        "a waiting task: bytes",
    ),
    (
        "fair",
        "2 tasks: fair wait p99 / p50",
        "`FairLock`, 2 tasks: 99th percentile of waits ÷ median",
    ),
    (
        "fair",
        "2 tasks: hand-offs/s, fair / lock",
        "`FairLock`, 2 tasks: hand-offs ÷ `Lock`",
    ),
    (
        "fair",
        "16 tasks: hand-offs/s, fair / lock",
        "`FairLock`, 16 tasks: hand-offs ÷ `Lock`",
    ),
    (
        "fair",
        "128 tasks: hand-offs/s, fair / lock",
        "`FairLock`, 128 tasks: hand-offs ÷ `Lock`",
    ),
    (
        "fair",
        "4 processes of 8 tasks: commands for a hand-off, fair",
        "`FairLock`, 4 processes: commands for a hand-off",
    ),
    (
        "fair-gap",
        "FairLock: release to next holder / round trip",
        "`FairLock`, next client: time ÷ a round trip",
    ),
    (
        "redlock",
        "3 nodes: cycle / cycle on the slowest alone",
        "`RedLock`, 3 servers: time ÷ the slowest server",
    ),
    (
        "redlock",
        "5 nodes: cycle / cycle on the slowest alone",
        "`RedLock`, 5 servers: time ÷ the slowest server",
    ),
    (
        "fleet",
        "Semaphore, 8 permits: commands, 64 / 2",
        "`Semaphore`: commands at 64 clients ÷ at 2",
    ),
    // Missed in other runs.
    (
        "fair",
        "4 processes of 8 tasks: fair wait p99 / p50",
        "`FairLock`, 4 processes: 99th percentile of waits ÷ median",
    ),
];

/// All that the page shows.
struct Stored {
    lock: Run,
    family: Run,
    fleet: Run,
    idle: Run,
}

impl Stored {
    fn read(figures: &Path) -> Result<Self> {
        let run = |name: &str| read(&figures.join(name).with_extension("json"));
        Ok(Self {
            lock: run("lock")?,
            family: run("family")?,
            fleet: run("fleet")?,
            idle: run("idle")?,
        })
    }

    fn runs(&self) -> [&Run; 4] {
        [&self.lock, &self.family, &self.fleet, &self.idle]
    }

    fn row(&self, figure: &str, what: &str) -> Result<&Row> {
        let found = self
            .runs()
            .into_iter()
            .find_map(|run| run.row(figure, what).ok());
        found.with_context(|| format!("no row `{figure}` {what}"))
    }

    fn median(&self, figure: &str, what: &str) -> Result<f64> {
        Ok(self.row(figure, what)?.value.median)
    }

    /// The server's microseconds for a grant, from the note of a row of `fleet`.
    fn server_micros(&self, what: &str) -> Result<String> {
        let note = &self.row("fleet", what)?.note;
        let words = note.strip_suffix(" us of the server");
        let micros = words.and_then(|words| words.rsplit(' ').next());
        micros
            .map(str::to_owned)
            .with_context(|| format!("{what} has no server time: {note}"))
    }
}

/// Commands: whole numbers without digits that say nothing.
fn commands(value: f64) -> String {
    let text = format!("{value:.1}");
    text.trim_end_matches(".0").to_owned()
}

fn machine(stored: &Stored, peers: &Peers) -> String {
    let days = format!(
        "Costs: {}; 64 clients: {}; idle waiting: {}; other libraries: {}.",
        stored.lock.day, stored.fleet.day, stored.idle.day, peers.day
    );
    format!(
        "{days} Server and clients shared one virtual machine with {} cores, {}.\n\n\
         Libraries: {}.\n",
        peers.cores,
        peers.server,
        peers.about[1..].join("; ")
    )
}

fn costs(stored: &Stored) -> Result<String> {
    let bare = |figure: &str, what: &str| -> Result<String> {
        Ok(format!("{:.2}", stored.median(figure, what)?))
    };
    let sent =
        |figure: &str, what: &str| -> Result<String> { Ok(commands(stored.median(figure, what)?)) };
    // The server time of a cycle of the lock, before the slash.
    let cycle = &stored
        .row("server-time", "with fence and not_after / Redisson's shape")?
        .note;
    let cycle: f64 = cycle
        .split(' ')
        .next()
        .and_then(|micros| micros.parse().ok())
        .with_context(|| format!("no server time: {cycle}"))?;
    let fleet = |name: &str, what: &str, bare: String| -> Result<Vec<String>> {
        let what = format!("{what}, 64: commands");
        Ok(vec![
            name.to_owned(),
            sent("fleet", &what)?,
            stored.server_micros(&what)?,
            bare,
        ])
    };
    let time = stored.median("uncontended", "cycle / same scripts, current_thread")?;
    let quorum = stored.median("redlock", "3 nodes: cycle / bare requests to all")?;
    let row = |name: &str, commands: String, micros: &str, bare: String| {
        vec![name.to_owned(), commands, micros.to_owned(), bare]
    };
    let rows = [
        row(
            "a free lock: acquire and release",
            sent("commands", "commands sent for a cycle")?,
            &format!("{cycle:.0}"),
            format!("{:.2}", 1.0 / time),
        ),
        row(
            "64 free locks at once",
            sent("commands", "commands sent for a cycle")?,
            "",
            bare("parallel", "64 names: cycles / bare, current_thread")?,
        ),
        row(
            "a hand-off in a process, 16 tasks",
            sent("handoff-commands", "commands for a hand-off, 16 tasks")?,
            "",
            bare(
                "handoffs",
                "16 tasks: hand-offs / bare cycles, current_thread",
            )?,
        ),
        row(
            "a fair hand-off in a process, 16 tasks",
            sent("fair", "16 tasks: commands for a hand-off, fair")?,
            "",
            String::new(),
        ),
        fleet("`Lock`, 64 clients", "Lock", String::new())?,
        fleet("`FairLock`, 64 clients", "FairLock", String::new())?,
        fleet(
            "`Semaphore`, 64 clients",
            "Semaphore, 8 permits",
            bare("fleet", "Semaphore, 8 permits, 64: grants/s / bare")?,
        )?,
        fleet(
            "`LeasedSemaphore`, 64 clients",
            "LeasedSemaphore, 8 permits",
            String::new(),
        )?,
        row(
            "64 readers of one lock",
            String::new(),
            "",
            bare("readers", "64 readers of a name / bare, current_thread")?,
        ),
        row(
            "8 names at once (`MultiLock`)",
            sent("multilock", "8 names: commands of a cycle")?,
            "",
            String::new(),
        ),
        row(
            "a quorum of 3 servers (`RedLock`)",
            String::new(),
            "",
            format!("{:.2}", 1.0 / quorum),
        ),
    ];
    Ok(markdown(
        &["operation", "commands", "server µs", "rate ÷ bare"],
        &rows,
    ))
}

fn room(stored: &Stored) -> Result<String> {
    let bytes = |what: &str| -> Result<String> {
        let what = format!("{what}: bytes on the server");
        Ok(format!(
            "{:.0} bytes on the server",
            stored.median("memory", &what)?
        ))
    };
    let idle = |count: usize| -> Result<String> {
        let what = format!("Lock, {count} processes wait: requests a second");
        let requests = stored.median("idle", &what)?;
        Ok(format!("{requests:.1} commands/s, all together"))
    };
    let watchdog = stored.median("watchdog", "10000 held locks: % of a core, 30 s leases")?;
    let waiter = stored.median("crowd", "10000 waiters: bytes for each")?;
    let rows: Result<Vec<(&str, String)>> = [
        ("a held lock", bytes("a held Lock")),
        ("a reader", bytes("a reader of one RwLock")),
        ("a permit", bytes("a permit of one Semaphore")),
        (
            "a permit with a lease",
            bytes("a permit of one LeasedSemaphore"),
        ),
        (
            "10,000 held locks, renewed",
            Ok(format!("{watchdog:.1} % of a client core")),
        ),
        (
            "a waiting task",
            Ok(format!("{waiter:.0} bytes in its process")),
        ),
        ("64 idle waiting processes", idle(64)),
    ]
    .into_iter()
    .map(|(name, cost)| Ok((name, cost?)))
    .collect();
    let rows: Vec<Vec<String>> = rows?
        .into_iter()
        .map(|(name, cost)| vec![name.to_owned(), cost])
        .collect();
    Ok(markdown(&["what", "cost"], &rows))
}

/// The load at which one core of the server is full, by the CPU time that each load costs. Each load is measured at its largest number.
fn full(figures: &Path) -> Result<String> {
    let run: Run = read(&figures.join("scale.json"))?;
    let value = |what: &str| -> Result<f64> { Ok(run.row("scale", what)?.value.median) };
    // Microseconds a second, from the percentage of a core for so many.
    let micros = |what: &str, count: f64| -> Result<f64> {
        Ok(value(&format!("{what}: server, % of a core"))? * 1e4 / count)
    };
    let rows = [
        (
            "acquire and release a free lock",
            "µs each",
            value("64 tasks, 64 free locks: server, us of CPU for an acquire and a release")?,
            "a second",
        ),
        (
            "pass a name on, 100 clients want it",
            "µs each",
            value("100 clients want one name: server, us of CPU for a grant")?,
            "a second",
        ),
        (
            "hold a lock, with a lease of 30 s",
            "µs a second",
            micros("100,000 held locks, renewed", 100_000.0)?,
            "locks",
        ),
        (
            "hold a name that one client awaits",
            "µs a second",
            micros("10,000 names with a waiting client", 10_000.0)?,
            "names",
        ),
        (
            "an idle client that holds a lock",
            "µs a second",
            micros("1,000 idle clients, each with a held lock", 1000.0)?,
            "clients",
        ),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(load, per, micros, of)| {
            let cost = format!("{} {per}", short(micros));
            vec![
                load.to_owned(),
                cost,
                format!("{} {of}", rounded(1e6 / micros)),
            ]
        })
        .collect();
    let table = markdown(&["load", "server CPU", "one core is full at"], &rows);
    Ok(format!(
        "{}, {}, server and clients on one virtual machine with {} cores:\n\n{table}",
        run.day, run.server, run.cores
    ))
}

/// Every library that is faster than stanchion, on several threads and on one.
fn faster(stored: &Stored, peers: &Peers) -> String {
    let mut rows = peers.ahead_for_users();
    for row in &stored.fleet.rows {
        let compared = row.what.strip_suffix(": grants/s / Redisson's");
        // A ratio whose range includes 1 is a draw.
        let Some((what, clients)) = compared.and_then(|what| what.rsplit_once(", ")) else {
            continue;
        };
        if row.value.max < 1.0 {
            let times = format!("{:.2}", 1.0 / row.value.median);
            rows.push(vec![
                format!("Redisson: {clients} clients, {what}"),
                times,
                String::new(),
            ]);
        }
    }
    markdown(&["faster library", "several threads", "one thread"], &rows)
}

fn missed(stored: &Stored) -> Result<String> {
    let mut rows = Vec::new();
    let all = stored.runs().into_iter().flat_map(|run| &run.rows);
    for row in all.filter(|row| row.met == Some(false)) {
        let words = MISSED
            .iter()
            .find(|(figure, what, _)| *figure == row.figure && *what == row.what)
            .with_context(|| format!("no words for the missed `{}` {}", row.figure, row.what))?;
        rows.push(vec![
            words.2.to_owned(),
            row.target.text().replace("<=", "≤").replace(">=", "≥"),
            digits(row.value.median),
        ]);
    }
    Ok(markdown(&["goal", "wanted", "measured"], &rows))
}

/// The text between the markers `users/<name>`.
pub(crate) fn text(name: &str, figures: &Path) -> Result<String> {
    let stored = Stored::read(figures)?;
    let peers: Peers = read(&figures.join("peers.json"))?;
    Ok(match name {
        "machine" => machine(&stored, &peers),
        "costs" => costs(&stored)?,
        "room" => room(&stored)?,
        "ratios" => peers.ratios_for_users(),
        "faster" => faster(&stored, &peers),
        "missed" => missed(&stored)?,
        "full" => full(figures)?,
        _ => bail!("the users' page has no part `{name}`"),
    })
}
