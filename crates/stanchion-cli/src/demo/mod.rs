//! `stanchion demo`: many workers, one synchronizer, and a detector of overlapping holders.

mod board;
mod live;
mod meter;
mod names;
mod plain;
mod primitive;
mod prize;
mod rounds;
mod summary;
mod view;
mod worker;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use stanchion::{Client, ClientConfig, LeasedSemaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::board::Board;
use self::meter::CommandMeter;
use self::names::Names;
use self::primitive::{PERMITS, Primitive};
use self::prize::Prize;
use self::rounds::Rounds;
use self::summary::Summary;
use self::worker::Worker;
use crate::connect::SHUTDOWN;
use crate::exit::{self, Failure, Library};
use crate::output;

/// The number of clients. Each simulates a process: hand-offs happen inside a client, messages wake waiters of another client.
const CLIENTS: usize = 3;
/// The names of the clients.
const LETTERS: [&str; CLIENTS] = ["A", "B", "C"];
/// Beginning of every name on the server.
const PREFIX: &str = "stanchion-demo:";
/// Servers of a RedLock.
const NODES: usize = 3;
/// The time between two checks of the server.
const LOOK: Duration = Duration::from_millis(50);
/// Watch many workers contend, and a detector count overlapping holders.
///
/// The workers are spread over three clients, as if in three processes. Without --url everything runs inside this
/// program: there is nothing to install.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     no overlap, no error
  1     an overlap, a token that did not grow, a lost lease or an error
  2     the command line is wrong
  69    the server cannot be reached
  78    the server or the URL is refused

Examples:
  stanchion demo
  stanchion demo --primitive fair
  stanchion demo --primitive all --seconds 12 --plain
  stanchion demo --url redis://127.0.0.1/ --workers 50   in several terminals
  stanchion demo --seconds 3 --json | jq .grants_per_second")]
pub(crate) struct DemoArgs {
    /// The primitive that they contend for.
    #[arg(long, short, value_enum, default_value = "lock")]
    primitive: Primitive,
    /// The duration, at most 60 (all: shared among them).
    #[arg(long, short, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// The number of workers.
    #[arg(long, short, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,
    /// The number of names they share (multilock: at least 4; latch: a new one each round).
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    names: u16,
    /// The server. memory:// is an engine inside this program.
    #[arg(long, default_value = "memory://demo")]
    url: String,
    /// Print a line a second instead of the live display.
    #[arg(long)]
    plain: bool,
    /// Print nothing but one line of JSON at the end.
    #[arg(long)]
    json: bool,
}

impl DemoArgs {
    /// Returns whether to show the live display.
    pub(crate) fn is_live(&self) -> bool {
        !self.plain && !self.json && output::may_colour(&io::stdout())
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

pub(crate) async fn demo(args: DemoArgs) -> Result<u8, Failure> {
    if args.primitive != Primitive::All {
        return Box::pin(one(&args)).await;
    }
    let share = (args.seconds / Primitive::EACH.len() as u64).max(1);
    let mut worst = exit::SUCCESS;
    for primitive in Primitive::EACH {
        let part = DemoArgs {
            primitive,
            seconds: share,
            ..args.clone()
        };
        worst = worst.max(Box::pin(one(&part)).await?);
    }
    Ok(worst)
}

/// One primitive.
async fn one(args: &DemoArgs) -> Result<u8, Failure> {
    let meter = (args.primitive != Primitive::Redlock)
        .then(|| CommandMeter::of(&args.url))
        .flatten();
    let clients = connect(args).await?;
    let names = args.primitive.names(args.names);
    let board = Arc::new(Board::new(
        usize::from(args.workers),
        clients.len(),
        usize::from(names),
        args.primitive.capacity(),
    ));
    let semaphores = semaphores(args, &clients[0][0], names).await?;
    let looks = Arc::new(Names::new(args.primitive, names, &clients));
    let cost = match &meter {
        Some(meter) if args.is_live() => looks.cost(meter).await?,
        _ => 0,
    };
    let stop = CancellationToken::new();
    let mut workers = start(args, &clients, names, &board, &stop)?;
    workers.spawn(watch(clients.clone(), Arc::clone(&board), stop.clone()));
    let started = Instant::now();
    let shown = show(args, &board, &looks, started).await;
    let took = started.elapsed();
    stop.cancel();
    while let Some(ended) = workers.join_next().await {
        if let Err(error) = ended {
            board.error(&error);
        }
    }
    let commands = meter.map(|meter| meter.commands().saturating_sub(cost * looks.looked()));
    for semaphore in semaphores {
        remove(&semaphore, &board).await;
    }
    for client in clients.iter().flatten() {
        let left = client.shutdown(SHUTDOWN).await;
        if !left.is_clean() {
            let unfinished = left.unfinished + left.abandoned.len();
            board.error(&format_args!("{unfinished} releases were not confirmed"));
        }
    }
    shown?;
    let summary = Summary::new(args, &board, took, commands);
    if args.json {
        output::json_line(&summary)?;
    } else {
        let columns = ratatui::crossterm::terminal::size().map(|(columns, _)| usize::from(columns));
        let columns = columns.ok().filter(|_| io::stdout().is_terminal());
        let colour = output::may_colour(&io::stdout());
        output::line(&summary.table(colour, columns.unwrap_or(usize::MAX)))?;
    }
    Ok(if summary.is_good() {
        exit::SUCCESS
    } else {
        exit::NO
    })
}

/// Connects a client to each server, for each of the simulated processes.
async fn connect(args: &DemoArgs) -> Result<Vec<Vec<Client>>, Failure> {
    let urls = match args.primitive {
        Primitive::Redlock if !args.url.starts_with("memory:") => {
            let message = "a RedLock needs several independent servers: \
                           it is shown on engines inside this program, without --url";
            return Err(Failure::new(exit::CONFIG, message));
        }
        Primitive::Redlock => (1..=NODES)
            .map(|node| format!("{}-node-{node}", args.url.trim_end_matches('/')))
            .collect(),
        _ => vec![args.url.clone()],
    };
    let mut processes = Vec::new();
    for _ in 0..CLIENTS.min(usize::from(args.workers)) {
        let mut clients = Vec::new();
        for url in &urls {
            let config = ClientConfig::new(url.as_str()).key_prefix(PREFIX.to_owned());
            clients.push(Client::connect_with(config).await.map_err(Library)?);
        }
        processes.push(clients);
    }
    Ok(processes)
}

/// Starts the workers, spread over the clients.
fn start(
    args: &DemoArgs,
    clients: &[Vec<Client>],
    names: u16,
    board: &Arc<Board>,
    stop: &CancellationToken,
) -> Result<JoinSet<()>, Failure> {
    let mut workers = JoinSet::new();
    let rounds = (args.primitive == Primitive::Latch)
        .then(|| Arc::new(Rounds::new(usize::from(args.workers))));
    if let Some(rounds) = &rounds {
        let (rounds, client) = (Arc::clone(rounds), clients[0][0].clone());
        let (board, stop) = (Arc::clone(board), stop.clone());
        workers.spawn(async move { rounds.call(client, board, stop).await });
    }
    for id in 0..usize::from(args.workers) {
        let number = id % clients.len();
        let servers = &clients[number];
        let (board, stop) = (Arc::clone(board), stop.clone());
        if let Some(rounds) = &rounds {
            let (rounds, client) = (Arc::clone(rounds), servers[0].clone());
            workers.spawn(async move { rounds.follow(id, number, client, board, stop).await });
        } else {
            let prize = Prize::new(args.primitive, servers, names)
                .map_err(|error| Failure::new(exit::CONFIG, error))?;
            let worker = Worker {
                id,
                client: number,
                prize,
                board,
                stop,
            };
            workers.spawn(worker.run());
        }
    }
    Ok(workers)
}

/// Sets the number of permits of each semaphore, unless a demonstration in another terminal has done so.
async fn semaphores(
    args: &DemoArgs,
    client: &Client,
    names: u16,
) -> Result<Vec<LeasedSemaphore>, Failure> {
    let mut semaphores = Vec::new();
    if args.primitive == Primitive::Semaphore {
        for number in 1..=names {
            let name = format!("{}-{number}", args.primitive.noun());
            let semaphore = LeasedSemaphore::new(client, name).map_err(Library)?;
            semaphore.init(PERMITS).await.map_err(Library)?;
            semaphores.push(semaphore);
        }
    }
    Ok(semaphores)
}

/// Removes a semaphore unless another demonstration still uses it. Its permits have no TTL.
///
/// The last acquires of this one were left at its end: their grants may be on their way back.
async fn remove(semaphore: &LeasedSemaphore, board: &Board) {
    let until = Instant::now() + SHUTDOWN;
    loop {
        match semaphore.acquired().await {
            Ok(0) => {
                if let Err(error) = semaphore.danger().delete().await {
                    board.error(&error);
                }
                return;
            }
            Ok(_) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(20)).await,
            Ok(_) => return,
            Err(error) => {
                board.error(&error);
                return;
            }
        }
    }
}

/// Checks periodically whether the server can be reached.
async fn watch(clients: Vec<Vec<Client>>, board: Arc<Board>, stop: CancellationToken) {
    let mut last = Instant::now();
    while stop
        .run_until_cancelled(tokio::time::sleep(LOOK))
        .await
        .is_some()
    {
        let within_reach = clients.iter().flatten().all(Client::is_connected);
        board.watch(within_reach, last.elapsed());
        last = Instant::now();
    }
}

/// Shows the display until the time has passed or the user stops it.
async fn show(
    args: &DemoArgs,
    board: &Board,
    names: &Arc<Names>,
    started: Instant,
) -> io::Result<()> {
    let end = started + args.duration();
    tokio::select! {
        // Raw mode turns Ctrl-C into a key, which the live display reads; kill -INT comes here.
        signal = tokio::signal::ctrl_c() => signal,
        () = terminated() => Ok(()),
        shown = async {
            if args.json {
                tokio::time::sleep_until(end).await;
                Ok(())
            } else if args.is_live() {
                live::show(args, board, names, started).await
            } else {
                plain::show(args, board, started).await
            }
        } => shown,
    }
}

async fn terminated() {
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(mut signals) => drop(signals.recv().await),
        // Without the handler TERM ends the program by default.
        Err(_) => std::future::pending().await,
    }
}
