//! Child processes whose output a test can wait for.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, waitid};

use crate::clock::Deadline;
use crate::eventually::within;

/// A signal to a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Stops the process, as a long pause does (SIGSTOP).
    Stop,
    /// Resumes the process (SIGCONT).
    Cont,
    /// Ends the process at once (SIGKILL).
    Kill,
    /// Asks the process to end (SIGTERM).
    Term,
    /// Asks the process to end, as Ctrl-C does (SIGINT). A child of a background job ignores it unless it has a handler.
    Int,
}

/// Sends `signal` to a child of this process that has not been reaped.
///
/// # Panics
/// If it cannot be sent.
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
    // Delivery is asynchronous: without the wait the child may still answer one more request.
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
    /// If it cannot be started.
    #[must_use]
    pub fn start(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args);
        Self::spawn(&mut command)
    }

    /// Starts a prepared command; its stdin and stdout become pipes, its stderr stays.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn spawn(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let (sender, lines) = mpsc::channel();
        // The thread ends with the child's output, so it need not be joined.
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

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line of stdout that satisfies `wanted` and returns it; skips the lines before it.
    ///
    /// # Panics
    /// If none comes within `limit`; the message contains every line so far.
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

    /// Returns every line of stdout so far.
    pub fn lines(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// Writes a line to the child's stdin.
    ///
    /// # Panics
    /// If the child has closed it.
    pub fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is still open");
        writeln!(stdin, "{line}").expect("the child reads its stdin");
    }

    /// Closes the child's stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal. After [`Signal::Stop`] it returns once the child has stopped.
    ///
    /// # Panics
    /// If the child has been reaped by [`Process::wait`].
    pub fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Waits until the child has ended.
    ///
    /// # Panics
    /// If it still runs after `limit`.
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
