//! `stanchion lead`: runs a command whenever this process is elected; `run` for an election.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use stanchion::{Client, Lease};
use tokio::task::JoinHandle;

use super::acquire::{Wait, parse_wait};
use super::target::Held;
use super::work::WorkArgs;
use super::{RunArgs, parse_lease};
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
    /// The text that others see of the leader, such as its address: 4096 bytes at most, no secrets. Default: host:pid, this machine's name
    /// and the number of this process.
    #[arg(long, value_name = "TEXT", value_parser = parse_value)]
    value: Option<String>,
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
    /// The time to wait for the election, and for the server: a duration, `forever`, or 0 to ask once.
    #[arg(long, short, value_name = "DURATION", default_value = "forever", value_parser = parse_wait, conflicts_with = "forever")]
    wait: Wait,
    /// Exit with this code instead of 75 when not elected in time.
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = exit::NOT_ACQUIRED, hide_default_value = true)]
    conflict_exit_code: u8,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

const DETAILS: &str = "\
Exit codes:
  the command's own, or 128 + n if signal n ended it; otherwise
  2     the command line is wrong
  69    the server could not be reached within --wait
  73    the leadership was lost while the command ran; it was stopped, or had ended
  74    the system refused something else, or this program's helper was killed
  75    not elected within --wait (--conflict-exit-code sets another code)
  78    the server or the configuration refuses (rights, URL, certificate, …)
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
  stanchion lead indexer -- ./index
  stanchion lead indexer --wait 10s -- ./index      or exit with 75
  stanchion lead indexer --value 10.0.0.7:9000 -- ./index
  stanchion lead indexer --value $POD_IP --forever --ready-file /tmp/leads -- ./index
  stanchion lead indexer --value b --priority 10 --on-request term -- ./index
  stanchion leader indexer --watch";

/// The largest value of a candidate, in bytes.
const MOST: usize = 4096;

fn parse_value(text: &str) -> Result<String, String> {
    match text.len() {
        ..=MOST => Ok(text.to_owned()),
        many => Err(format!("{many} bytes; at most {MOST} are allowed")),
    }
}

/// The options of a `run` that leads.
#[derive(Debug)]
pub(super) struct Leading {
    /// `None`: this machine and process.
    value: Option<String>,
    pub(super) priority: i32,
    forever: bool,
    ready_file: Option<PathBuf>,
}

impl Leading {
    /// The value to campaign with.
    pub(super) fn value(&self, client: &Client) -> String {
        let told = || {
            let this = client.local_survey();
            let host = this.host.as_deref().unwrap_or("localhost");
            format!("{host}:{}", this.pid)
        };
        self.value.clone().unwrap_or_else(told)
    }
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
            wait: self.wait,
            lease: self.lease,
            at_least: None,
            tick: None,
            every: None,
            at: None,
            cron: None,
            zone: None,
            conflict_exit_code: self.conflict_exit_code,
            lead: Some(Leading {
                value: self.value,
                priority: self.priority,
                forever: self.forever,
                ready_file: self.ready_file,
            }),
            work: self.work,
        }
    }
}

pub(crate) async fn lead(args: LeadArgs) -> Result<u8, Failure> {
    let args = args.into_run();
    if let Some(path) = args.ready_file() {
        // The file of a run that was killed.
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
            // The command will not be found the next time either.
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

/// The file that shows that the command leads. The file exists as long as this value.
#[derive(Debug)]
pub(super) struct Ready {
    path: PathBuf,
    /// Removes the file as soon as the hold is lost, and not only after the command has ended, which may take its grace.
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
        // A probe must not read a part of the file.
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
