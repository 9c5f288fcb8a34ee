//! Several clients contend for one lock: a picture in the terminal that explains itself.
//!
//! Each client stands for a process: it has its own connections and its own identity. Everything runs inside this program, without a server,
//! unless `--url` names one.

mod board;
mod picture;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use stanchion_fair::FairLock;
use stanchion_lock::{Acquire, Client, ClientConfig, ConnectError, Guard, Lock};
use stanchion_rwlock::RwLock;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::board::{Board, Task};
use crate::picture::Picture;

const HELP: &str = "\
Watch 12 tasks in 3 clients contend for one lock, first in slow motion, then at full speed.
Each client stands for a process. Without --url everything runs inside this program.

Usage: stanchion-demo [lock|fair|rwlock] [--seconds N] [--url URL] [--plain]

  lock, fair, rwlock   what they contend for (lock)
  --seconds N          how long, 2 to 600 (12)
  --url URL            a server, such as redis://127.0.0.1/ (memory://demo)
  --plain              lines instead of a picture, as without a terminal

Ctrl-C ends it early and shows the result.

Exit codes: 0 no overlap and no error, 1 otherwise, 2 wrong usage,
            69 the server cannot be reached, 78 the server or the URL is refused";

/// The names of the clients.
const CLIENTS: [char; 3] = ['A', 'B', 'C'];
const TASKS_PER_CLIENT: usize = 4;
/// The longest hold and the longest rest.
const SLOW: [Duration; 2] = [Duration::from_millis(600), Duration::from_millis(2400)];
const FAST: [Duration; 2] = [Duration::from_millis(3), Duration::from_millis(3)];
const AFTER_ERROR: Duration = Duration::from_millis(200);
const FRAME: Duration = Duration::from_millis(100);
/// For the releases at the end.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock,
    Fair,
    RwLock,
}

impl Kind {
    const fn noun(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair lock",
            Self::RwLock => "read-write lock",
        }
    }

    /// The rule that the detector of overlaps checks.
    const fn rule(self) -> &'static str {
        match self {
            Self::Lock => "One task holds it at a time.",
            Self::Fair => "Tasks hold it one by one, in order of arrival.",
            Self::RwLock => "Task 1 of each client writes, the others read.",
        }
    }

    /// What a task acquires, and whether others may hold it at the same time: three of four tasks of a read-write lock read.
    fn handle(self, client: &Client, task: Task) -> Result<(Box<dyn Acquire>, bool), Failure> {
        let refused = |error| Failure(78, format!("{error}"));
        let name = "orders";
        Ok(match self {
            Self::Lock => (Box::new(Lock::new(client, name).map_err(refused)?), false),
            Self::Fair => (
                Box::new(FairLock::new(client, name).map_err(refused)?),
                false,
            ),
            Self::RwLock => {
                let lock = RwLock::new(client, name).map_err(refused)?;
                let reads = !task.index().is_multiple_of(TASKS_PER_CLIENT);
                let side = if reads {
                    lock.read_side()
                } else {
                    lock.write_side()
                };
                (Box::new(side), reads)
            }
        })
    }
}

struct Args {
    kind: Kind,
    seconds: u64,
    url: String,
    plain: bool,
}

/// The exit code, and what standard error says.
struct Failure(u8, String);

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, Failure> {
    let wrong = |text: String| Failure(2, format!("{text}; --help shows the usage"));
    let mut args = Args {
        kind: Kind::Lock,
        seconds: 12,
        url: "memory://demo".to_owned(),
        plain: false,
    };
    while let Some(word) = words.next() {
        let (option, joined) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || {
            let value = joined.clone().or_else(|| words.next());
            value.ok_or_else(|| wrong(format!("{option} needs a value")))
        };
        match option {
            "lock" => args.kind = Kind::Lock,
            "fair" => args.kind = Kind::Fair,
            "rwlock" => args.kind = Kind::RwLock,
            "--plain" => args.plain = true,
            "--url" => args.url = value()?,
            "--seconds" => {
                let number = value()?.parse().ok().filter(|n| (2..=600).contains(n));
                args.seconds = number.ok_or_else(|| wrong("--seconds is 2 to 600".to_owned()))?;
            }
            "-h" | "--help" => return Ok(None),
            _ => return Err(wrong(format!("{word:?} is not known"))),
        }
    }
    Ok(Some(args))
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match parse(std::env::args().skip(1)) {
        Ok(Some(args)) => Box::pin(run(args)).await,
        Ok(None) => {
            print(&format!("{HELP}\n"));
            Ok(true)
        }
        Err(failure) => Err(failure),
    };
    match done {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(Failure(code, text)) => {
            let _ = writeln!(io::stderr(), "stanchion-demo: {text}");
            ExitCode::from(code)
        }
    }
}

