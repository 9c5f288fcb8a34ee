//! The keys of a barrier, and the scripts that use only these keys.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stanchion_client::primitive::{
    About, Arg, Call, Handle, Item, Kind, LuaPart, Operation, Script, Sharing, whole_millis,
};
use stanchion_client::{Lease, Name, WireOwner};

use crate::error::BrokenBy;
use crate::fact::Place;

/// The common beginning of all scripts of one kind of barrier.
macro_rules! part {
    ($mark:literal, $file:literal) => {
        LuaPart::new(
            $mark,
            stanchion_client::woven!(include_str!(concat!("../lua/", $file)), BURY),
        )
    };
}

const BURY: LuaPart = LuaPart::new("-- @bury.lua\n", include_str!("../lua/bury.lua"));
const ROUND: LuaPart = part!("-- @round.lua\n", "round.lua");
const HALF: LuaPart = part!("-- @half.lua\n", "double/half.lua");

/// Declares a script of the cyclic barrier, with the common beginning.
macro_rules! script {
    ($name:literal, $file:literal) => {
        Script::new(
            $name,
            stanchion_client::woven!(include_str!(concat!("../lua/", $file)), ROUND),
        )
    };
    ($name:literal, double $file:literal) => {
        Script::new(
            $name,
            stanchion_client::woven!(include_str!(concat!("../lua/double/", $file)), HALF),
        )
    };
}

static ARRIVE: Script<4, 8> = script!("barrier/arrive", "arrive.lua");
static LOOK: Script<2, 4> = script!("barrier/look", "look.lua");
static WITHDRAW: Script<2, 4> = script!("barrier/withdraw", "withdraw.lua");
static BREAK_ALL: Script<2, 2> = script!("barrier/break_all", "break_all.lua");
static SET_PARTIES: Script<3, 4> = script!("barrier/set_parties", "set_parties.lua");
static STATUS: Script<2, 0> = Script::new("barrier/status", include_str!("../lua/status.lua"));
static RENEW: Script<2, 4> = Script::new("barrier/renew", include_str!("../lua/renew.lua"));
static ENTER: Script<4, 7> = script!("double/enter", double "enter.lua");
static LOOK_DOUBLE: Script<2, 4> = script!("double/look", double "look.lua");
static LEAVE: Script<2, 4> = script!("double/leave", double "leave.lua");

/// The differences between the two kinds of barrier.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) arrival: Kind,
    pub(crate) round: Kind,
    barrier: &'static str,
    places: &'static str,
    pub(crate) double: bool,
}

pub(crate) static CYCLIC: Family = Family {
    arrival: Kind::new("barrier"),
    round: Kind::new("barrier_round"),
    barrier: "stanchion_barrier",
    places: "stanchion_barrier_in",
    double: false,
};

pub(crate) static DOUBLE: Family = Family {
    arrival: Kind::new("double_barrier"),
    round: Kind::new("double_barrier_round"),
    barrier: "stanchion_double",
    places: "stanchion_double_in",
    double: true,
};

/// The policy for a place that is given up, as a letter that the scripts use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy(pub(crate) &'static str);

/// The parameters of one arrival.
pub(crate) struct Ask<'a> {
    pub(crate) owner: &'a WireOwner,
    pub(crate) lease: Lease,
    pub(crate) not_after: u64,
    pub(crate) parties: u32,
    pub(crate) policy: Policy,
}

/// The keys of one barrier.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) name: Name,
    pub(crate) family: &'static Family,
    /// The properties of an arrival.
    pub(crate) arrival: About,
    /// The properties of the wait for the end of a round.
    pub(crate) round: About,
    barrier: Vec<u8>,
    places: Vec<u8>,
    once: Vec<u8>,
    publish: &'static str,
    /// The time for which an answer is kept: longer than the time until a call sends its request again.
    keep: Duration,
    /// The keys of answers that have arrived: each later arrival removes one.
    answered: Mutex<Vec<Vec<u8>>>,
}

/// The most keys of answers to remember. The others expire.
const REMEMBERED: usize = 10_000;

