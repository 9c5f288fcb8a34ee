//! Faults of servers and networks, and their consequences for the judges.

use stanchion::embedded::{Data, Engine, Switch};

/// A fault that a step injects into a server or its network, or the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The network is a black hole in both directions, for all clients.
    Frozen,
    Thawed,
    /// All connections are closed.
    Cut,
    CutSubscribers,
    Refused,
    Accepted,
    /// The server executes the next scripts, and closes their connections instead of a reply.
    RepliesLost(u8),
    RepliesSilent(u8),
    MessagesLost(u8),
    /// The next scripts are delayed until `Delivered`.
    Delayed(u8),
    Delivered,
    /// The server refuses the next scripts with `LOADING`.
    Loading(u8),
    /// The server's clock jumps by so many milliseconds.
    Stepped(i32),
    Restarted,
    RestartedEmpty,
    Flushed,
    Full,
    MemoryFreed,
    ScriptsForgotten,
    /// All faults end.
    Cleared,
}

/// The consequence of a fault for the judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Clients may not notice the fault.
    None,
    /// Requests fail from now on, for this reason.
    Begins(Reason),
    Ends(Reason),
    /// All faults end.
    Clears,
    /// Requests in flight fail.
    Interrupts,
    DataLost,
    ClockStepped,
    LosesMessages,
}

/// A reason why requests to a server fail for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Frozen,
    Refused,
    Full,
    Delayed,
    /// Faults of the next few requests. The judges do not know which of them have happened.
    Counted,
}

impl Fault {
    pub(crate) fn inject(self, engine: &Engine) {
        let faults = engine.faults();
        match self {
            Self::Frozen => faults.freeze(None),
            Self::Thawed => faults.thaw(None),
            Self::Cut => faults.kill_connections(),
            Self::CutSubscribers => faults.kill_subscribers(),
            Self::Refused => {
                faults.refuse_connections(Switch::On);
                faults.kill_connections();
            }
            Self::Accepted => faults.refuse_connections(Switch::Off),
            // The first request of a script is an EVAL, after the server did not know its digest.
            Self::RepliesLost(n) => {
                faults.lose_replies("EVALSHA", n.into());
                faults.lose_replies("EVAL", 1);
            }
            Self::RepliesSilent(n) => {
                faults.lose_replies_silently("EVALSHA", n.into());
                faults.lose_replies_silently("EVAL", 1);
            }
            Self::MessagesLost(n) => faults.lose_messages(n.into()),
            Self::Delayed(n) => faults.hold_requests("EVALSHA", n.into()),
            Self::Delivered => faults.deliver(),
            Self::Loading(n) => faults.fail_next("EVALSHA", "LOADING for a moment", n.into()),
            Self::Stepped(millis) => faults.step_clock(millis.into()),
            Self::Restarted => faults.restart(Data::Kept),
            Self::RestartedEmpty => faults.restart(Data::Lost),
            Self::Flushed => faults.flush_all(),
            Self::Full => faults.out_of_memory(Switch::On),
            Self::MemoryFreed => faults.out_of_memory(Switch::Off),
            Self::ScriptsForgotten => faults.flush_scripts(),
            Self::Cleared => faults.clear(),
        }
    }

    pub(crate) fn effect(self) -> Effect {
        match self {
            Self::ScriptsForgotten => Effect::None,
            Self::Frozen => Effect::Begins(Reason::Frozen),
            Self::Thawed => Effect::Ends(Reason::Frozen),
            Self::Refused => Effect::Begins(Reason::Refused),
            Self::Accepted => Effect::Ends(Reason::Refused),
            Self::Full => Effect::Begins(Reason::Full),
            Self::MemoryFreed => Effect::Ends(Reason::Full),
            Self::Delayed(_) => Effect::Begins(Reason::Delayed),
            Self::Delivered => Effect::Ends(Reason::Delayed),
            Self::RepliesLost(_) | Self::RepliesSilent(_) | Self::Loading(_) => {
                Effect::Begins(Reason::Counted)
            }
            Self::Cleared => Effect::Clears,
            Self::Cut | Self::CutSubscribers | Self::Restarted => Effect::Interrupts,
            Self::RestartedEmpty | Self::Flushed => Effect::DataLost,
            Self::Stepped(_) => Effect::ClockStepped,
            Self::MessagesLost(_) => Effect::LosesMessages,
        }
    }
}
