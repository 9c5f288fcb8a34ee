//! Troubles of servers and networks.

use stanchion::embedded::{Data, Engine, Switch};

/// The troubles of the servers of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Black holes in both directions, for all.
    Frozen,
    Thawed,
    /// Every connection ends.
    Cut,
    CutListeners,
    Refused,
    Accepted,
    /// The next scripts are executed, and their connections end instead of a reply.
    RepliesLost(u8),
    RepliesSilent(u8),
    MessagesLost(u8),
    /// The next scripts stay on their way, until delivered.
    Delayed(u8),
    Delivered,
    /// The next scripts are refused for now.
    Loading(u8),
    /// The server's date jumps.
    Stepped(i32),
    Restarted,
    RestartedEmpty,
    Flushed,
    Full,
    Roomy,
    ScriptsForgotten,
    /// All of it is over.
    Calm,
}

/// Its consequences for judgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nobody may notice.
    None,
    /// Requests fail from now on, for this reason.
    Begins(Reason),
    Ends(Reason),
    /// All of it is over.
    Calms,
    /// Requests that are under way fail.
    Moment,
    DataLost,
    ClockStepped,
    Deaf,
}

/// An obstacle between clients and a server, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Frozen,
    Refused,
    Full,
    Delayed,
    /// Faults for the next few requests; which have struck is not known.
    Counted,
}

impl Weather {
    pub(crate) fn strike(self, engine: &Engine) {
        let faults = engine.faults();
        match self {
            Self::Frozen => faults.freeze(None),
            Self::Thawed => faults.thaw(None),
            Self::Cut => faults.kill_connections(),
            Self::CutListeners => faults.kill_subscribers(),
            Self::Refused => {
                faults.refuse_connections(Switch::On);
                faults.kill_connections();
            }
            Self::Accepted => faults.refuse_connections(Switch::Off),
            Self::RepliesLost(n) => faults.lose_replies("EVALSHA", n.into()),
            Self::RepliesSilent(n) => faults.lose_replies_silently("EVALSHA", n.into()),
            Self::MessagesLost(n) => faults.lose_messages(n.into()),
            Self::Delayed(n) => faults.hold_requests("EVALSHA", n.into()),
            Self::Delivered => faults.deliver(),
            Self::Loading(n) => faults.fail_next("EVALSHA", "LOADING for a moment", n.into()),
            Self::Stepped(millis) => faults.step_clock(millis.into()),
            Self::Restarted => faults.restart(Data::Kept),
            Self::RestartedEmpty => faults.restart(Data::Lost),
            Self::Flushed => faults.flush_all(),
            Self::Full => faults.out_of_memory(Switch::On),
            Self::Roomy => faults.out_of_memory(Switch::Off),
            Self::ScriptsForgotten => faults.flush_scripts(),
            Self::Calm => faults.clear(),
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
            Self::Roomy => Effect::Ends(Reason::Full),
            Self::Delayed(_) => Effect::Begins(Reason::Delayed),
            Self::Delivered => Effect::Ends(Reason::Delayed),
            Self::RepliesLost(_) | Self::RepliesSilent(_) | Self::Loading(_) => {
                Effect::Begins(Reason::Counted)
            }
            Self::Calm => Effect::Calms,
            Self::Cut | Self::CutListeners | Self::Restarted => Effect::Moment,
            Self::RestartedEmpty | Self::Flushed => Effect::DataLost,
            Self::Stepped(_) => Effect::ClockStepped,
            Self::MessagesLost(_) => Effect::Deaf,
        }
    }
}
