//! Compares the methods of a read-write lock with a simple model: owners, guards, time and lost replies.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use stanchion::{
    AcquireError, AcquireOptions, Lease, Owner, ReadGuard, Rejection, ReleaseError, Renewal,
    RwLock, WriteGuard,
};
use stanchion_tests::World;
use tokio::time::{Instant, sleep, sleep_until};

use super::{preferring, rwlock, warm};

const OWNERS: usize = 3;
const LEASE: Duration = Duration::from_secs(20);
/// The uncertainty of the end of a lease in the model: an operation and its resends. The test does nothing in that window.
const DOUBT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
enum Step {
    Read(usize),
    Write(usize),
    /// The n-th guard, modulo their number.
    Reenter(usize),
    Renew(usize),
    Release(usize),
    Drop(usize),
    Downgrade(usize),
    Force,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..OWNERS).prop_map(Step::Read),
        4 => (0..OWNERS).prop_map(Step::Write),
        2 => (0..8_usize).prop_map(Step::Reenter),
        1 => (0..8_usize).prop_map(Step::Renew),
        4 => (0..8_usize).prop_map(Step::Release),
        1 => (0..8_usize).prop_map(Step::Drop),
        2 => (0..8_usize).prop_map(Step::Downgrade),
        1 => Just(Step::Force),
        1 => (1..12_u64).prop_map(Step::Pass),
    ]
}

#[derive(Debug)]
enum Guard {
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Guard {
    fn is_held(&self) -> bool {
        match self {
            Self::Read(guard) => guard.is_held(),
            Self::Write(guard) => guard.is_held(),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::Read(guard) => guard.remaining(),
            Self::Write(guard) => guard.remaining(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    owner: usize,
    writes: bool,
    count: u32,
    end: Instant,
}

/// The current holds, and the hold that an owner re-enters: the last one of each kind.
#[derive(Debug, Default)]
struct Model {
    holds: HashMap<usize, Held>,
    seats: HashMap<(usize, bool), usize>,
    next: usize,
}

impl Model {
    fn seat(&self, owner: usize, writes: bool) -> Option<usize> {
        let id = *self.seats.get(&(owner, writes))?;
        self.holds.contains_key(&id).then_some(id)
    }

    fn writer(&self) -> Option<usize> {
        self.holds
            .values()
            .find(|held| held.writes)
            .map(|held| held.owner)
    }

    fn begin(&mut self, owner: usize, writes: bool) -> usize {
        self.next += 1;
        let held = Held {
            owner,
            writes,
            count: 1,
            end: Instant::now() + LEASE,
        };
        self.holds.insert(self.next, held);
        self.seats.insert((owner, writes), self.next);
        self.next
    }

    fn one_more(&mut self, id: usize) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.count += 1;
            held.end = Instant::now() + LEASE;
        }
    }

    fn one_less(&mut self, id: usize) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.count -= 1;
            // A partial release extends the TTL on the server, but not the guard's `valid_until`.
            if held.count == 0 {
                self.holds.remove(&id);
            }
        }
    }
}

struct Run {
    world: World,
    lock: RwLock,
    owners: Vec<Owner>,
    guards: Vec<(usize, Guard)>,
    model: Model,
}

impl Run {
    async fn new(prefers_writers: bool) -> Self {
        let world = World::engine();
        let client = world.client().await;
        warm(&client).await;
        let lock = if prefers_writers {
            preferring(&client)
        } else {
            rwlock(&client)
        };
        Self {
            world,
            lock: lock.lease(Lease::new(LEASE).unwrap()),
            owners: (0..OWNERS).map(|_| client.owner()).collect(),
            guards: Vec::new(),
            model: Model::default(),
        }
    }

