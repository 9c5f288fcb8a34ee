//! The command from the side of `run`, which starts it through the warden, informs the warden of the hold, and ends both with it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::pin::Pin;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitOptions};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::estate::Estate;
use super::report::Report;
use super::signals::{self, Signals};
use super::target::Held;
use super::tree::{self, Ending, Process};
use super::warden::{self, ESTATE, News, Order, Post};
use super::work::{Leftovers, OnRequest};
use super::{RunArgs, launch};
use stanchion::LostReason;

/// The time that leftovers of the command may run before the user gets a message.
const PATIENCE: Duration = Duration::from_millis(500);
/// The time beyond the grace that the warden may take to end everything.
const SLACK: Duration = Duration::from_secs(2);

/// The variable with the owners of this hold and of those of outer runs, by which an inner `run` knows that it would wait for itself.
pub(super) const HOLDS: &str = "STANCHION_HOLDS";

/// The command's own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exited(i32),
    Signaled(i32),
}

/// The outcome, once nothing that the command has started runs any more.
#[derive(Debug)]
pub(super) struct End {
    /// The hold was lost while the command ran.
    pub(super) lost: Option<LostReason>,
    /// `None`: the warden was killed before it could report the end.
    pub(super) ended: Option<Ended>,
    /// INT, QUIT or TERM came while the command ran.
    pub(super) asked: bool,
}

/// The running command, with all that it starts.
#[derive(Debug)]
pub(super) struct Child {
    warden: tokio::process::Child,
    orders: pipe::Sender,
    news: Lines<BufReader<pipe::Receiver>>,
    /// The warden's ends of the pipes, until it has opened them.
    lent: Option<(OwnedFd, OwnedFd)>,
    lease: Duration,
    grace: Duration,
    leftovers: Leftovers,
    on_request: OnRequest,
    /// Children that this process had before: `exec stanchion run …` in a shell inherits the shell's.
    before: Vec<i32>,
    /// All processes are to end: because of a signal, or because another client requested the lock.
    asked: bool,
    /// INT, QUIT or TERM came.
    signalled: bool,
    /// The grace has passed.
    overdue: bool,
    ended: Option<Ended>,
    lost: Option<LostReason>,
    /// The next task of `supervise`.
    next: Next,
}

#[derive(Debug)]
enum Next {
    Nothing,
    /// The command has ended, but some of its processes may not have.
    TellOfLeftovers(Instant),
    /// The warden does not end.
    KillWarden(Instant),
}

impl Child {
    /// Starts the command in the caller's process group, so that job control works as without `run`.
    pub(super) fn start(args: &RunArgs, held: &Held) -> io::Result<Self> {
        warden::adopt_orphans()?;
        let before = tree::below(warden::pid_of_this(), &[])?;
        // Linux: the warden opens its ends through this process, so that the command inherits none.
        let flags = if cfg!(target_os = "linux") {
            PipeFlags::CLOEXEC
        } else {
            PipeFlags::empty()
        };
        let (orders_out, orders_in) = pipe_with(flags)?;
        let (news_out, news_in) = pipe_with(flags)?;
        let post = Post {
            run: warden::pid_of_this(),
            orders: orders_out.as_raw_fd(),
            news: news_in.as_raw_fd(),
            grace: args.work.grace,
        };
        let mut command = launch::warden(&post, &args.work.command)?;
        command.env("STANCHION_NAME", &args.name);
        // A token of an outer `run` must not be taken for this one's.
        command.env_remove("STANCHION_FENCING_TOKEN");
        if let Some(token) = held.fencing_token() {
            command.env("STANCHION_FENCING_TOKEN", token.to_string());
        }
        command.env_remove("STANCHION_TICK");
        if let Some(tick) = held.tick() {
            command.env("STANCHION_TICK", tick.to_string());
        }
        let outer = std::env::var(HOLDS).unwrap_or_default();
        command.env(HOLDS, format!("{outer} {}", held.owner()).trim_start());
        let warden = tokio::process::Command::from(command).spawn()?;
        if let Some(estate) = Estate::new(args, held) {
            let line = format!("{ESTATE}{}\n", serde_json::to_string(&estate)?);
            // OK to ignore a failure: the lease ends the hold of a `run` that was killed.
            let _ = rustix::io::write(&orders_in, line.as_bytes());
        }
        Ok(Self {
            warden,
            orders: pipe::Sender::from_owned_fd(orders_in)?,
            news: BufReader::new(pipe::Receiver::from_owned_fd(news_out)?).lines(),
            lent: Some((orders_out, news_in)),
            lease: args.lease.length(),
            grace: args.work.grace,
            leftovers: args.work.leftovers,
            on_request: args.work.on_request,
            before: before.into_iter().map(|process| process.pid).collect(),
            asked: false,
            signalled: false,
            overdue: false,
            ended: None,
            lost: None,
            next: Next::Nothing,
        })
    }

