//! Compares semaphores with a simple model after each of a sequence of random operations.

use std::time::Duration;

use proptest::prelude::*;
use stanchion::{AcquireOptions, Client, Lease, QueryError, Renewal};
use stanchion_tests::World;
use stanchion_tests::permits::{KINDS, Kind, LEASES, LEDGER, NAME, Seat, Seats, TOTAL};

/// The lease of every leased permit. There is no automatic renewal.
const LEASE_MS: i64 = 60_000;

/// A connection of this age is replaced at once when a reply is lost, so no lease ends during the reconnect.
const STEADY: Duration = Duration::from_millis(1_100);

#[derive(Clone, Debug)]
enum Op {
    Init(u32),
    Try { client: usize, permits: u32 },
    Release(usize),
    Drop(usize),
    Renew(usize),
    Reclaim(usize),
    Add(u32),
    Reduce(u32),
    Drain,
    SetTotal(u32),
    Delete,
    Wait(u64),
}

fn ops() -> impl Strategy<Value = Vec<(Op, bool)>> {
    let op = prop_oneof![
        2 => (0..6_u32).prop_map(Op::Init),
        8 => (0..2_usize, 1..5_u32).prop_map(|(client, permits)| Op::Try { client, permits }),
        4 => any::<usize>().prop_map(Op::Release),
        2 => any::<usize>().prop_map(Op::Drop),
        2 => any::<usize>().prop_map(Op::Renew),
        1 => any::<usize>().prop_map(Op::Reclaim),
        2 => (0..4_u32).prop_map(Op::Add),
        2 => (0..4_u32).prop_map(Op::Reduce),
        1 => Just(Op::Drain),
        1 => (0..8_u32).prop_map(Op::SetTotal),
        1 => Just(Op::Delete),
        3 => (1..42_000_u64).prop_map(Op::Wait),
    ];
    // The flag means that the reply is lost.
    prop::collection::vec((op, prop::bool::weighted(0.2)), 1..40)
}

/// A hold in the model.
#[derive(Debug)]
struct Held {
    seat: Seat,
    /// The end of the lease of each permit that the server still has.
    ends: Vec<i64>,
}

/// The model: the number of free permits, and the holds.
#[derive(Debug, Default)]
struct Model {
    free: Option<i64>,
    held: Vec<Held>,
}

impl Model {
    fn free(&self) -> i64 {
        self.free.unwrap_or(0)
    }

    fn change(&mut self, by: i64) {
        self.free = Some(self.free() + by);
    }

    fn on_server(&self) -> i64 {
        let held: usize = self.held.iter().map(|held| held.ends.len()).sum();
        i64::try_from(held).unwrap()
    }

    /// Removes ended leases and frees their permits.
    fn reap(&mut self, now: i64) {
        let mut reaped = 0;
        for ends in self.held.iter_mut().map(|held| &mut held.ends) {
            let before = ends.len();
            ends.retain(|end| *end > now);
            reaped += before - ends.len();
        }
        if reaped > 0 {
            self.change(i64::try_from(reaped).unwrap());
        }
    }
}

fn server_ms(world: &World) -> i64 {
    let script = "local t = redis.call('TIME') return math.floor((t[1] * 1000000 + t[2]) / 1000)";
    world.admin(&["EVAL", script, "0"]).parse().unwrap()
}

struct Run {
    world: World,
    kind: Kind,
    seats: Vec<Seats>,
    model: Model,
}

impl Run {
    async fn new(kind: Kind) -> Self {
        let world = World::engine();
        let mut seats = Vec::new();
        for _ in 0..2 {
            let client: Client = world.client().await;
            let lease = Lease::new(Duration::from_millis(LEASE_MS.unsigned_abs())).unwrap();
            seats.push(kind.on(&client).lease(lease));
        }
        // Caches the script, so that a lost reply means that the script ran.
        let deleted = match &seats[0] {
            Seats::Plain(plain) => plain.danger().delete().await,
            Seats::Leased(leased) => leased.danger().delete().await,
        };
        assert!(!deleted.unwrap());
        Self {
            world,
            kind,
            seats,
            model: Model::default(),
        }
    }

