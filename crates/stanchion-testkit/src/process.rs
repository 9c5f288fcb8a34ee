//! Child processes whose output a test waits for.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, waitid};

use crate::clock::Deadline;
use crate::eventually::within;

/// What can be sent to a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Stops it where it is, as a long pause does.
    Stop,
    /// Lets it go on.
    Cont,
    /// Ends it at once.
    Kill,
    /// Asks it to end.
    Term,
    /// Asks it to end, as Ctrl-C does. A child of a background job ignores it unless it has a handler.
    Int,
}

/// Sends `signal` to a child of this process that has not been reaped.
///
/// # Panics
/// When it cannot be sent.
pub fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    let number = match signal {
        Signal::Stop => rustix::process::Signal::STOP,
        Signal::Cont => rustix::process::Signal::CONT,
        Signal::Kill => rustix::process::Signal::KILL,
        Signal::Term => rustix::process::Signal::TERM,
        Signal::Int => rustix::process::Signal::INT,
    };
    kill_process(pid, number).expect("signal a child");
    // Delivery is asynchronous: without this the child may still answer one more request.
    if signal == Signal::Stop {
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("the child stops");
    }
}

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    /// Starts `program`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args);
        Self::spawn(&mut command)
    }

    /// Starts a prepared command; its stdin and stdout become pipes, its stderr stays.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let (sender, lines) = mpsc::channel();
        // Ends by itself with the child's output, so nobody needs to join it.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            seen: Vec::new(),
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of stdout that satisfies `wanted`; lines before it are passed over.
    ///
    /// # Panics
    /// When none comes within `limit`; the message contains every line so far.
    pub fn wait_for_line(
        &mut self,
        mut wanted: impl FnMut(&str) -> bool,
        limit: Duration,
    ) -> String {
        let deadline = Deadline::after(limit);
        loop {
            let why = match self.lines.recv_timeout(deadline.left()) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => format!("not within {limit:?}"),
                Err(RecvTimeoutError::Disconnected) => "the output ended".to_owned(),
            };
            panic!("{why}: the wanted line; seen: {:#?}", self.seen);
        }
    }

    /// Every line of stdout so far.
    pub fn lines(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// Writes a line to the child's stdin.
    ///
    /// # Panics
    /// When the child has closed it.
    pub fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is still open");
        writeln!(stdin, "{line}").expect("the child reads its stdin");
    }

    /// Closes the child's stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal; after [`Signal::Stop`] the child has really stopped.
    ///
    /// # Panics
    /// When the child has been reaped by [`Process::wait`].
    pub fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Waits for the child's end.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let mut status = None;
        let ended = within(limit, || {
            status = self.child.try_wait().expect("wait for a child");
            status.is_some()
        });
        assert!(ended, "process {} still runs after {limit:?}", self.pid());
        status.expect("an ended child has a status")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
