//! The scripts, and the descriptions that call them: of one arrival, and of the wait for its round.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stanchion_core::primitive::{
    Call, Dated, Handle, Hint, Item, Kind, Reply, Request, Script, Sharing, Synchronizer, Tenure,
    whole_millis,
};
use stanchion_core::{InvalidName, Lease, Name, Placement, WireOwner};

static ARRIVE: Script<3, 7> = Script::new("barrier/arrive", include_str!("../lua/arrive.lua"));
static LOOK: Script<2, 1> = Script::new("barrier/look", include_str!("../lua/look.lua"));
static WITHDRAW: Script<2, 2> =
    Script::new("barrier/withdraw", include_str!("../lua/withdraw.lua"));
static RENEW: Script<1, 3> = Script::new("barrier/renew", include_str!("../lua/renew.lua"));

/// The keys of one barrier.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) name: Name,
    barrier: Vec<u8>,
    places: Vec<u8>,
    once: Vec<u8>,
    channel: Vec<u8>,
    publish: &'static str,
    /// The time for which an answer is kept: longer than a call asks again.
    keep: Duration,
}

impl Keys {
    pub(crate) fn new(handle: &Handle, name: Name) -> Result<Self, InvalidName> {
        // The longest number of a round: its name must be one, too.
        round_name(&name, u64::MAX)?;
        // `x` and `{x}` are two barriers: what a message says is for one of them.
        let mut channel = name.prefixed_alone("stanchion_barrier");
        channel.push(b':');
        Ok(Self {
            barrier: name.prefixed_alone("stanchion_barrier"),
            places: name.prefixed_alone("stanchion_barrier_in"),
            once: name.prefixed_alone("stanchion_once"),
            channel,
            publish: handle.publish_command(),
            keep: handle.outage_tolerance() * 2 + Duration::from_secs(60),
            name,
        })
    }

    pub(crate) fn look(&self, generation: u64) -> Call {
        LOOK.call([&self.barrier, &self.places], [generation.into()])
    }

    pub(crate) fn withdraw(&self, owner: &WireOwner, generation: u64) -> Call {
        let keys = [self.barrier.as_slice(), &self.places];
        WITHDRAW.call(keys, [owner.as_str().into(), generation.into()])
    }
}

/// The name under which the waiters of one round are found, in the slot of the barrier.
fn round_name(name: &Name, generation: u64) -> Result<Name, InvalidName> {
    let bytes = name.suffixed(&generation.to_string());
    Name::new("", bytes, Placement::Anywhere)
}

/// The answer to an arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) generation: u64,
    pub(crate) arrival: u32,
    pub(crate) last: bool,
}

/// One arrival, as the core sees it.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) keys: Arc<Keys>,
    pub(crate) parties: u32,
    /// The answer. One arrival has one: a resend is answered as the first request was.
    pub(crate) arrived: OnceLock<Arrived>,
    /// The number of parties that the server has instead.
    pub(crate) theirs: OnceLock<u32>,
}

fn number(rest: &[Reply], at: usize) -> Option<u64> {
    rest.get(at)?.as_int()?.try_into().ok()
}

impl Synchronizer for Arrival {
    fn kind(&self) -> Kind {
        Kind::new("barrier")
    }

    fn name(&self) -> &Name {
        &self.keys.name
    }

    fn channel(&self) -> &[u8] {
        // Nothing is published here: an arrival is answered, never refused for a while.
        &self.keys.channel
    }

    fn sharing(&self) -> Sharing {
        Sharing::Together
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let keys = &self.keys;
        let once = [
            &keys.once,
            b":".as_slice(),
            request.owner.as_str().as_bytes(),
        ]
        .concat();
        ARRIVE.call(
            [&keys.barrier, &keys.places, &once],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                u64::from(self.parties).into(),
                whole_millis(keys.keep).into(),
                keys.publish.into(),
                keys.channel.as_slice().into(),
            ],
        )
    }

    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        let generation = self.arrived.get().map_or(0, |it| it.generation);
        Some(self.keys.withdraw(owner, generation))
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        let args = [
            owner.as_str().into(),
            lease.millis().to_string().into_bytes(),
        ];
        vec![RENEW.item([self.keys.places.clone()], args)]
    }

    fn hint(&self, rest: &[Reply]) -> Hint {
        if let Some(theirs) = number(rest, 0).and_then(|n| u32::try_from(n).ok()) {
            self.theirs.get_or_init(|| theirs);
        }
        // Asking again would not help.
        Hint::TooLate
    }

    fn dated(&self, rest: &[Reply]) -> Dated {
        let arrival = number(rest, 1).and_then(|n| u32::try_from(n).ok());
        if let (Some(generation), Some(arrival)) = (number(rest, 0), arrival) {
            let last = number(rest, 2) == Some(1);
            self.arrived.get_or_init(|| Arrived {
                generation,
                arrival,
                last,
            });
        }
        Dated::default()
    }
}

/// The wait for the end of one round: for all of this process, whoever asks.
#[derive(Debug)]
pub(crate) struct Round {
    keys: Arc<Keys>,
    generation: u64,
    name: Name,
    channel: Vec<u8>,
}

impl Round {
    pub(crate) fn new(keys: &Arc<Keys>, generation: u64) -> Result<Self, InvalidName> {
        let text = generation.to_string();
        Ok(Self {
            name: round_name(&keys.name, generation)?,
            channel: [&keys.channel, text.as_bytes()].concat(),
            keys: Arc::clone(keys),
            generation,
        })
    }
}

impl Synchronizer for Round {
    fn kind(&self) -> Kind {
        Kind::new("barrier_round")
    }

    fn name(&self) -> &Name {
        &self.name
    }

    fn channel(&self) -> &[u8] {
        &self.channel
    }

    fn sharing(&self) -> Sharing {
        Sharing::Event
    }

    fn tenure(&self) -> Tenure {
        Tenure::Nothing
    }

    fn acquire(&self, _request: &Request<'_>) -> Call {
        self.keys.look(self.generation)
    }

    fn release(&self, _owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        None
    }

    fn renewals(&self, _owner: &WireOwner, _lease: Lease) -> Vec<Item> {
        Vec::new()
    }
}
