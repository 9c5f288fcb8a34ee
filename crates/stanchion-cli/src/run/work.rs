//! The options that `run` and `lead` share: the command, the variables that it gets, and how it ends.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::connect::ServerArgs;

/// The options of `run` and `lead` about the command.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// The time between TERM and KILL for the command, and all that it has started, when the lock or the leadership is lost.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = crate::duration::parse)]
    pub(super) grace: Duration,
    /// Handling of processes that the command leaves behind; nothing is given back before they have ended.
    #[arg(long, value_enum, default_value_t = Leftovers::Wait)]
    pub(super) leftovers: Leftovers,
    /// Handling of a request to give back the lock (`stanchion ask`); a leader is also asked when a candidate of higher priority waits.
    #[arg(long, value_enum, default_value_t = OnRequest::Tell)]
    pub(super) on_request: OnRequest,
    /// A name for this run: in front of messages, and for operators in place of the command's name (`stanchion ls`, `clients`).
    #[arg(long, value_name = "TEXT")]
    pub(super) label: Option<String>,
    /// Report each step: connected, waiting, acquired, started, ended, released.
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Write one line of JSON about the outcome (of the last term) to standard error, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Without a URL: use this user's server if it runs, but do not start it. If it does not run, exit with 69 at once.
    #[arg(long)]
    pub(super) no_server: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
    /// The command and its arguments. The options of this program come before it; `--` before it is needed only where it has an option of
    /// the same name. Without a command: hold until Ctrl-C.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The handling of processes that the command leaves behind. The lock is held until they have ended in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Leftovers {
    /// Wait for them to end.
    Wait,
    /// Stop them: TERM, and KILL after --grace.
    Stop,
}

/// The handling of a request to give the lock back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnRequest {
    /// Say so on standard error.
    Tell,
    /// Say nothing.
    Ignore,
    /// Say so, and stop the command and all that it has started: TERM, and KILL after --grace.
    Term,
}
