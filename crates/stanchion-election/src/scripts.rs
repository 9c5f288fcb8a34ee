//! The scripts, and the descriptions that call them: a campaign, and an observer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stanchion_client::primitive::{
    About, Arg, Call, Handle, Holdable, Item, Kind, Operation, Request, Script, Sharing,
    Synchronizer, renew_field, whole_millis,
};
use stanchion_client::{Fencing, Lease, Name, WireOwner, minting, noticing};

static CAMPAIGN: Script<8, 12> = Script::new(
    "election/campaign",
    noticing!(minting!(include_str!("../lua/campaign.lua"))),
);
static RESIGN: Script<7, 6> = Script::new("election/resign", include_str!("../lua/resign.lua"));
static RESIGN_ALONE: Script<1, 4> = Script::new(
    "election/resign_alone",
    include_str!("../lua/resign_alone.lua"),
);
static RENEW: Script<2, 3> = Script::new("election/renew", include_str!("../lua/renew.lua"));
static RENEW_TERM: Script<1, 2> =
    Script::new("election/renew_term", include_str!("../lua/renew_term.lua"));
static PROCLAIM: Script<2, 6> =
    Script::new("election/proclaim", include_str!("../lua/proclaim.lua"));
static LEADER: Script<2, 0> = Script::new("election/leader", include_str!("../lua/leader.lua"));
static CANDIDATES: Script<2, 0> =
    Script::new("election/candidates", include_str!("../lua/candidates.lua"));
static WATCH: Script<2, 2> = Script::new("election/watch", include_str!("../lua/watch.lua"));
static DEPOSE: Script<2, 4> = Script::new(
    "election/depose",
    noticing!(include_str!("../lua/depose.lua")),
);

/// The time for which a vacancy is reserved: longer than a message and its reply take, shorter than users notice.
pub(crate) const HEAD_START: Duration = Duration::from_millis(500);

/// The number of poll intervals without a request after which a candidate is removed: a candidate may miss two of its polls.
const POLLS: u32 = 3;

/// The keys and channels of one election, and the queries about it.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The properties of a campaign. Its channel is that of the lock, and wakes the candidates of stanchion and of Redisson.
    campaign: About,
    /// The properties of the wait for another leader. Its channel is that of the observers.
    watch: About,
    term: Vec<u8>,
    candidates: Vec<u8>,
    seen: Vec<u8>,
    rank: Vec<u8>,
    heir: Vec<u8>,
    rests: Vec<u8>,
    /// The prefix of the channels of holders.
    notice: Vec<u8>,
    publish: &'static str,
    client: String,
    /// The milliseconds for which a candidate stays one without another request.
    stays: u64,
}

impl Keys {
    pub(crate) fn new(handle: &Handle, name: Name, fencing: Fencing) -> Self {
        // `x` and `{x}` are two elections. They share only the channels, so a message for one causes a request of the other, too.
        Self {
            campaign: About {
                fence: fencing.counter(&name),
                // P3: a refused campaign leaves a candidate on the server.
                leaves_sign: true,
                ..About::new(
                    Kind::new("election"),
                    name.clone(),
                    name.prefixed("redisson_lock__channel"),
                )
            },
            watch: About {
                sharing: Sharing::Event,
                ..About::new(
                    Kind::new("observer"),
                    name.clone(),
                    name.prefixed("stanchion_election"),
                )
            },
            term: name.prefixed_alone("stanchion_leader"),
            candidates: name.prefixed_alone("stanchion_candidates"),
            seen: name.prefixed_alone("stanchion_candidate_seen"),
            rank: name.prefixed_alone("stanchion_candidate_rank"),
            heir: name.prefixed_alone("stanchion_heir"),
            rests: name.prefixed_alone("stanchion_heir_rests"),
            notice: handle.notice(&name),
            publish: handle.publish_command(),
            client: handle.id().to_string(),
            stays: whole_millis(handle.poll_interval() * POLLS),
        }
    }

    pub(crate) const fn name(&self) -> &Name {
        &self.campaign.name
    }

    fn wake(&self) -> Arg<'_> {
        (&*self.campaign.channel).into()
    }

    fn news(&self) -> Arg<'_> {
        (&*self.watch.channel).into()
    }

    pub(crate) fn leader(&self) -> Call {
        LEADER.call([self.name().as_bytes(), &self.term], [])
    }

    pub(crate) fn candidates(&self) -> Call {
        CANDIDATES.call([&self.candidates, &self.seen], [])
    }

    pub(crate) fn depose(&self) -> Call {
        DEPOSE.call(
            [self.name().as_bytes(), &self.term],
            [
                self.publish.into(),
                self.wake(),
                self.news(),
                self.notice.as_slice().into(),
            ],
        )
    }
}

