//! The warden: a second process of this program, between `run` and the command.
//!
//! P12: everything that `run` started ends with the hold. `run` owns the hold, the warden owns the processes. On Linux,
//! orphans of the command become children of the warden, however they were started, so it knows when all of them have
//! ended. The warden ends them in three cases: on an order of `run`, after the end of `run` (the pipe from it is closed), and if `run`
//! has not confirmed the hold in time. After the end of `run` it then frees the lock. If the warden is killed, its processes become children of `run`, which ends them in the same
//! way.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Signal, WaitOptions};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::estate::Estate;
use super::launch;
use super::signals::{self, Signals};
use super::tree::{self, Ending, Process};
use crate::exit::{self, Failure};

/// The time for `run` to confirm the hold after both processes were stopped and continued.
const DOUBT: Duration = Duration::from_millis(500);

/// The beginning of the first line from `run` to the warden: the [`Estate`], if there is one.
pub(super) const ESTATE: &str = "estate ";

/// A message from `run` to the warden, one per line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The hold is valid for this long from now.
    Holds(Duration),
    /// A signal for the command.
    Command(Signal),
    /// A signal for the command and everything it has started.
    All(Signal),
    /// TERM for all processes, and KILL after the grace.
    End,
}

/// A message from the warden to `run`, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The warden has opened the pipes, and starts the command.
    Ready,
    /// The command has exited with this code.
    Exited(i32),
    /// The command was ended by this signal.
    Killed(i32),
    /// The warden may not kill this process.
    Refused { pid: i32, name: String },
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds(left) => writeln!(f, "holds {}", left.as_millis()),
            Self::Command(signal) => writeln!(f, "command {}", signal.as_raw()),
            Self::All(signal) => writeln!(f, "all {}", signal.as_raw()),
            Self::End => writeln!(f, "end"),
        }
    }
}

impl FromStr for Order {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (word, number) = line.split_once(' ').unwrap_or((line, ""));
        let signal = || signals::numbered(number.parse().ok()?);
        match word {
            "holds" => Some(Self::Holds(Duration::from_millis(
                number.parse().map_err(drop)?,
            ))),
            "command" => signal().map(Self::Command),
            "all" => signal().map(Self::All),
            "end" => Some(Self::End),
            _ => None,
        }
        .ok_or(())
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => writeln!(f, "ready"),
            Self::Exited(code) => writeln!(f, "exited {code}"),
            Self::Killed(signal) => writeln!(f, "killed {signal}"),
            Self::Refused { pid, name } => {
                writeln!(f, "refused {pid} {}", name.replace(char::is_control, "?"))
            }
        }
    }
}

impl FromStr for News {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = |text: &str| text.parse().map_err(drop);
        match word {
            "ready" => Ok(Self::Ready),
            "exited" => Ok(Self::Exited(number(rest)?)),
            "killed" => Ok(Self::Killed(number(rest)?)),
            "refused" => {
                let (pid, name) = rest.split_once(' ').ok_or(())?;
                let name = name.to_owned();
                Ok(Self::Refused {
                    pid: number(pid)?,
                    name,
                })
            }
            _ => Err(()),
        }
    }
}

/// The warden's command line, written by `run`.
#[derive(Debug)]
pub(super) struct Post {
    /// The process id of `run`.
    pub(super) run: i32,
    /// The file descriptors, in `run`, of the warden's ends of the two pipes.
    pub(super) orders: i32,
    pub(super) news: i32,
    pub(super) grace: Duration,
}

impl Post {
    pub(super) fn to_args(&self) -> [String; 4] {
        let grace = self.grace.as_millis();
        [
            self.run.to_string(),
            self.orders.to_string(),
            self.news.to_string(),
            grace.to_string(),
        ]
    }

    fn from_args(args: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || args.next()?.to_str()?.parse::<u64>().ok();
        let mut small = || i32::try_from(number()?).ok();
        Some(Self {
            run: small()?,
            orders: small()?,
            news: small()?,
            grace: Duration::from_millis(number()?),
        })
    }

