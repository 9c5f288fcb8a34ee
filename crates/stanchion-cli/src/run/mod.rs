//! `stanchion run`: runs a command while holding a lock or another primitive.

pub(crate) mod acquire;
mod child;
mod estate;
mod job;
pub(crate) mod launch;
pub(crate) mod lead;
mod local;
mod report;
pub(crate) mod signals;
mod target;
mod tree;
mod warden;
mod work;

use std::time::Duration;

use clap::Args;
use clap::builder::ArgPredicate;
use stanchion::{Client, Lease, ReleaseError, Tick};
use tokio::time::Instant;

use self::acquire::Answer;
pub(crate) use self::acquire::{Wait, parse_wait};
use self::child::{Child, End};
use self::lead::{Leading, Ready};
use self::local::Local;
use self::report::Report;
use self::signals::Signals;
use self::target::Held;
use self::work::WorkArgs;
use crate::connect::SHUTDOWN;
use crate::duration;
use crate::exit::{self, Failure};
use crate::messages;

/// Run a command while holding a lock.
///
/// Waits for the lock, runs the command, releases, and exits as the command did. The lease is renewed in the
/// background for as long as the command runs. If this machine dies, the lock is free when the lease has passed.
#[derive(Debug, Args)]
#[command(after_long_help = DETAILS, after_help = "`stanchion run --help` lists exit codes, signals and examples.")]
pub(crate) struct RunArgs {
    /// The lock's name.
    name: String,
    /// A fair lock: in order of arrival, across machines.
    #[arg(long, group = "kind")]
    fair: bool,
    /// A read-write lock, to read: together with others that --read, while no --write runs.
    #[arg(long, group = "kind")]
    read: bool,
    /// A read-write lock, to write: no other command runs with --read or --write.
    #[arg(long, group = "kind")]
    write: bool,
    /// A semaphore: at most N at a time. The first caller fixes N for all; a caller with another N is warned.
    #[arg(long, value_name = "N", group = "kind", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    permits: Option<u32>,
    /// The time to wait for the lock, and for the server: a duration, `forever`, or 0 to ask once. With --tick, --every or
    /// --cron, 0 unless given, and for the server alone.
    #[arg(long, short, value_name = "DURATION", default_value = "forever", default_value_ifs = [("tick", ArgPredicate::IsPresent, "0"), ("every", ArgPredicate::IsPresent, "0"), ("cron", ArgPredicate::IsPresent, "0")], value_parser = acquire::parse_wait)]
    wait: Wait,
    /// The time that the lock outlives this process if it cannot release. Renewed every third of it.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_lease)]
    lease: Lease,
    /// Keep the lock for at least this long, even if the command ends sooner: for jobs from cron on machines whose clocks differ.
    #[arg(long, value_name = "DURATION", value_parser = parse_lease)]
    at_least: Option<Lease>,
    /// Run this moment of a schedule once, on one machine of all that ask for it, whatever their clocks: 2026-11-23T03:00:00Z, or
    /// seconds since 1970. Never waits for another run.
    #[arg(long, value_name = "TIME", group = "moment", conflicts_with = "kind")]
    tick: Option<Tick>,
    /// The same, for the last multiple of this time (UTC, by this machine's clock): what timers and cron start every 15m or 1h. With 1d
    /// give the time, too: --at 03:00 --zone Europe/London.
    #[arg(long, value_name = "DURATION", group = "moment", conflicts_with = "kind", value_parser = job::parse_period)]
    every: Option<Duration>,
    /// The time of the day at which the timer of `--every 1d` is due, in --zone: 03:00.
    #[arg(long, value_name = "HH:MM", requires = "every", requires = "zone")]
    at: Option<String>,
    /// The same, for the last due time of a line of cron in --zone: '0 3 1 * *'.
    #[arg(
        long,
        value_name = "EXPRESSION",
        group = "moment",
        conflicts_with = "kind",
        requires = "zone"
    )]
    cron: Option<String>,
    /// The time zone of the timer: Europe/London, or UTC.
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Exit with this code instead of 75 when the lock is not acquired in time (as flock -E).
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = exit::NOT_ACQUIRED, hide_default_value = true)]
    conflict_exit_code: u8,
    /// Set by `lead`.
    #[arg(skip)]
    lead: Option<Leading>,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// The kind of NAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    Fair,
    Read,
    Write,
    /// One of this many permits.
    Permit(u32),
    /// The leader of an election.
    Leader,
}

impl RunArgs {
    /// Returns whether NAME is run as a job: once for each tick, or once in a while, by the first process that acquires it.
    fn is_job(&self) -> bool {
        let waits = self.wait != Wait::No || self.kind() != Kind::Lock;
        // `run` computes the tick of --every and of --cron first.
        self.at_least.is_some() && !waits || self.tick.is_some()
    }