    async fn try_acquire(&self, client: usize, permits: u32) -> Option<Seat> {
        match &self.seats[client] {
            Seats::Plain(plain) => plain
                .try_acquire_many(permits)
                .await
                .unwrap()
                .map(Seat::Plain),
            Seats::Leased(leased) => {
                let options = AcquireOptions::new().renewal(Renewal::Manual);
                leased
                    .try_acquire_with(permits, options)
                    .await
                    .unwrap()
                    .map(Seat::Leased)
            }
        }
    }

    /// The ends of the leases of permits that are granted now.
    fn ends(&self, permits: u32) -> Vec<i64> {
        vec![server_ms(&self.world) + LEASE_MS; permits as usize]
    }

    async fn step(&mut self, op: Op, lost: bool) {
        let now = server_ms(&self.world);
        let leased = self.kind == Kind::Leased;
        let seats = self.seats[0].clone();
        match op {
            Op::Init(n) => {
                let set = seats.init(n).await.unwrap();
                assert_eq!(set, self.model.free.is_none());
                self.model.free.get_or_insert_with(|| i64::from(n));
            }
            Op::Try { client, permits } => {
                let wanted = i64::from(permits);
                if leased && self.model.free() < wanted {
                    self.model.reap(now);
                }
                let granted = self.try_acquire(client, permits).await;
                if leased && lost && self.model.free() < wanted {
                    // The request was resent, and a lease may have ended before the second run.
                    self.model.reap(server_ms(&self.world));
                }
                assert_eq!(granted.is_some(), self.model.free() >= wanted);
                if let Some(seat) = granted {
                    self.model.change(-wanted);
                    let ends = self.ends(permits);
                    self.model.held.push(Held { seat, ends });
                }
            }
            Op::Release(i) | Op::Drop(i) if !self.model.held.is_empty() => {
                let i = i % self.model.held.len();
                let held = self.model.held.swap_remove(i);
                let whole = held.ends.len() == held.seat.count() as usize;
                let valid = held.seat.is_held();
                if matches!(op, Op::Release(_)) {
                    let released = held.seat.release().await;
                    // The second run finds no hold, and cannot know that the first run released it.
                    let may = lost && valid;
                    assert!(released.is_ok() == (whole && valid) || may, "{released:?}");
                } else {
                    drop(held.seat);
                }
                self.world.quiet().await;
                if !held.ends.is_empty() {
                    self.model.change(i64::try_from(held.ends.len()).unwrap());
                }
            }
            Op::Renew(i) if !self.model.held.is_empty() => {
                let i = i % self.model.held.len();
                let Seat::Leased(permit) = &self.model.held[i].seat else {
                    return;
                };
                let valid = permit.is_held();
                let renewed = permit.renew().await.is_ok();
                let count = permit.count();
                let held = &mut self.model.held[i];
                assert_eq!(renewed, valid && held.ends.len() == count as usize);
                if valid {
                    // The remaining permits of an incomplete hold are renewed, too, before the loss is noticed.
                    let end = server_ms(&self.world) + LEASE_MS;
                    held.ends.iter_mut().for_each(|old| *old = end);
                }
            }
            Op::Reclaim(i) if !self.model.held.is_empty() => {
                let i = i % self.model.held.len();
                let held = &mut self.model.held[i];
                let before = held.ends.len();
                match (&seats, &held.seat) {
                    (Seats::Plain(plain), Seat::Plain(permit)) => {
                        let given = plain
                            .danger()
                            .reclaim(permit.owner().as_str())
                            .await
                            .unwrap();
                        assert_eq!(given as usize, before);
                        held.ends.clear();
                    }
                    (Seats::Leased(leased), Seat::Leased(permit)) => {
                        let id = permit.ids()[0];
                        let given = leased.danger().reclaim(&id).await.unwrap();
                        // All leases of a hold end together: the model does not know which were reaped. Only a complete hold is certain.
                        if before == permit.count() as usize {
                            assert!(given);
                        }
                        if given {
                            held.ends.pop();
                        }
                    }
                    other => panic!("{other:?}"),
                }
                let given = before - held.ends.len();
                if given > 0 {
                    self.model.change(i64::try_from(given).unwrap());
                }
            }
            Op::Add(n) => {
                self.model.change(i64::from(n));
                assert_eq!(seats.add(n).await.unwrap(), self.model.free());
            }
            Op::Reduce(n) => {
                self.model.change(-i64::from(n));
                assert_eq!(seats.reduce(n).await.unwrap(), self.model.free());
            }
            Op::Drain => {
                let taken = i64::from(seats.drain().await.unwrap());
                assert_eq!(taken, self.model.free().max(0));
                if taken > 0 {
                    self.model.free = Some(0);
                }
            }
            Op::SetTotal(n) => {
                if let Seats::Leased(leased) = &seats {
                    let before = self.model.free() + self.model.on_server();
                    assert_eq!(leased.set_total(n).await.unwrap(), before);
                    self.model.change(i64::from(n) - before);
                }
            }
            Op::Delete => {
                let deleted = match &seats {
                    Seats::Plain(plain) => plain.danger().delete().await,
                    Seats::Leased(leased) => leased.danger().delete().await,
                };
                match deleted {
                    Ok(deleted) => {
                        let there = self.model.free.is_some() || self.model.on_server() > 0;
                        assert_eq!(deleted, there);
                    }
                    // The client does not resend a delete. In this test the delete has run.
                    Err(QueryError::Unanswered { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                self.model.free = None;
                self.model
                    .held
                    .iter_mut()
                    .for_each(|held| held.ends.clear());
            }
            Op::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            // There is no hold to operate on.
            Op::Release(_) | Op::Drop(_) | Op::Renew(_) | Op::Reclaim(_) => {}
        }
    }

    async fn compare(&self, op: &Op) {
        let free = self.world.admin(&["GET", NAME]);
        assert_eq!(free.parse().ok(), self.model.free, "free after {op:?}");
        assert_eq!(
            self.kind.held(&self.world),
            self.model.on_server(),
            "held after {op:?}"
        );
        let now = server_ms(&self.world);
        let ended = match self.kind {
            Kind::Plain => 0,
            Kind::Leased => {
                let all = self.model.held.iter().flat_map(|held| &held.ends);
                i64::try_from(all.filter(|end| **end <= now).count()).unwrap()
            }
        };
        assert_eq!(
            self.seats[1].available().await.unwrap(),
            self.model.free() + ended,
            "available after {op:?}"
        );
        let keys = self.world.keys();
        let odd = keys.iter().find(|key| {
            ![NAME, LEDGER, LEASES, TOTAL].contains(&key.as_str())
                && !key.starts_with("stanchion_once:")
        });
        assert_eq!(odd, None, "after {op:?}");
    }
}

async fn run(kind: Kind, ops: Vec<(Op, bool)>) {
    let mut run = Run::new(kind).await;
    for (op, lost) in ops {
        // Closes the connection: a silent loss would take time, in which leases end.
        if lost {
            tokio::time::sleep(STEADY).await;
            run.world.as_engine().faults().lose_replies("EVALSHA", 1);
        }
        run.step(op.clone(), lost).await;
        run.world.as_engine().faults().clear();
        run.compare(&op).await;
    }
    drop(run.model.held);
    run.world.quiet().await;
}

#[test]
fn semaphores_agree_with_a_model_under_random_operations() {
    let cases = ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(cases, |(ops in ops())| {
        for kind in KINDS {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap()
                .block_on(run(kind, ops.clone()));
        }
    });
}