    /// The path of a pipe. On Linux a process can open the files of another process of the same user; elsewhere the warden
    /// inherits the pipes.
    fn path(&self, number: i32) -> PathBuf {
        if cfg!(target_os = "linux") {
            format!("/proc/{}/fd/{number}", self.run).into()
        } else {
            format!("/dev/fd/{number}").into()
        }
    }
}

/// Runs the warden until all its processes have ended.
pub(super) fn keep(mut args: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let wrong = || Failure::new(exit::USAGE, "this is an inner command of `stanchion run`");
    let post = Post::from_args(&mut args).ok_or_else(wrong)?;
    let command: Vec<OsString> = args.collect();
    adopt_orphans()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(Warden::serve(&post, &command))?)
}

/// Makes orphans among the descendants of this process its children, not the system's.
pub(super) fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

struct Warden {
    me: i32,
    /// The process id of the command; `None` once it has ended, because the id may be reused.
    command: Option<i32>,
    to_run: pipe::Sender,
    grace: Duration,
    /// The hold, to be freed if `run` is killed.
    estate: Option<Estate>,
    /// The processes that got TERM.
    asked: BTreeSet<i32>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// `run` has confirmed the hold until this time.
    Held {
        until: Instant,
    },
    /// `run` is late with its confirmation: it may have been stopped.
    Doubt {
        since: Instant,
        until: Instant,
    },
    Ending(Ending),
}

impl Warden {
    async fn serve(post: &Post, command: &[OsString]) -> io::Result<()> {
        // Caught, so that a signal for `run` or the command does not end the warden before them.
        let mut signals = Signals::listen()?;
        let mut ended = signal(SignalKind::child())?;
        let orders = pipe::OpenOptions::new().open_receiver(post.path(post.orders))?;
        let to_run = pipe::OpenOptions::new().open_sender(post.path(post.news))?;
        tell(&to_run, &News::Ready);
        let started = launch::command(command)?.spawn()?;
        let warden = Self {
            me: pid_of_this(),
            command: i32::try_from(started.id()).ok(),
            to_run,
            grace: post.grace,
            estate: None,
            asked: BTreeSet::new(),
            // `run` confirms the hold before this time, or it has ended.
            phase: Phase::Held {
                until: Instant::now() + Duration::from_secs(5),
            },
        };
        let mut orders = BufReader::new(orders).lines();
        let estate = warden.watch(&mut orders, &mut signals, &mut ended).await?;
        // P12: everything has ended.
        if let Some(estate) = estate {
            estate.give_back().await;
        }
        Ok(())
    }

    /// Watches until everything has ended. Returns the hold if `run` has ended before, and so cannot release it.
    async fn watch(
        mut self,
        orders: &mut Lines<BufReader<pipe::Receiver>>,
        signals: &mut Signals,
        ended: &mut tokio::signal::unix::Signal,
    ) -> io::Result<Option<Estate>> {
        let mut alone = false;
        loop {
            tokio::select! {
                biased;
                _ = ended.recv() => if self.all_have_ended()? {
                    return Ok(self.estate.filter(|_| alone));
                },
                order = orders.next_line(), if !alone => match order {
                    Ok(Some(line)) => self.obey(&line)?,
                    // `run` has ended, so nothing renews the hold any more.
                    Ok(None) | Err(_) => {
                        alone = true;
                        self.end(Instant::now() + self.grace)?;
                    }
                },
                () = tokio::time::sleep_until(self.next()) => self.go_on()?,
                // `run` gets the signal too, and decides where to pass it on.
                _ = signals.next() => {}
            }
        }
    }