    /// Waits for the end of the command and of all that it has started, passes signals on, and ends them when the hold is
    /// lost (P12).
    pub(super) async fn supervise(
        mut self,
        held: &Held,
        signals: &mut Signals,
        report: &Report,
    ) -> io::Result<End> {
        let mut lost = held.lost();
        // With `Ignore`, this process does not subscribe to release requests.
        let mut wanted = self.on_request != OnRequest::Ignore;
        let mut requested: Pin<Box<dyn Future<Output = _> + Send>> = if wanted {
            held.requested()
        } else {
            Box::pin(std::future::pending())
        };
        // Often enough that the warden's deadline is always at least half a lease away.
        let mut tick = tokio::time::interval(self.lease / 20);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let relieved = loop {
            tokio::select! {
                biased;
                reason = &mut lost, if self.lost.is_none() => {
                    self.lost = Some(reason);
                    report.lost_while_running(reason);
                    self.end();
                }
                request = &mut requested, if wanted => {
                    wanted = false;
                    report.asked(&request);
                    if self.on_request == OnRequest::Term {
                        self.stop_at_request();
                    }
                }
                Ok(Some(line)) = self.news.next_line() => self.hear(&line, report),
                status = self.warden.wait() => break warden::was_relieved(status?),
                signal = signals.next() => self.pass_on(signal),
                _ = tick.tick(), if self.lost.is_none() => self.order(Order::Holds(held.remaining())),
                () = sleep_until(self.next.at()) => self.go_on(report),
            }
        };
        // Reads the news that the warden wrote before it ended.
        self.lent = None;
        while let Ok(Some(line)) = self.news.next_line().await {
            self.hear(&line, report);
        }
        if !relieved {
            self.end_orphans(report).await?;
        }
        Ok(End {
            lost: self.lost,
            ended: self.ended,
            asked: self.signalled,
        })
    }

    fn order(&self, order: Order) {
        // OK: a warden that does not read has ended, and `wait` reports that.
        let _ = rustix::io::write(&self.orders, order.to_string().as_bytes());
    }

    fn end(&mut self) {
        self.order(Order::End);
        self.next = Next::KillWarden(Instant::now() + self.grace + SLACK);
    }

    fn hear(&mut self, line: &str, report: &Report) {
        match line.parse() {
            Ok(News::Ready) => {
                self.lent = None;
                report.detail(format_args!("starting the command"));
            }
            Ok(News::Exited(code)) => self.command_ended(Ended::Exited(code)),
            Ok(News::Killed(signal)) => self.command_ended(Ended::Signaled(signal)),
            Ok(News::Refused { pid, name }) => report.refused(pid, &name),
            Err(()) => {}
        }
    }

    /// Lets the command's leftovers run, unless the end was requested.
    fn command_ended(&mut self, ended: Ended) {
        self.ended = Some(ended);
        let stop =
            self.asked || self.leftovers == Leftovers::Stop || matches!(ended, Ended::Signaled(_));
        if self.lost.is_some() {
            // All processes are being ended already.
        } else if stop {
            self.end();
        } else {
            self.next = Next::TellOfLeftovers(Instant::now() + PATIENCE);
        }
    }

    /// Passes a signal on: INT, QUIT and TERM to all processes, as a terminal does; any other signal to the command alone.
    fn pass_on(&mut self, signal: Signal) {
        let asks = matches!(signal, Signal::INT | Signal::QUIT | Signal::TERM);
        let by_terminal =
            matches!(signal, Signal::INT | Signal::QUIT) && signals::is_in_foreground();
        if !by_terminal {
            self.order(if asks {
                Order::All(signal)
            } else {
                Order::Command(signal)
            });
        }
        self.asked |= asks;
        self.signalled |= asks;
        if asks && self.ended.is_some() {
            self.end();
        }
    }

    /// Stops the command because another client requested the lock. The lock is released when all of its processes have ended.
    fn stop_at_request(&mut self) {
        self.asked = true;
        if self.lost.is_none() {
            self.end();
        }
    }

    fn go_on(&mut self, report: &Report) {
        match self.next {
            Next::TellOfLeftovers(_) => {
                self.next = Next::Nothing;
                let left = self.warden_pid().map(|pid| tree::below(pid, &[]));
                if let Some(Ok(left)) = left {
                    report.left_behind(&left);
                }
            }
            Next::KillWarden(_) => {
                self.next = Next::Nothing;
                self.overdue = true;
                // Its processes become children of this process, which ends them.
                let _ = self.warden.start_kill();
            }
            Next::Nothing => {}
        }
    }

    fn warden_pid(&self) -> Option<i32> {
        i32::try_from(self.warden.id()?).ok()
    }

    /// Ends the processes of a warden that was killed.
    async fn end_orphans(&self, report: &Report) -> io::Result<()> {
        let me = warden::pid_of_this();
        let grace = if self.overdue {
            Duration::ZERO
        } else {
            self.grace
        };
        let left = || tree::below(me, &self.before);
        let mut ending = Ending::begin(&left()?, &BTreeSet::new(), Instant::now() + grace);
        loop {
            // Reaps those that have ended; nothing else waits for children at this point.
            while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
            let left = left()?;
            if left.is_empty() {
                return Ok(());
            }
            if ending.next() <= Instant::now() {
                for Process { pid, name, .. } in ending.kill(&left) {
                    report.refused(pid, &name);
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Next {
    fn at(&self) -> Option<Instant> {
        match self {
            Self::Nothing => None,
            Self::TellOfLeftovers(at) | Self::KillWarden(at) => Some(*at),
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