    async fn step(&mut self, step: Step) {
        let nth = |n: usize| n.checked_rem(self.guards.len());
        match step {
            Step::Read(owner) => self.read(owner).await,
            Step::Write(owner) => self.write(owner).await,
            Step::Reenter(n) => {
                if let Some(at) = nth(n) {
                    self.reenter(at).await;
                }
            }
            Step::Renew(n) => {
                if let Some(at) = nth(n) {
                    self.renew(at).await;
                }
            }
            Step::Release(n) => {
                if let Some(at) = nth(n) {
                    let (id, guard) = self.guards.swap_remove(at);
                    match guard {
                        Guard::Read(guard) => guard.release().await.unwrap(),
                        Guard::Write(guard) => guard.release().await.unwrap(),
                    }
                    self.model.one_less(id);
                }
            }
            Step::Drop(n) => {
                if let Some(at) = nth(n) {
                    let (id, guard) = self.guards.swap_remove(at);
                    drop(guard);
                    self.model.one_less(id);
                }
            }
            Step::Downgrade(n) => {
                if let Some(at) = nth(n) {
                    self.downgrade(at).await;
                }
            }
            Step::Force => {
                // An error means that the reply was lost. The client does not resend a forced release.
                while self.lock.danger().force_release().await.is_err() {}
                self.model.holds.clear();
                for (_, guard) in self.guards.drain(..) {
                    let lost = match guard {
                        Guard::Read(guard) => guard.release().await,
                        Guard::Write(guard) => guard.release().await,
                    };
                    // Of several guards of one hold, only the last one reports the loss at once.
                    assert!(
                        matches!(lost, Err(ReleaseError::Lost(_)) | Ok(())),
                        "{lost:?}"
                    );
                }
            }
            Step::Pass(seconds) => sleep(Duration::from_secs(seconds)).await,
        }
        self.world.quiet().await;
        self.expire().await;
        self.compare().await;
    }

    fn options(&self, owner: usize) -> AcquireOptions {
        AcquireOptions::new()
            .owner(&self.owners[owner])
            .renewal(Renewal::Manual)
    }

    async fn read(&mut self, owner: usize) {
        let seat = self.model.seat(owner, false);
        let free = self.model.writer().is_none_or(|writer| writer == owner);
        let guard = self.lock.try_read_with(self.options(owner)).await.unwrap();
        assert_eq!(guard.is_some(), free || seat.is_some());
        if let Some(guard) = guard {
            let id = self.granted(owner, false, seat);
            self.guards.push((id, Guard::Read(guard)));
        }
    }

    async fn write(&mut self, owner: usize) {
        let seat = self.model.seat(owner, true);
        let waits_for_itself = seat.is_none() && self.model.seat(owner, false).is_some();
        let free = self.model.holds.is_empty();
        match self.lock.try_write_with(self.options(owner)).await {
            Err(AcquireError::Rejected { rejection, .. }) => {
                assert!(matches!(rejection, Rejection::AlreadyHeld { .. }));
                assert!(waits_for_itself);
            }
            Err(error) => panic!("{error}"),
            Ok(guard) => {
                assert!(!waits_for_itself);
                assert_eq!(guard.is_some(), free || seat.is_some());
                if let Some(guard) = guard {
                    let id = self.granted(owner, true, seat);
                    self.guards.push((id, Guard::Write(guard)));
                }
            }
        }
    }

    fn granted(&mut self, owner: usize, writes: bool, seat: Option<usize>) -> usize {
        match seat {
            Some(id) => {
                self.model.one_more(id);
                id
            }
            None => self.model.begin(owner, writes),
        }
    }

    async fn reenter(&mut self, at: usize) {
        let (id, guard) = &self.guards[at];
        let id = *id;
        let again = match guard {
            Guard::Read(guard) => Guard::Read(guard.reenter().await.unwrap()),
            Guard::Write(guard) => Guard::Write(guard.reenter().await.unwrap()),
        };
        self.model.one_more(id);
        self.guards.push((id, again));
    }

    async fn renew(&mut self, at: usize) {
        let (id, guard) = &self.guards[at];
        match guard {
            Guard::Read(guard) => guard.renew().await.unwrap(),
            Guard::Write(guard) => guard.renew().await.unwrap(),
        }
        if let Some(held) = self.model.holds.get_mut(id) {
            held.end = Instant::now() + LEASE;
        }
    }