    fn kind(&self) -> Kind {
        match (self.fair, self.read, self.write, self.permits) {
            (true, ..) => Kind::Fair,
            (_, true, ..) => Kind::Read,
            (_, _, true, _) => Kind::Write,
            (_, _, _, Some(most)) => Kind::Permit(most),
            _ if self.lead.is_some() => Kind::Leader,
            _ => Kind::Lock,
        }
    }
}

const DETAILS: &str = "\
Exit codes:
  the command's own, or 128 + n if signal n ended it; otherwise
  2     the command line is wrong
  69    the server could not be reached within --wait, or refused for a reason that
        may pass: its memory is full, the password has changed (tried for a minute)
  73    the lock was lost while the command ran; it was stopped, or had ended
  74    the system refused something else, or this program's helper was killed
  75    not acquired within --wait, or the moment of --tick, --every or --cron has
        been run (--conflict-exit-code sets another code)
  78    the server or the configuration refuses (rights, URL, certificate, a name that
        belongs to something else, …)
  126   the command cannot be executed
  127   the command was not found
  130   interrupted while waiting (128 + n for signal n): it has left the queue

The command sees:
  STANCHION_NAME            the lock's name
  STANCHION_FENCING_TOKEN   a number that grows with every acquisition (not with
                            --read and --permits, where several run at a time)
  STANCHION_TICK            with --tick, --every and --cron: the moment that it
                            runs for
  STANCHION_HOLDS           the owners of this hold and of those of outer runs

  Without a command the lock is held until Ctrl-C, TERM or its loss.

  No lease excludes a command that is paused at the wrong moment. Pass the token
  to what the command writes to, and let that refuse smaller ones.

Kinds:
  Without --fair, --read, --write or --permits NAME is a plain lock. A name is for
  one kind: --read and --write go together, the others each need their own names.

Server:
  Without a URL the lock is for this user's programs on this machine, and the
  server is `stanchion serve`, which is started if it does not run; --no-server
  starts none. For several machines set STANCHION_URL, on all of them.

Signals:
  INT, QUIT and TERM are passed on to the command and all that it has started; INT
  and QUIT not in the foreground of a terminal, which sends them itself. HUP, USR1
  and USR2 are passed on to the command alone. What was ignored at the start
  (nohup) stays ignored. While stopped (Ctrl-Z) nothing is renewed: after the lease
  the lock is lost.

Requests:
  `stanchion ask NAME` requests a release. This program prints the request once on
  standard error; with --on-request term it stops the command as TERM does.

End:
  All that the command has started ends with the lock, also daemons, and also when
  this program is killed (on Linux): TERM, and KILL after --grace. Then the lock
  is free. The lock is not
  given back before all of it has ended: a command that leaves processes behind
  keeps it, or has them stopped with --leftovers stop.

Examples:
  stanchion run nightly-report -- ./report.sh --all
  stanchion run deploy --wait 5m --label deploy -- make release
  stanchion run nightly --every 1d --at 03:00 --zone Europe/London -E 0 -- ./n.sh
                    from cron on many machines: once a day, skipped by the others
  stanchion run mail --wait 0 -E 0 --at-least 1m -- ./mail.sh
                    once in a minute, whoever comes first
  stanchion run catalog --read -- ./export.sh       many may read it
  stanchion run catalog --write -- ./import.sh      one may change it
  stanchion run thumbs --permits 3 -- ./thumbs.sh   at most three at a time
  stanchion run migrate -- sh -c './migrate --fence $STANCHION_FENCING_TOKEN'";

pub(crate) fn parse_lease(text: &str) -> Result<Lease, String> {
    let length = duration::parse(text)?;
    Lease::new(length).map_err(|_| "a lease is 10ms to 30d".into())
}

pub(crate) async fn run(mut args: RunArgs) -> Result<u8, Failure> {
    if args.tick.is_none() {
        // Before anything that may take time: the timer has just fired.
        args.tick = job::tick(&args)?;
    }
    let mut report = Report::new(&args);
    let done = Box::pin(connect_and_run(&args, &mut report)).await;
    report.finish(done)
}

async fn connect_and_run(args: &RunArgs, report: &mut Report) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let asked = Instant::now();
    let local = Local::new(args)?;
    let connected = tokio::select! {
        biased;
        signal = signals.next() => return Ok(report.interrupted(signal)),
        connected = acquire::connect(args, local.as_ref(), asked, report) => connected,
    };
    let client = connected?;
    let text = messages::connected(&client.server().version);
    report.detail(format_args!("{text}"));
    let done = lock_and_run(args, &client, local.as_ref(), asked, &mut signals, report).await;
    // Clean-up runs in the background of this process, so it must finish before the process ends. A wait that ended in an outage has said
    // when its leftovers end, and has nothing to send.
    let has_held = report.has_held();
    let grace = match has_held || client.is_connected() {
        true => SHUTDOWN,
        false => Duration::ZERO,
    };
    let left = client.shutdown(grace).await;
    if left.unfinished > 0 && has_held {
        let text = messages::not_released(&args.name, args.lease.length());
        report.say(format_args!("{text}"));
    }
    done
}