    /// Reaps the children that have ended. On Linux every started process is a descendant of this one.
    fn all_have_ended(&mut self) -> io::Result<bool> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if Some(pid.as_raw_pid()) == self.command {
                        self.command = None;
                        let code = status.exit_status().map(News::Exited);
                        let signal = status.terminating_signal().map(News::Killed);
                        if let Some(news) = code.or(signal) {
                            tell(&self.to_run, &news);
                        }
                    }
                }
                Ok(None) => return Ok(false),
                Err(rustix::io::Errno::CHILD) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn obey(&mut self, line: &str) -> io::Result<()> {
        if let Some(estate) = line.strip_prefix(ESTATE) {
            self.estate = serde_json::from_str(estate).ok();
            return Ok(());
        }
        match line.parse() {
            Ok(Order::Holds(left)) => {
                if !matches!(self.phase, Phase::Ending(_)) {
                    self.phase = Phase::Held {
                        until: Instant::now() + left,
                    };
                }
            }
            // OK: a process that may not be signalled is reported when it should be killed.
            Ok(Order::Command(signal)) => drop(self.command.map(|pid| tree::send(pid, signal))),
            Ok(Order::All(signal)) => {
                for process in self.all()? {
                    let _ = process.send(signal);
                    if signal == Signal::TERM {
                        self.asked.insert(process.pid);
                    }
                }
            }
            Ok(Order::End) => self.end(Instant::now() + self.grace)?,
            Err(()) => {}
        }
        Ok(())
    }

    fn next(&self) -> Instant {
        match &self.phase {
            Phase::Held { until } | Phase::Doubt { until, .. } => *until,
            Phase::Ending(ending) => ending.next(),
        }
    }

    fn go_on(&mut self) -> io::Result<()> {
        match &mut self.phase {
            Phase::Held { until } => {
                let doubt = DOUBT.min(self.grace / 2);
                self.phase = Phase::Doubt {
                    since: *until,
                    until: Instant::now() + doubt,
                };
                Ok(())
            }
            // P12: the grace counts from the loss.
            Phase::Doubt { since, .. } => {
                let since = *since;
                self.end(since + self.grace)
            }
            Phase::Ending(ending) => {
                for Process { pid, name, .. } in ending.kill(&tree::below(self.me, &[])?) {
                    tell(&self.to_run, &News::Refused { pid, name });
                }
                Ok(())
            }
        }
    }

    fn end(&mut self, kill_at: Instant) -> io::Result<()> {
        if let Phase::Ending(ending) = &mut self.phase {
            ending.not_later_than(kill_at);
        } else {
            self.phase = Phase::Ending(Ending::begin(&self.all()?, &self.asked, kill_at));
        }
        Ok(())
    }

    fn all(&self) -> io::Result<Vec<Process>> {
        tree::below(self.me, &[])
    }
}

/// The id of this process.
pub(super) fn pid_of_this() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// Sends `news` to `run`. Not through tokio, which refuses to write until it has seen the pipe ready.
///
/// OK to ignore the error: without a reader the news has no use.
fn tell(to_run: &pipe::Sender, news: &News) {
    let _ = rustix::io::write(to_run, news.to_string().as_bytes());
}

/// Returns whether the warden ended properly, with no process left.
pub(super) fn was_relieved(status: ExitStatus) -> bool {
    status.success()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_news_arrive_as_they_were_sent() {
        for order in [
            Order::Holds(Duration::from_millis(1_500)),
            Order::Command(Signal::USR1),
            Order::All(Signal::TERM),
            Order::End,
        ] {
            assert_eq!(order.to_string().trim_end().parse(), Ok(order));
        }
        let refused = News::Refused {
            pid: 7,
            name: "a b".into(),
        };
        for news in [News::Ready, News::Exited(3), News::Killed(9), refused] {
            assert_eq!(news.to_string().trim_end().parse(), Ok(news));
        }
        for nonsense in ["", "all", "all 999", "holds x"] {
            assert_eq!(nonsense.parse::<Order>(), Err(()), "{nonsense}");
        }
    }
}
