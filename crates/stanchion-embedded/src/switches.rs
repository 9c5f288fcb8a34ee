//! The current state of all faults: changed by [`Faults`](crate::Faults), read by the server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The event in place of a lost reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Close,
    Silence,
}

/// A fault for the next few commands of one name.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    pub(crate) command: String,
    pub(crate) left: usize,
    pub(crate) fault: T,
}

/// The current state of the switches. Changed and read under the server's lock.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    pub(crate) refuse_connections: bool,
    pub(crate) out_of_memory: bool,
    pub(crate) read_only: bool,
    pub(crate) loading: bool,
    pub(crate) migrating: bool,
    pub(crate) password: Option<String>,
    pub(crate) all_frozen: bool,
    pub(crate) frozen: BTreeSet<String>,
    pub(crate) common_delay: Duration,
    pub(crate) delays: BTreeMap<String, Duration>,
    pub(crate) lost_replies: Vec<Counted<Loss>>,
    pub(crate) failures: Vec<Counted<String>>,
    pub(crate) delayed_requests: Vec<Counted<()>>,
    pub(crate) lost_messages: usize,
    /// The time after which each message is sent a second time.
    pub(crate) repeated_messages: Option<Duration>,
}

impl Switches {
    pub(crate) fn is_frozen(&self, label: Option<&str>) -> bool {
        self.all_frozen || label.is_some_and(|label| self.frozen.contains(label))
    }

    pub(crate) fn delay(&self, label: Option<&str>) -> Duration {
        let own = label.and_then(|label| self.delays.get(label));
        own.copied().unwrap_or(self.common_delay)
    }

    pub(crate) fn take_lost_message(&mut self) -> bool {
        let lost = self.lost_messages > 0;
        self.lost_messages -= usize::from(lost);
        lost
    }

    pub(crate) fn take_loss(&mut self, command: &[u8]) -> Option<Loss> {
        take(&mut self.lost_replies, command)
    }

    pub(crate) fn take_delayed_request(&mut self, command: &[u8]) -> bool {
        take(&mut self.delayed_requests, command).is_some()
    }

    pub(crate) fn take_failure(&mut self, command: &[u8]) -> Option<String> {
        take(&mut self.failures, command)
    }
}

/// Takes one of the faults that wait for `command`.
fn take<T: Clone>(waiting: &mut Vec<Counted<T>>, command: &[u8]) -> Option<T> {
    let fits = |counted: &Counted<T>| {
        counted.command == "*" || counted.command.as_bytes().eq_ignore_ascii_case(command)
    };
    let at = waiting.iter().position(fits)?;
    waiting[at].left -= 1;
    let fault = waiting[at].fault.clone();
    if waiting[at].left == 0 {
        waiting.remove(at);
    }
    Some(fault)
}