async fn lock_and_run(
    args: &RunArgs,
    client: &Client,
    local: Option<&Local>,
    asked: Instant,
    signals: &mut Signals,
    report: &mut Report,
) -> Result<u8, Failure> {
    let mut failures = 0;
    loop {
        let (code, asked_to_end) =
            hold_and_run(args, client, local, asked, signals, report).await?;
        let pause = args
            .next_term(code, &mut failures)
            .filter(|_| !asked_to_end);
        let Some(pause) = pause else {
            return Ok(code);
        };
        report.detail(format_args!("{}", messages::next_campaign(pause)));
        tokio::select! {
            biased;
            _ = signals.next() => return Ok(code),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Acquires once, and runs the command. Returns the exit code, and whether the user has requested the end.
async fn hold_and_run(
    args: &RunArgs,
    client: &Client,
    local: Option<&Local>,
    asked: Instant,
    signals: &mut Signals,
    report: &mut Report,
) -> Result<(u8, bool), Failure> {
    // Dropping the acquire gives up the place in the queue.
    let acquired = tokio::select! {
        biased;
        signal = signals.next() => {
            report.waited(asked.elapsed());
            return Ok((report.interrupted(signal), true));
        }
        acquired = acquire::acquire(args, client, asked, report) => acquired,
        // Only while waiting: if the server of a holder has ended, the hold is lost.
        failure = local::keep(local, client, report) => Err(failure),
    };
    report.waited(asked.elapsed());
    let held = match acquired? {
        Answer::Acquired(held) => held,
        Answer::Conflict(message) => {
            return Ok((report.not_acquired(message, args.conflict_exit_code), true));
        }
        Answer::Ran(message) => {
            return Ok((report.has_run(message, args.conflict_exit_code), true));
        }
    };
    report.acquired(&held, asked.elapsed());
    if args.work.command.is_empty() {
        report.say(format_args!("{}", messages::holding(&args.name)));
    }
    let acquired_at = Instant::now();
    let done = run_holding(args, held, acquired_at, signals, report).await;
    report.held(acquired_at.elapsed());
    done
}

async fn run_holding(
    args: &RunArgs,
    held: Held,
    acquired_at: Instant,
    signals: &mut Signals,
    report: &mut Report,
) -> Result<(u8, bool), Failure> {
    let ready = match Ready::new(args, &held) {
        Ok(ready) => ready,
        Err(failure) => {
            release(held, report).await;
            return Err(failure);
        }
    };
    let child = match Child::start(args, &held) {
        Ok(child) => child,
        Err(error) => {
            release(held, report).await;
            let rule = format!("cannot start what watches over the command: {error}");
            return Err(Failure::new(exit::IO, rule));
        }
    };
    let end = match child.supervise(&held, signals, report).await {
        Ok(end) => end,
        Err(error) => {
            // P12: processes may still run, so the hold is not released. The lease ends it.
            std::mem::forget(held);
            return Err(error.into());
        }
    };
    drop(ready);
    let asked = end.asked;
    let code = give_back(args, held, end, acquired_at, report).await?;
    Ok((code, asked))
}

/// Ends the hold, and returns the exit code.
async fn give_back(
    args: &RunArgs,
    held: Held,
    end: End,
    acquired_at: Instant,
    report: &mut Report,
) -> Result<u8, Failure> {
    if let Some(reason) = end.lost {
        drop(held);
        return Ok(report.lost(reason));
    }
    report.detail(format_args!(
        "the command and all that it started have ended"
    ));
    let least = args.at_least.map(Lease::length).unwrap_or_default();
    let still = least.saturating_sub(acquired_at.elapsed());
    let rests = matches!(held, Held::Job(_));
    if !rests && !still.is_zero() && held.remaining() > Duration::ZERO {
        // The acquire had this first lease, so the lock stays held without this process.
        let text = messages::stays_held(&args.name, held.remaining());
        report.detail(format_args!("{text}"));
        held.leave();
        return end
            .ended
            .map_or_else(watch_ended, |ended| Ok(report.ended(ended)));
    }
    match release(held, report).await {
        // The hold ended between two renewals: the command may have run without the lock.
        Some(ReleaseError::Lost(lost)) => {
            report.say(format_args!("{lost}, before the command had ended"));
            Ok(report.lost(lost.reason))
        }
        _ => end
            .ended
            .map_or_else(watch_ended, |ended| Ok(report.ended(ended))),
    }
}

fn watch_ended() -> Result<u8, Failure> {
    let rule = "the process that watched over the command was killed, so the command was stopped";
    Err(Failure::new(exit::IO, rule))
}

async fn release(held: Held, report: &Report) -> Option<ReleaseError> {
    let released = held.release().await;
    report.detail(format_args!("released"));
    let error = released.err()?;
    if !matches!(error, ReleaseError::Lost(_)) {
        report.say(format_args!("{error}"));
    }
    Some(error)
}