/// One campaign, and the term that it may win, as the core sees it.
#[derive(Debug)]
pub(crate) struct Campaign {
    pub(crate) keys: Arc<Keys>,
    pub(crate) value: Vec<u8>,
    pub(crate) priority: i32,
    /// The time for which this process lets others go first after a resignation.
    pub(crate) cooldown: Duration,
    /// The candidate that the vacancy is reserved for.
    pub(crate) heir: OnceLock<String>,
    /// The number of the last change of the value.
    pub(crate) changes: AtomicU64,
}

impl Campaign {
    /// The script that changes the value of `owner`'s term. Each call is a new change, so a resend must send the returned call again.
    pub(crate) fn proclaim(&self, owner: &WireOwner, value: &[u8], operation: &Operation) -> Call {
        let keys = &self.keys;
        let number = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        PROCLAIM.call(
            [keys.name().as_bytes(), &keys.term],
            [
                owner.as_str().into(),
                number.into(),
                value.into(),
                operation.not_after.into(),
                keys.publish.into(),
                keys.news(),
            ],
        )
    }

    /// The script that ends the term or candidacy of `owner`. `next`: the owner to reserve the vacancy for, or the client that rests.
    fn end(&self, owner: &WireOwner, next: &str, length: Duration) -> Call {
        let keys = &self.keys;
        RESIGN.call(
            [
                keys.name().as_bytes(),
                &keys.term,
                &keys.candidates,
                &keys.seen,
                &keys.rank,
                &keys.heir,
                &keys.rests,
            ],
            [
                owner.as_str().into(),
                keys.publish.into(),
                keys.wake(),
                keys.news(),
                next.into(),
                whole_millis(length).into(),
            ],
        )
    }
}

impl Synchronizer for Campaign {
    fn about(&self) -> &About {
        &self.keys.campaign
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let keys = &self.keys;
        let priority = self.priority.to_string();
        CAMPAIGN.call(
            [
                keys.name().as_bytes(),
                keys.campaign.fence_key(),
                &keys.term,
                &keys.candidates,
                &keys.seen,
                &keys.rank,
                &keys.heir,
                &keys.rests,
            ],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                u64::from(request.waits).into(),
                priority.as_str().into(),
                self.value.as_slice().into(),
                keys.stays.into(),
                whole_millis(HEAD_START).into(),
                keys.publish.into(),
                keys.wake(),
                keys.news(),
                keys.notice.as_slice().into(),
            ],
        )
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }
}

impl Holdable for Campaign {
    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Call {
        if let Some(heir) = self.heir.get() {
            return self.end(owner, heir, HEAD_START);
        }
        if self.cooldown.is_zero() {
            return self.end(owner, "", Duration::ZERO);
        }
        let rests = format!("-{}", self.keys.client);
        self.end(owner, &rests, self.cooldown)
    }

    fn release_alone(&self, owner: &WireOwner) -> Option<Call> {
        let keys = &self.keys;
        let args: [Arg<'_>; 4] = [
            owner.as_str().into(),
            keys.publish.into(),
            keys.wake(),
            keys.news(),
        ];
        Some(RESIGN_ALONE.call([keys.name().as_bytes()], args))
    }

    fn abandon(&self, owner: &WireOwner, _lease: Lease) -> Call {
        self.end(owner, "", Duration::ZERO)
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        let (keys, ms) = (&self.keys, lease.millis().to_string().into_bytes());
        // A term has two keys. While their slot migrates, the keys may be on two nodes.
        let parts = [
            renew_field(keys.name(), owner.as_str(), lease),
            RENEW_TERM.item([keys.term.clone()], [ms.clone()]),
        ];
        let both = RENEW.item(
            [keys.name().as_bytes().to_vec(), keys.term.clone()],
            [owner.as_str().into(), ms],
        );
        vec![both.or_in_parts(parts)]
    }
}

/// The wait until the leader or its value differs from what the observer knows.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) keys: Arc<Keys>,
    /// The leader that the observer knows; empty for none.
    pub(crate) owner: String,
    /// The number of the value that the observer knows, as text; empty for none.
    pub(crate) change: String,
}

impl Synchronizer for Watch {
    fn about(&self) -> &About {
        &self.keys.watch
    }

    fn acquire(&self, _request: &Request<'_>) -> Call {
        WATCH.call(
            [self.keys.name().as_bytes(), &self.keys.term],
            [self.owner.as_str().into(), self.change.as_str().into()],
        )
    }
}