/// Returns whether nothing overlapped and nothing failed.
async fn run(args: Args) -> Result<bool, Failure> {
    let mut clients = Vec::new();
    for _ in CLIENTS {
        let config = ClientConfig::new(args.url.as_str()).key_prefix("stanchion-demo:");
        clients.push(Client::connect_with(config).await.map_err(refused)?);
    }
    let started = Instant::now();
    let end = started + Duration::from_secs(args.seconds);
    let board = Arc::new(Board::new(started + (end - started) / 2));
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for task in Task::all() {
        let (lock, shared) = args.kind.handle(&clients[task.client()], task)?;
        tasks.spawn(contend(
            task,
            lock,
            shared,
            Arc::clone(&board),
            stopped.clone(),
        ));
    }
    let mut picture = Picture::new(&args, &board, &clients, end);
    tokio::select! {
        // First: a signal after the first line ends the demo early.
        biased;
        () = interrupted() => {}
        () = show(&mut picture, end) => {}
    }
    stop.send_replace(true);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap_or_else(|error| board.failed(&error));
    }
    for client in &clients {
        if !client.shutdown(GRACE).await.is_clean() {
            board.failed(&"a release was not confirmed");
        }
    }
    print(&picture.result(Instant::now().min(end)));
    Ok(board.counts().is_good())
}

fn refused(error: ConnectError) -> Failure {
    let unreachable = matches!(error, ConnectError::Unreachable { .. });
    Failure(if unreachable { 69 } else { 78 }, error.to_string())
}

/// A task: waits, holds for a moment, rests for a moment.
async fn contend(
    task: Task,
    lock: Box<dyn Acquire>,
    shared: bool,
    board: Arc<Board>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut moments = Moments(task.index() as u64);
    while !*stopped.borrow() {
        board.waits(task);
        // Dropping an acquire gives up its place in the queue.
        let acquired = tokio::select! {
            acquired = lock.acquire() => acquired,
            _ = stopped.wait_for(|stop| *stop) => return board.rests(task),
        };
        let [hold, rest] = if board.is_slow() { SLOW } else { FAST }.map(|most| moments.next(most));
        let held = match acquired {
            Ok(guard) => {
                board.enters(task, shared, guard.fencing_token());
                hold_for(hold, guard, || board.leaves(task, shared), &mut stopped).await
            }
            Err(error) => Err(error.into()),
        };
        board.rests(task);
        let rest = match held {
            Ok(()) => rest,
            Err(error) => {
                board.failed(&error);
                AFTER_ERROR
            }
        };
        tokio::select! {
            () = sleep(rest) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    }
}

async fn hold_for(
    hold: Duration,
    guard: Guard,
    leave: impl FnOnce(),
    stopped: &mut watch::Receiver<bool>,
) -> Result<(), stanchion_lock::Error> {
    let work = async {
        tokio::select! {
            () = sleep(hold) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    };
    // After a loss `run` drops the work in time: the board sees this task leave before the next one enters.
    let worked = guard.run(work).await;
    leave();
    worked?;
    Ok(guard.release().await?)
}

/// Pseudo-random durations. A crate for them would cost the reader more than these lines.
struct Moments(u64);

impl Moments {
    fn next(&mut self, most: Duration) -> Duration {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let per_mille = u32::try_from((self.0 >> 33) % 1000).unwrap_or_default();
        most * (per_mille / 2 + 500) / 1000
    }
}

/// Shows the picture until the end, or lines without a terminal.
async fn show(picture: &mut Picture<'_>, end: Instant) {
    let mut frames = tokio::time::interval(FRAME);
    loop {
        let now = frames.tick().await;
        print(&picture.next(now));
        if now >= end {
            return;
        }
    }
}

/// SIGINT (Ctrl-C) or SIGTERM.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let terminated = async {
            match signal(SignalKind::terminate()) {
                Ok(mut signals) => drop(signals.recv().await),
                // Without the handler, SIGTERM ends the program by default.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = terminated => {}
        }
    }
    #[cfg(not(unix))]
    let _ = tokio::signal::ctrl_c().await;
}

/// Writes to standard output at once. A reader that is gone, such as `head`, is no failure of the library.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Returns whether standard output understands cursor movements.
fn is_terminal() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
