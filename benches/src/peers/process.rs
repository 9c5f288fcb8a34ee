//! Contenders as processes: killed when dropped, an error when one says nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use stanchion_testkit::RedisServer;

use super::judge::{Figures, Told};
use super::turns::Order;

/// The time limit for everything that a contender does outside its block.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands of the judge, and what connections begin with.
const NOT_FOR_GRANTS: [&str; 6] = ["INFO", "FLUSHALL", "ECHO", "HELLO", "CLIENT", "SCRIPT"];

#[derive(Debug)]
struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    fn spawn(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let stdin = child.stdin.take().context("its input is a pipe")?;
        let stdout = child.stdout.take().context("its output is a pipe")?;
        let (sender, lines) = mpsc::channel();
        // The thread ends with the child's output, so it need not be joined.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            child,
            stdin,
            lines,
        })
    }

    fn line(&self, limit: Duration) -> Result<String> {
        let said = self.lines.recv_timeout(limit);
        said.with_context(|| format!("nothing more was said, not within {limit:?}"))
    }

    fn expect(&self, wanted: &str, limit: Duration) -> Result<String> {
        let line = self.line(limit)?;
        match line.strip_prefix(wanted) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => bail!("it said {line:?} instead of {wanted:?}"),
        }
    }

    fn say(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.stdin, "{line}")?)
    }

    /// Seconds of CPU so far. `None` where there is no `/proc`.
    fn cpu(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The program's name is in parentheses and may have spaces; user and system time are fields 14 and 15.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<f64>().ok();
        let (user, system) = (ticks()?, ticks()?);
        Some((user + system) / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes of one contender in one cell.
#[derive(Debug)]
pub(crate) struct Running {
    processes: Vec<Process>,
    /// The contender's description of itself.
    pub(crate) about: String,
}

impl Running {
    pub(crate) fn start(count: usize, command: impl Fn() -> Command) -> Result<Self> {
        let processes = (0..count)
            .map(|_| Process::spawn(&mut command()))
            .collect::<Result<Vec<_>>>()?;
        let mut about = String::new();
        for process in &processes {
            about = process.expect("ready", PATIENCE)?;
        }
        Ok(Self { processes, about })
    }

    /// Seconds of CPU so far, of all its processes.
    pub(crate) fn cpu(&self) -> Option<f64> {
        self.processes.iter().map(Process::cpu).sum()
    }

    /// Runs one block and judges it.
    ///
    /// # Errors
    /// If a process ends, says nothing, or something else than it should.
    pub(crate) fn block(&mut self, server: &RedisServer, order: &Order) -> Result<Figures> {
        for process in &mut self.processes {
            process.say(&order.line())?;
            // One after the other: the first sets permits.
            process.expect("set", PATIENCE)?;
        }
        let cost = |running: &Self| (running.cpu(), server_cpu(server));
        let before = cost(self);
        self.say("go")?;
        self.expect("over", order.block + PATIENCE)?;
        let after = cost(self);
        self.say("tell")?;
        let mut told = Told::default();
        for (number, process) in self.processes.iter().enumerate() {
            loop {
                let line = process.line(PATIENCE)?;
                if line == "end" {
                    break;
                }
                told.hear(number, order, &line)?;
            }
        }
        let mut figures = told.judged(self.processes.len(), order);
        figures.client_cpu = after.0.zip(before.0).map(|(after, before)| after - before);
        figures.server_cpu = after.1 - before.1;
        Ok(figures)
    }

    /// Returns the commands for a grant, counted under `MONITOR` in a block of its own: the server's other counts have
    /// those that scripts call, too.
    pub(crate) fn commands(&mut self, server: &RedisServer, order: &Order) -> Result<f64> {
        let monitor = server.monitor();
        let grants = self.block(server, order)?.grants;
        let sent = monitor.lines().into_iter().filter(|line| by_a_client(line));
        Ok(sent.count() as f64 / grants.max(1) as f64)
    }

    fn say(&mut self, line: &str) -> Result<()> {
        self.processes
            .iter_mut()
            .try_for_each(|process| process.say(line))
    }

    fn expect(&self, line: &str, limit: Duration) -> Result<()> {
        self.processes
            .iter()
            .try_for_each(|process| process.expect(line, limit).map(drop))
    }
}

/// Returns whether a line of `MONITOR` is a command that a contender sent: no script's, and none of the judge's own.
fn by_a_client(line: &str) -> bool {
    let Some((who, command)) = line.split_once("] \"") else {
        return false;
    };
    let word = command.split('"').next().unwrap_or_default();
    let name = word.to_ascii_uppercase();
    !who.ends_with(" lua") && !NOT_FOR_GRANTS.contains(&&*name)
}

/// Seconds of CPU that the server took so far.
fn server_cpu(server: &RedisServer) -> f64 {
    let info = server.cli(&["INFO", "cpu"]);
    let used = |line: &str| -> Option<f64> {
        line.strip_prefix("used_cpu_sys:")
            .or_else(|| line.strip_prefix("used_cpu_user:"))?
            .trim()
            .parse()
            .ok()
    };
    info.as_text().lines().filter_map(used).sum()
}

#[test]
fn commands_of_scripts_and_of_the_judge_are_not_counted() {
    for (line, counted) in [
        (r#"1.2 [0 127.0.0.1:5] "EVALSHA" "x""#, true),
        (r#"1.2 [0 127.0.0.1:5] "SET" "x] \"y" "1""#, true),
        (r#"1.2 [0 lua] "SET" "x" "1""#, false),
        (r#"1.2 [0 127.0.0.1:5] "info" "cpu""#, false),
        (r#"1.2 [0 unix:/x] "del" "x""#, true),
        ("OK", false),
    ] {
        assert_eq!(by_a_client(line), counted, "{line}");
    }
}