    async fn downgrade(&mut self, at: usize) {
        if matches!(self.guards[at].1, Guard::Read(_)) {
            return;
        }
        let (id, guard) = self.guards.swap_remove(at);
        let Guard::Write(guard) = guard else { return };
        let held = self.model.holds[&id];
        match guard.downgrade().await {
            Ok(reading) => {
                assert_eq!(held.count, 1);
                self.model.holds.remove(&id);
                let id = self.model.begin(held.owner, false);
                self.guards.push((id, Guard::Read(reading)));
            }
            Err(error) => {
                // The other guards keep the write hold; this one is released.
                assert!(matches!(error, ReleaseError::Rejected { .. }), "{error}");
                assert!(held.count > 1);
                self.model.one_less(id);
            }
        }
    }

    /// Removes ended holds. Sleeps first while the end of a hold is uncertain.
    async fn expire(&mut self) {
        let now = Instant::now;
        while let Some(end) = self
            .model
            .holds
            .values()
            .map(|held| held.end)
            .find(|end| *end < now() + DOUBT && now() < *end + DOUBT)
        {
            sleep_until(end + DOUBT).await;
        }
        self.model.holds.retain(|_, held| now() < held.end);
        let model = &self.model;
        self.guards.retain(|(id, guard)| {
            let lasts = model.holds.contains_key(id);
            assert_eq!(guard.is_held(), lasts, "P5: {guard:?}");
            lasts
        });
        self.world.quiet().await;
    }

    async fn compare(&self) {
        let status = self.lock.status().await.unwrap();
        let mut readers: Vec<u32> = status.readers.iter().map(|held| held.hold_count).collect();
        let holds = self.model.holds.values();
        let mut expected: Vec<u32> = holds
            .filter(|held| !held.writes)
            .map(|held| held.count)
            .collect();
        readers.sort_unstable();
        expected.sort_unstable();
        assert_eq!(readers, expected, "{:?}", self.model);
        let writer = self.model.holds.values().find(|held| held.writes);
        assert_eq!(
            status.writer.map(|held| held.hold_count),
            writer.map(|held| held.count)
        );
        // P5: each hold lasts longer on the server than its guard expects, and the n-th shortest of them, too.
        let mut counted: HashMap<usize, Duration> = HashMap::new();
        for (id, guard) in &self.guards {
            assert!(guard.remaining() < self.left("job"));
            if let Guard::Read(guard) = guard {
                counted.insert(*id, guard.remaining());
            }
        }
        let mut counted: Vec<Duration> = counted.into_values().collect();
        let keys = status.readers.iter();
        let keys = keys.map(|held| format!("{{job}}:{}:rwlock_timeout:1", held.owner));
        let mut left: Vec<Duration> = keys.map(|key| self.left(&key)).collect();
        counted.sort_unstable();
        left.sort_unstable();
        let all_longer = counted
            .iter()
            .zip(&left)
            .all(|(ours, server)| ours < server);
        assert!(all_longer, "P5: {counted:?} {left:?}");
    }

    fn left(&self, key: &str) -> Duration {
        let left = self.world.admin(&["PTTL", key]).parse();
        Duration::from_millis(left.unwrap_or_else(|e| panic!("{key}: {e}")))
    }
}

async fn run(prefers_writers: bool, steps: Vec<(Step, bool)>) {
    let mut run = Run::new(prefers_writers).await;
    for (step, loses_a_reply) in steps {
        if loses_a_reply {
            run.world.as_engine().faults().lose_replies("EVALSHA", 1);
        }
        run.step(step).await;
    }
    run.guards.clear();
    run.world.at_rest().await;
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_read_write_lock_agrees_with_its_model(
        prefers_writers: bool,
        steps in prop::collection::vec((step(), prop::bool::weighted(0.15)), 1..40),
    ) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(run(prefers_writers, steps));
    }
}
