//! The output of `run`: messages for human readers, or one line of JSON.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

use rustix::process::Signal;
use serde::Serialize;
use stanchion::console::Printable;
use stanchion::hold::ReleaseRequest;
use stanchion::{FencingToken, LostReason};

use super::RunArgs;
use super::child::Ended;
use super::target::Held;
use super::tree::Process;
use crate::exit::{self, Failure};
use crate::messages;
use crate::output;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The command exited on its own.
    Exited,
    /// A signal ended the command.
    Signaled,
    /// The lock was lost while the command ran.
    Lost,
    /// A signal came while waiting.
    Interrupted,
    /// Other owners held the lock for the whole of `--wait`.
    NotAcquired,
    /// The moment of the schedule has been run, by any process.
    AlreadyRan,
    /// Any other failure; see the message.
    Failed,
}

/// Collects the facts of the JSON line.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    name: String,
    outcome: Outcome,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    fencing_token: Option<FencingToken>,
    owner: Option<String>,
    waited_ms: Option<u64>,
    held_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip)]
    style: Style,
}

/// The output options.
#[derive(Debug)]
struct Style {
    json: bool,
    human: bool,
    verbose: bool,
    label: String,
}

impl Report {
    pub(super) fn new(args: &RunArgs) -> Self {
        let label = args
            .work
            .label
            .as_ref()
            .map_or_else(String::new, |label| format!("{label}: "));
        let human = args.work.verbose || io::stderr().is_terminal();
        Self {
            name: args.name.clone(),
            outcome: Outcome::Failed,
            exit_code: exit::SUCCESS,
            signal: None,
            fencing_token: None,
            owner: None,
            waited_ms: None,
            held_ms: None,
            message: None,
            style: Style {
                json: args.work.json,
                human,
                verbose: args.work.verbose,
                label,
            },
        }
    }

    /// Prints a message that every user should see.
    pub(super) fn say(&self, text: fmt::Arguments<'_>) {
        if !self.style.json {
            let text = format!("{}{text}", self.style.label);
            eprintln!("stanchion: {}", Printable::new(&text));
        }
    }

    /// Returns whether messages are read by a user at a terminal, or were asked for with `--verbose`.
    pub(super) fn is_for_human(&self) -> bool {
        self.style.human && !self.style.json
    }

    /// Prints a message only for a user at a terminal.
    pub(super) fn say_to_human(&self, text: fmt::Arguments<'_>) {
        if self.style.human {
            self.say(text);
        }
    }

    /// Prints a step with `--verbose`, and logs it.
    pub(super) fn detail(&self, text: fmt::Arguments<'_>) {
        tracing::debug!("{}", Printable::new(&text.to_string()));
        if self.style.verbose {
            self.say(text);
        }
    }

    pub(super) fn waited(&mut self, waited: Duration) {
        self.waited_ms = Some(output::whole_millis(waited));
    }

    pub(super) fn acquired(&mut self, held: &Held, after: Duration) {
        self.fencing_token = held.fencing_token();
        self.owner = Some(held.owner());
        let text = messages::acquired(&self.name, after, self.fencing_token);
        self.detail(format_args!("{text}"));
    }

    /// Returns whether the lock was acquired.
    pub(super) fn has_held(&self) -> bool {
        self.owner.is_some()
    }

    pub(super) fn held(&mut self, held: Duration) {
        self.held_ms = Some(output::whole_millis(held));
    }

    pub(super) fn ended(&mut self, ended: Ended) -> u8 {
        match ended {
            Ended::Exited(code) => {
                self.outcome = Outcome::Exited;
                u8::try_from(code).unwrap_or(u8::MAX)
            }
            Ended::Signaled(signal) => {
                self.outcome = Outcome::Signaled;
                self.signal = Some(signal);
                exit::of_signal(signal)
            }
        }
    }

    pub(super) fn asked(&self, request: &ReleaseRequest) {
        let text = messages::asked_for(&self.name, &request.reason);
        self.say(format_args!("{text}"));
    }

    pub(super) fn lost_while_running(&self, reason: LostReason) {
        self.say(format_args!("{}", messages::lost(&self.name, &reason)));
        self.say(format_args!("stopping the command"));
    }

    /// Reports the processes that run on after the command has ended.
    pub(super) fn left_behind(&self, left: &[Process]) {
        let alive: Vec<_> = left.iter().filter(|process| !process.is_over()).collect();
        let Some(first) = alive.first() else { return };
        let text = messages::left_behind(&self.name, alive.len(), &first.name, first.pid);
        self.say(format_args!("{text}"));
    }

    pub(super) fn refused(&self, pid: i32, name: &str) {
        self.say(format_args!("{}", messages::may_not_kill(name, pid)));
    }

    pub(super) fn lost(&mut self, reason: LostReason) -> u8 {
        self.outcome = Outcome::Lost;
        self.signal = None;
        self.message = Some(reason.to_string());
        exit::LOST
    }

    /// Reports that the lock was not acquired. With a `code` of 0 the user accepts this, so only a terminal shows it.
    pub(super) fn not_acquired(&mut self, message: String, code: u8) -> u8 {
        self.skipped(Outcome::NotAcquired, message, code)
    }

    /// Reports that the moment of a schedule has been run.
    pub(super) fn has_run(&mut self, message: String, code: u8) -> u8 {
        self.skipped(Outcome::AlreadyRan, message, code)
    }

    fn skipped(&mut self, outcome: Outcome, message: String, code: u8) -> u8 {
        if code == exit::SUCCESS {
            self.say_to_human(format_args!("{message}"));
        } else {
            self.say(format_args!("{message}"));
        }
        self.outcome = outcome;
        self.message = Some(message);
        code
    }

    pub(super) fn interrupted(&mut self, signal: Signal) -> u8 {
        self.outcome = Outcome::Interrupted;
        self.signal = Some(signal.as_raw());
        exit::of_signal(signal.as_raw())
    }

    /// Prints the final message or the JSON line.
    pub(super) fn finish(mut self, done: Result<u8, Failure>) -> Result<u8, Failure> {
        if !self.style.json {
            return done.map_err(|failure| {
                self.say(format_args!("{failure}"));
                failure.told()
            });
        }
        let code = match done {
            Ok(code) => code,
            Err(failure) => {
                self.message = Some(failure.to_string());
                failure.code()
            }
        };
        self.exit_code = code;
        eprintln!("{}", serde_json::to_string(&self)?);
        Ok(code)
    }
}
