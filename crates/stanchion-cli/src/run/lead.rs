//! `stanchion lead`: runs a command whenever this process is elected; `run` for an election.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use stanchion::Lease;
use tokio::task::JoinHandle;

use super::acquire::Wait;
use super::target::Held;
use super::{Leftovers, OnRequest, RunArgs, parse_lease};
use crate::connect::ServerArgs;
use crate::exit::{self, Failure};

/// The first and the longest pause before the next campaign, after a command that failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Run a command while leading an election.
///
/// Campaigns until elected, runs the command, steps down when it ends, and exits as it did. When the leadership is lost the
/// command is stopped. Others see --value as the leader's: `stanchion leader NAME`.
#[derive(Debug, Args)]
#[command(after_long_help = DETAILS, after_help = "`stanchion lead --help` lists exit codes, signals and examples.")]
pub(crate) struct LeadArgs {
    /// The election's name.
    name: String,
    /// What others see of the leader, such as its address: 4096 bytes at most, no secrets.
    #[arg(long, value_name = "TEXT")]
    value: String,
    /// While nobody leads, the candidate with the highest priority is elected. It takes no running term.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    priority: i32,
    /// Campaign again after each term, until a signal: run the command whenever elected.
    #[arg(long)]
    forever: bool,
    /// A file that exists while the command runs as the leader's: for readiness probes. Contains the fencing token.
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// The time after which others may lead if this machine dies. Renewed every third of it.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_lease)]
    lease: Lease,
    /// The time between TERM and KILL for the command, and all that it has started, when the leadership is lost.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    grace: Duration,
    /// Handling of processes that the command leaves behind; this process leads until they have ended.
    #[arg(long, value_enum, default_value_t = Leftovers::Wait)]
    leftovers: Leftovers,
    /// Handling of a request to step down: by `stanchion ask`, or because a candidate of higher priority waits.
    #[arg(long, value_enum, default_value_t = OnRequest::Tell)]
    on_request: OnRequest,
    /// A prefix for messages.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Report each step: connected, waiting, elected, started, ended, stepped down.
    #[arg(long, short)]
    verbose: bool,
    /// Write one line of JSON about the outcome of the last term to standard error, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Without a URL: use this user's server if it runs, but do not start it.
    #[arg(long)]
    no_server: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const DETAILS: &str = "\
Exit codes:
  the command's own, or 128 + n if signal n ended it; otherwise
  2     the command line is wrong
  69    the server cannot be reached
  73    the leadership was lost while the command ran; it was stopped, or had ended
  74    the system refused something else, or this program's helper was killed
  78    the server or the rules refuse (rights, name, URL, certificate, …)
  126   the command cannot be executed
  127   the command was not found
  130   interrupted while waiting (128 + n for signal n): it is no candidate any more
  With --forever: the code of the last term, after INT, QUIT or TERM; 126 and 127
  end it, too.

The command sees:
  STANCHION_NAME            the election's name
  STANCHION_FENCING_TOKEN   a number that grows with every term

  No lease excludes a command that is paused at the wrong moment. Pass the token
  to what the command writes to, and let that refuse smaller ones.

Terms:
  Who steps down lets others go first for a second. With --forever a command that
  fails is run again after a pause of 1 s, then 2 s, to 30 s at most. A candidate of
  higher priority is told on standard error, once; with --on-request term the
  command is stopped for it.

Signals, end: as `stanchion run --help` says.

Examples:
  stanchion lead indexer --value 10.0.0.7:9000 -- ./index
  stanchion lead indexer --value $POD_IP --forever --ready-file /tmp/leads -- ./index
  stanchion lead indexer --value b --priority 10 --on-request term -- ./index
  stanchion leader indexer --watch";

/// What a `run` that leads does besides.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) value: String,
    pub(super) priority: i32,
    forever: bool,
    ready_file: Option<PathBuf>,
}

impl LeadArgs {
    /// The same as a `run`.
    fn into_run(self) -> RunArgs {
        RunArgs {
            name: self.name,
            fair: false,
            read: false,
            write: false,
            permits: None,
            wait: Wait::Forever,
            lease: self.lease,
            at_least: None,
            tick: None,
            every: None,
            grace: self.grace,
            leftovers: self.leftovers,
            on_request: self.on_request,
            label: self.label,
            conflict_exit_code: exit::NOT_ACQUIRED,
            verbose: self.verbose,
            json: self.json,
            no_server: self.no_server,
            lead: Some(Leading {
                value: self.value,
                priority: self.priority,
                forever: self.forever,
                ready_file: self.ready_file,
            }),
            server: self.server,
            command: self.command,
        }
    }
}

pub(crate) async fn lead(args: LeadArgs) -> Result<u8, Failure> {
    let args = args.into_run();
    if let Some(path) = args.ready_file() {
        // Of a run that was killed.
        remove(path).map_err(|error| unwritable(path, &error))?;
    }
    super::run(args).await
}

impl RunArgs {
    fn ready_file(&self) -> Option<&Path> {
        self.lead.as_ref()?.ready_file.as_deref()
    }

    /// The pause before the next campaign, after a term that ended with `code`. `None`: it was the last one.
    pub(super) fn next_term(&self, code: u8, failures: &mut u32) -> Option<Duration> {
        if !self.lead.as_ref()?.forever {
            return None;
        }
        if matches!(code, exit::NOT_EXECUTABLE | exit::NOT_FOUND) {
            // It will not be there the next time either.
            return None;
        }
        if code == exit::SUCCESS || code == exit::LOST {
            *failures = 0;
            return Some(Duration::ZERO);
        }
        let pause = (PAUSES.0 * 2_u32.saturating_pow(*failures)).min(PAUSES.1);
        *failures = failures.saturating_add(1).min(5);
        Some(pause.mul_f64(0.5 + fastrand::f64() / 2.0))
    }
}

/// The file that says that the command leads; there as long as this.
#[derive(Debug)]
pub(super) struct Ready {
    path: PathBuf,
    /// Removes it when the hold is lost: not only when the command, which may take its grace, has ended.
    watch: JoinHandle<()>,
}

impl Ready {
    /// Writes the file, if the arguments name one.
    pub(super) fn new(args: &RunArgs, held: &Held) -> Result<Option<Self>, Failure> {
        let Some(path) = args.ready_file() else {
            return Ok(None);
        };
        let token = held
            .fencing_token()
            .map_or_else(String::new, |it| it.to_string());
        // A probe must not read half of it.
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        fs::write(&beside, format!("{token}\n"))
            .and_then(|()| fs::rename(&beside, path))
            .map_err(|error| unwritable(path, &error))?;
        let (lost, gone) = (held.lost(), path.to_owned());
        let watch = tokio::spawn(async move {
            lost.await;
            // OK: removed again, and reported, when the command has ended.
            let _ = remove(&gone);
        });
        Ok(Some(Self {
            path: path.to_owned(),
            watch,
        }))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.watch.abort();
        if let Err(error) = remove(&self.path) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the readiness file was not removed");
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(exit::IO, format_args!("{}: {error}", path.display()))
}
