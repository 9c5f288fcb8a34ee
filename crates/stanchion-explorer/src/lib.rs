//! Explores all interleavings of a small configuration: real scripts on the embedded engine, and client state machines.
//!
//! A [`Process`] is a client as a pure state machine. A [`World`] is one state of everything: the server's keys, the processes, and the
//! requests, replies and messages in flight. [`explore`] visits every state that the steps of a world can reach, within the bounds of a
//! [`Configuration`], and checks each state. The report of a violation has a shortest list of steps that leads to it.
//!
//! `docs/testing-explorer.md` describes how to run it and how to read a report.

mod canonical;
mod runner;
mod search;
mod steps;
mod world;

use std::fmt::{self, Debug};
use std::sync::Arc;

pub use search::{Report, Violation, explore, walk};
pub use stanchion_embedded::Reply;
pub use stanchion_embedded::explore::Snapshot;
pub use world::World;

/// A time of the world's clock: microseconds since the Unix epoch, 16 digits in decimal.
///
/// The explorer recognises times by their 16 digits, and times in milliseconds by their 13 digits: two states that differ only by a shift of
/// all times are one state. A process must therefore keep a time as such a number, and must not keep another number of 16 or 13 digits.
pub type Micros = u64;

/// The clock at the start of each exploration.
pub const START: Micros = 1_800_000_000_000_000;

/// A client as a pure state machine: no clock, no network, no random choice.
///
/// Two states of a process are equal if their `Debug` texts are. Therefore a process keeps no counter that distinguishes states which
/// behave alike, and iterates in a fixed order (`BTreeMap`, not `HashMap`). Ids and times must be readable in that text: a process keeps
/// ids as strings, not as bytes.
pub trait Process: Clone + Debug {
    /// An operation of the user: acquire, drop the acquire, release.
    type Op: Clone + Debug;

    /// The operations that the user may do now. A process bounds their number.
    fn ops(&self) -> Vec<Self::Op>;

    /// The channels to which the process is subscribed at the start, as after an earlier wait.
    fn subscribed(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the part of the reply to a request that the process reads; `None` if it reads nothing.
    ///
    /// Replies that are not read are not kept in flight, unless their connections may break. This saves states.
    fn reads(&self, _request: u64, reply: Reply) -> Option<Reply> {
        Some(reply)
    }

    /// Handles one input. `now` is in whole milliseconds.
    fn step(&mut self, now: Micros, input: Input<Self::Op>) -> Vec<Output>;
}

/// An event for a process.
#[derive(Clone, Debug)]
pub enum Input<Op> {
    /// The reply to a request.
    Reply {
        /// The process's number of the request.
        request: u64,
        /// The reply of the script.
        reply: Reply,
    },
    /// The connection of a request broke. The script may have run, may run later, or never.
    Failed {
        /// The process's number of the request.
        request: u64,
    },
    /// A message on a subscribed channel.
    Message {
        /// The channel.
        channel: String,
        /// The payload.
        payload: String,
    },
    /// A subscription was confirmed.
    Subscribed {
        /// The channel.
        channel: String,
    },
    /// The connection for messages was cut: all subscriptions are gone. The process can subscribe again at once.
    Disconnected,
    /// The time of the process's timer has come.
    Timer,
    /// An operation of the user.
    User(Op),
}

/// An action of a process in response to an input.
#[derive(Clone, Debug)]
pub enum Output {
    /// Sends a request.
    Send {
        /// A number by which the process knows the reply. The number may be used again after the reply.
        request: u64,
        /// The script and its arguments.
        call: Call,
    },
    /// Subscribes to a channel.
    Subscribe(String),
    /// Ends a subscription.
    Unsubscribe(String),
    /// Sets the one timer of the process, or stops it.
    Timer(Option<Micros>),
    /// An acquire of the user ends with a hold. Tokens must rise from grant to grant (P2); 0: no token.
    Granted {
        /// The fencing token.
        token: u64,
    },
}

/// A call of a script by its name in [`Configuration::scripts`].
#[derive(Clone, Debug)]
pub struct Call {
    /// The name.
    pub script: &'static str,
    /// `KEYS`.
    pub keys: Vec<String>,
    /// `ARGV`.
    pub args: Vec<String>,
}

/// The number of faults of each kind that may still occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Connections that break with a request or its reply in flight.
    pub replies: u8,
    /// Messages that are lost.
    pub messages: u8,
    /// Messages that arrive twice.
    pub duplicates: u8,
    /// Processes that are killed: their connections are closed.
    pub kills: u8,
    /// Processes that stop: their connections stay open.
    pub stops: u8,
    /// Connections for messages that are cut, with the messages in flight on them.
    pub cuts: u8,
}

/// A rule that each state must keep. Returns the violation.
pub type Always<P> = Arc<dyn Fn(&World<P>) -> Result<(), String>>;

/// A rule for quiet states: nothing is in flight, only a timer or the user can continue. The second argument returns the state after
/// so many milliseconds in which the users do nothing and no fault occurs.
pub type Quiet<P> = Arc<dyn Fn(&World<P>, &mut dyn FnMut(u64) -> World<P>) -> Result<(), String>>;

/// A rule for each step: the states before and after it.
pub type Change<P> = Arc<dyn Fn(&World<P>, &World<P>) -> Result<(), String>>;

/// A small system, the bounds within which it is explored, and its rules.
#[derive(Clone)]
pub struct Configuration<P: Process> {
    /// The scripts: name and text.
    pub scripts: Vec<(&'static str, String)>,
    /// Commands that prepare the server.
    pub setup: Vec<Vec<String>>,
    /// The processes. A report names them A, B, C.
    pub processes: Vec<P>,
    /// True if the processes differ only in their ids, which are the first `aliases`, in order. States that differ only by an exchange of
    /// processes are then one state.
    pub interchangeable: bool,
    /// The faults that may occur.
    pub faults: Faults,
    /// The number of jumps of the clock to the next deadline: a timer, or the end of a key.
    pub deadlines: u8,
    /// The rule for each state. The explorer itself checks that tokens rise.
    pub always: Always<P>,
    /// The rule for each step, also for those of the time that a rule for quiet states lets pass.
    pub change: Change<P>,
    /// The rule for quiet states.
    pub quiet: Quiet<P>,
    /// The number of states after which the exploration stops unfinished.
    pub most_states: usize,
    /// Texts that a report shortens, such as client ids.
    pub aliases: Vec<(String, String)>,
}

impl<P: Process> Debug for Configuration<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration")
            .field("processes", &self.processes)
            .field("faults", &self.faults)
            .field("deadlines", &self.deadlines)
            .finish_non_exhaustive()
    }
}