impl Keys {
    pub(crate) fn new(handle: &Handle, name: Name, family: &'static Family) -> Self {
        // `x` and `{x}` are two barriers, and a message is about one of them. So their channels differ.
        let channel: Arc<[u8]> = name.prefixed_alone(family.barrier).into();
        Self {
            arrival: About {
                sharing: Sharing::Together,
                // A wait has one place at a time. Otherwise its second place could complete a round while the first is being given back. A party
                // that completed a round was in it, however late the answer arrives.
                keeps_late_grants: true,
                ..About::new(family.arrival, name.clone(), Arc::clone(&channel))
            },
            round: About {
                sharing: Sharing::Event,
                ..About::new(family.round, name.clone(), channel)
            },
            barrier: name.prefixed_alone(family.barrier),
            places: name.prefixed_alone(family.places),
            once: name.prefixed_alone("stanchion_once"),
            publish: handle.publish_command(),
            keep: handle.outage_tolerance() * 2 + Duration::from_secs(60),
            answered: Mutex::default(),
            family,
            name,
        }
    }

    fn channel(&self) -> Arg<'_> {
        (&*self.round.channel).into()
    }

    pub(crate) fn both(&self) -> [&[u8]; 2] {
        [&self.barrier, &self.places]
    }

    fn once(&self, owner: &WireOwner) -> Vec<u8> {
        [&self.once, b":".as_slice(), owner.as_str().as_bytes()].concat()
    }

    /// Records that the answer to `owner` has arrived, and that no request of `owner` may still run.
    pub(crate) fn answered(&self, owner: &WireOwner) {
        let key = self.once(owner);
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.len() < REMEMBERED {
            answered.push(key);
        }
    }

    pub(crate) fn arrive(&self, ask: &Ask<'_>) -> Call {
        let once = self.once(ask.owner);
        let answered = self
            .answered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let answered = answered.as_ref().unwrap_or(&once);
        let keys = [self.barrier.as_slice(), &self.places, &once, answered];
        let owner = ask.owner.as_str().into();
        let (lease, not_after) = (ask.lease.millis().into(), ask.not_after.into());
        let parties = u64::from(ask.parties).into();
        let keep = whole_millis(self.keep).into();
        let (publish, channel) = (self.publish.into(), self.channel());
        if self.family.double {
            let args = [owner, lease, not_after, parties, keep, publish, channel];
            return ENTER.call(keys, args);
        }
        let policy = ask.policy.0.into();
        let args = [
            owner, lease, not_after, parties, policy, keep, publish, channel,
        ];
        ARRIVE.call(keys, args)
    }

    pub(crate) fn look(&self, place: Place) -> Call {
        let args = [
            place.first.into(),
            place.round.into(),
            self.publish.into(),
            self.channel(),
        ];
        if self.family.double {
            LOOK_DOUBLE.call(self.both(), args)
        } else {
            LOOK.call(self.both(), args)
        }
    }

    /// Gives the place of `owner` back; in a double barrier only while the half round is `until` or an earlier one.
    pub(crate) fn give_back(&self, owner: &WireOwner, why: BrokenBy, until: u64) -> Call {
        let (owner, publish) = (owner.as_str().into(), self.publish.into());
        let channel = self.channel();
        if self.family.double {
            LEAVE.call(self.both(), [owner, until.into(), publish, channel])
        } else {
            WITHDRAW.call(self.both(), [owner, why.letter().into(), publish, channel])
        }
    }

    /// `until`: the last round in which the place counts.
    pub(crate) fn renew(&self, owner: &WireOwner, lease: Lease, until: u64) -> Item {
        let args = [
            owner.as_str().into(),
            lease.millis().to_string().into_bytes(),
            until.to_string().into_bytes(),
        ];
        let item =
            |barrier: &[u8]| RENEW.item([barrier.to_vec(), self.places.clone()], args.clone());
        // While the two keys are on two nodes, only the places are sent. Then a lost place looks like one whose round is over.
        item(&self.barrier).or_in_parts([item(&self.places)])
    }

    pub(crate) fn break_all(&self) -> Call {
        let args = [self.publish.into(), self.channel()];
        BREAK_ALL.call(self.both(), args)
    }

    pub(crate) fn set_parties(&self, parties: u32, operation: &Operation) -> Call {
        let args = [
            u64::from(parties).into(),
            self.publish.into(),
            self.channel(),
            operation.not_after.into(),
        ];
        let [barrier, places] = self.both();
        SET_PARTIES.call([barrier, places, &self.once(&operation.id)], args)
    }

    pub(crate) fn status(&self) -> Call {
        STATUS.call(self.both(), [])
    }
}
