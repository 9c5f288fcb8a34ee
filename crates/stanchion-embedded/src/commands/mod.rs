//! The table of commands: names, arguments, flags, and the functions that run them.

mod admin;
mod client;
mod connection;
mod expire;
mod hashes;
mod keys;
mod lists;
mod object;
mod pubsub;
mod ranges;
mod strings;
mod zsets;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::clock::Now;
use crate::keyspace::Keyspace;
use crate::keyspace::number::{parse_double, parse_int};
pub(crate) use crate::outcome::{Failure, Outcome};
use crate::reply::{Protocol, Reply};
use crate::resp::Args;
use crate::server::{Server, SessionId};

/// A flag for commands that write. The flags are those of `COMMAND INFO` in Redis.
pub(crate) const WRITE: u8 = 1;
/// Refused when `maxmemory` is reached, as it needs memory.
pub(crate) const DENY_OOM: u8 = 1 << 1;
/// Allowed while the data set is loading.
pub(crate) const LOADING: u8 = 1 << 2;
/// Not allowed in scripts.
pub(crate) const NO_SCRIPT: u8 = 1 << 3;
/// Allowed before `AUTH`.
pub(crate) const NO_AUTH: u8 = 1 << 4;
/// Replicated without being a write, so `CLIENT PAUSE … WRITE` holds it back.
pub(crate) const REPLICATED: u8 = 1 << 5;

/// The context of a command: the server, the session, the database and the time.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) session: SessionId,
    pub(crate) db: usize,
    pub(crate) now: Now,
    pub(crate) protocol: Protocol,
}

impl Context<'_> {
    pub(crate) fn keyspace(&mut self) -> &mut Keyspace {
        let keyspace = &mut self.server.databases[self.db];
        keyspace.now_ms = self.now.millis();
        keyspace.notes.is_on = self.server.tracking.is_on();
        keyspace
    }

    pub(crate) fn resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }
}

/// The kind of function that runs a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// A command with one reply.
    Plain(fn(&mut Context<'_>, Args<'_>) -> Outcome),
    /// A command with one confirmation for each channel.
    Many(fn(&mut Context<'_>, Args<'_>) -> Outcome<Vec<Reply>>),
    /// A command that needs the Lua interpreter, which lives outside the server's state.
    Script(ScriptCommand),
}

/// The commands about scripts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScriptCommand {
    Eval,
    EvalSha,
    Script,
}

/// One command.
#[derive(Debug)]
pub(crate) struct Spec {
    /// The name in lower case, as errors print it.
    pub(crate) name: &'static str,
    /// The number of arguments with the name; if negative, the least number.
    pub(crate) arity: i8,
    pub(crate) flags: u8,
    pub(crate) run: Run,
}

impl Spec {
    pub(crate) const fn new(
        name: &'static str,
        arity: i8,
        flags: u8,
        run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
    ) -> Self {
        let run = Run::Plain(run);
        Self {
            name,
            arity,
            flags,
            run,
        }
    }

    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn accepts(&self, arguments: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 {
            arguments >= wanted
        } else {
            arguments == wanted
        }
    }
}

const SCRIPTING: &[Spec] = &[
    Spec {
        name: "eval",
        arity: -3,
        flags: NO_SCRIPT | REPLICATED,
        run: Run::Script(ScriptCommand::Eval),
    },
    Spec {
        name: "evalsha",
        arity: -3,
        flags: NO_SCRIPT | REPLICATED,
        run: Run::Script(ScriptCommand::EvalSha),
    },
    Spec {
        name: "script",
        arity: -2,
        flags: NO_SCRIPT,
        run: Run::Script(ScriptCommand::Script),
    },
];

static TABLE: LazyLock<HashMap<&'static [u8], &'static Spec>> = LazyLock::new(|| {
    [
        admin::COMMANDS,
        client::COMMANDS,
        connection::COMMANDS,
        expire::COMMANDS,
        hashes::COMMANDS,
        keys::COMMANDS,
        lists::COMMANDS,
        object::COMMANDS,
        pubsub::COMMANDS,
        ranges::COMMANDS,
        strings::COMMANDS,
        zsets::COMMANDS,
        SCRIPTING,
    ]
    .into_iter()
    .flatten()
    .map(|spec| (spec.name.as_bytes(), spec))
    .collect()
});

/// Finds a command by its name in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    let mut small = [0; 24];
    let small = small.get_mut(..name.len())?;
    small.copy_from_slice(name);
    small.make_ascii_lowercase();
    TABLE.get(&*small).copied()
}

pub(crate) fn count() -> usize {
    TABLE.len()
}

/// Returns the error for a command that does not exist, with the start of its arguments as Redis prints it.
pub(crate) fn unknown(args: Args<'_>) -> Failure {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned();
    let mut rest = String::new();
    for argument in args.skip(1).iter() {
        if rest.len() >= 128 {
            break;
        }
        let room = 128 - rest.len();
        let cut = &argument[..argument.len().min(room)];
        rest.push_str(&format!("'{}' ", String::from_utf8_lossy(cut)));
    }
    Failure::new(format!(
        "ERR unknown command '{}', with args beginning with: {rest}",
        shown(&args[0])
    ))
}

fn int(text: &[u8]) -> Outcome<i64> {
    parse_int(text).ok_or_else(Failure::not_an_integer)
}

/// Parses a timeout in milliseconds.
fn timeout(text: &[u8]) -> Outcome<i64> {
    match parse_int(text) {
        None => Err(Failure::new(
            "ERR timeout is not an integer or out of range",
        )),
        Some(ms) if ms < 0 => Err(Failure::new("ERR timeout is negative")),
        Some(ms) => Ok(ms),
    }
}

fn float(text: &[u8]) -> Outcome<f64> {
    parse_double(text).ok_or_else(Failure::not_a_float)
}

/// Returns the range of list or rank positions `start..=stop`; negative ones count from the end.
fn positions(start: i64, stop: i64, len: usize) -> Option<std::ops::Range<usize>> {
    let len = i64::try_from(len).ok()?;
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let start = from_end(start).max(0);
    let stop = from_end(stop).min(len - 1);
    if start > stop || start >= len {
        return None;
    }
    Some(usize::try_from(start).ok()?..usize::try_from(stop + 1).ok()?)
}
