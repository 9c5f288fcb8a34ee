//! The client of all stanchion synchronizers.
//!
//! Puts the crates below together: the core (holds, waiting, renewal), surveys with deadlock detection, events, and metrics. Users depend on the
//! `stanchion` facade or on one primitive's crate; both re-export the parts that users need. Authors of a primitive depend on this crate and start
//! at [`primitive`].

mod any;
mod client;
mod guard;
mod part;

pub use any::{Acquire, Acquiring};
pub use client::Client;
pub use guard::{Anything, Guard, Held};
pub use part::Lockable;

/// The interface for the crates of the primitives: a synchronizer describes itself to the core.
pub mod primitive {
    pub use crate::guard::{
        Detachable, Downgradable, Fenced, Permits, Quorum, Reentrant, lease_for,
    };
    pub use crate::part::{Lockable, Part};
    pub use stanchion_core::primitive::*;
    pub use stanchion_events::Visible;
}

pub use stanchion_core::*;
pub use stanchion_events::{Event, Events, HoldMode, NameHolder, NameState};
pub use stanchion_survey::{
    Actor, Certainty, Console, Deadlock, Process, Processes, Survey, SurveyedClient, SurveyedHold,
    SurveyedWait, Tracked, Unreached,
};
