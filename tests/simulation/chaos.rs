//! The faults of one simulation: what, when and for how long, all from the seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stanchion::embedded::{Data, Engine, Switch};
use turmoil::Sim;

use crate::client::{Life, host_name};
use crate::ledger::Ledger;
use crate::network::SERVER;
use crate::scenario::{Scenario, Weather};

/// A storm is followed by a calm, in which everything must be prompt again.
const STORM: Duration = Duration::from_secs(65);
const CALM: Duration = Duration::from_secs(35);

/// After a storm, this long is left to reconnect and for leftovers to end.
const SETTLE: Duration = Duration::from_secs(12);

/// The latency of links in calm weather.
pub(crate) const LATENCY: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(20));

/// Something that is to be undone.
#[derive(Clone, Copy, Debug)]
enum Cure {
    Repair(u32),
    Deliver(u32),
    Speed(u32),
    Bounce(u32),
    BounceServer,
    Accept,
}

/// Makes things go wrong, and right again.
#[derive(Debug)]
pub(crate) struct Chaos {
    ledger: Arc<Ledger>,
    engine: Engine,
    scenario: Arc<Scenario>,
    rng: fastrand::Rng,
    next: Duration,
    /// The present faults, with their ends.
    broken: Vec<(Duration, Cure)>,
    /// The starts of each client host, counted; its software reads it.
    lives: Vec<Arc<AtomicU32>>,
}

impl Chaos {
    pub(crate) fn new(
        ledger: &Arc<Ledger>,
        engine: Engine,
        scenario: &Arc<Scenario>,
        lives: Vec<Arc<AtomicU32>>,
    ) -> Self {
        let rng = fastrand::Rng::with_seed(scenario.seed.wrapping_mul(0x9e37_79b9) ^ 0xc4a05);
        let chaos = Self {
            ledger: Arc::clone(ledger),
            engine,
            scenario: Arc::clone(scenario),
            rng,
            next: Duration::from_secs(8),
            broken: Vec::new(),
            lives,
        };
        chaos.note_calms();
        chaos
    }

    fn note_calms(&self) {
        use crate::time::Time;
        let mut notes = self.ledger.notes();
        if self.scenario.weather == Weather::Fair {
            notes
                .calms
                .push((Time::at(SETTLE), Time::at(self.scenario.busy_for)));
            return;
        }
        let mut begin = STORM;
        while begin + CALM <= self.scenario.busy_for {
            notes
                .calms
                .push((Time::at(begin + SETTLE), Time::at(begin + CALM)));
            begin += STORM + CALM;
        }
    }

    fn is_calm(&self, elapsed: Duration) -> bool {
        let in_turn = elapsed.as_millis() % (STORM + CALM).as_millis();
        self.scenario.weather == Weather::Fair
            || in_turn >= STORM.as_millis()
            || elapsed >= self.scenario.busy_for
    }

    /// Called between the steps of the simulation.
    pub(crate) fn tick(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        let calm = self.is_calm(now);
        let mut due = Vec::new();
        self.broken.retain(|(until, cure)| {
            let over = calm || *until <= now;
            if over {
                due.push(*cure);
            }
            !over
        });
        for cure in due {
            self.cure(sim, cure);
        }
        if calm {
            if self.next <= now {
                self.engine.faults().clear();
                self.engine.execute(&["CLIENT", "UNPAUSE"]);
                self.next = now + Duration::from_secs(1);
            }
        } else if self.next <= now {
            self.next = now + self.millis(200, 3_500);
            self.strike(sim, now);
        }
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.rng.u64(from..=to))
    }

    fn link_is_whole(&self, host: u32) -> bool {
        !self.broken.iter().any(|(_, cure)| match cure {
            Cure::Repair(h) | Cure::Deliver(h) | Cure::Speed(h) | Cure::Bounce(h) => *h == host,
            Cure::BounceServer | Cure::Accept => false,
        })
    }

    fn server_is_up(&self) -> bool {
        !self
            .broken
            .iter()
            .any(|(_, cure)| matches!(cure, Cure::BounceServer))
    }

    fn strike(&mut self, sim: &mut Sim<'_>, now: Duration) {
        let host = self.rng.u32(..self.scenario.clients);
        let name = host_name(host);
        if self.rng.bool() {
            if self.link_is_whole(host) {
                self.strike_client(sim, now, host, &name);
            }
        } else if self.server_is_up() && self.scenario.weather != Weather::Sluggish {
            self.strike_server(sim, now);
        }
    }

    fn strike_client(&mut self, sim: &mut Sim<'_>, now: Duration, host: u32, name: &str) {
        let kinds = if self.scenario.weather == Weather::Sluggish {
            3..11
        } else {
            0..13
        };
        let (what, length, cure) = match self.rng.u8(kinds) {
            0 => {
                sim.partition(name, SERVER);
                ("partition", self.millis(50, 6_000), Cure::Repair(host))
            }
            1 => {
                sim.partition_oneway(name, SERVER);
                ("requests lost", self.millis(50, 4_000), Cure::Repair(host))
            }
            2 => {
                sim.partition_oneway(SERVER, name);
                ("replies lost", self.millis(50, 4_000), Cure::Repair(host))
            }
            3..6 => {
                sim.hold(name, SERVER);
                (
                    "delivered late",
                    self.millis(20, 4_000),
                    Cure::Deliver(host),
                )
            }
            6..11 => {
                let latency = self.millis(30, 400);
                sim.set_link_latency(name, SERVER, latency);
                ("slow", self.millis(500, 8_000), Cure::Speed(host))
            }
            11 => {
                // What was sent arrives, and the good-byes of the system: all at once, because a latency of its own for
                // each would depend on the order in which the runtime drops its tasks.
                sim.hold(name, SERVER);
                self.crash(sim, host, name);
                sim.release(name, SERVER);
                ("killed", self.millis(50, 8_000), Cure::Bounce(host))
            }
            _ => {
                // Without power nothing says good-bye.
                sim.partition(name, SERVER);
                self.crash(sim, host, name);
                sim.repair(name, SERVER);
                ("power lost", self.millis(50, 8_000), Cure::Bounce(host))
            }
        };
        self.ledger.fault(format!("{name}: {what} for {length:?}"));
        self.broken.push((now + length, cure));
    }

    fn crash(&self, sim: &mut Sim<'_>, host: u32, name: &str) {
        let number = self.lives[host as usize].load(Ordering::Relaxed);
        let process = Life { host, number }.process();
        sim.crash(name);
        self.ledger
            .notes()
            .killed
            .push((process, self.ledger.time.now()));
        self.ledger.count("clients killed");
    }

    fn strike_server(&mut self, sim: &mut Sim<'_>, now: Duration) {
        let faults = self.engine.faults();
        let n = self.rng.usize(1..=3);
        let what = match self.rng.u8(..14) {
            0 => {
                sim.crash(SERVER);
                let lose = self.scenario.weather == Weather::Forgetful && self.rng.bool();
                faults.restart(if lose { Data::Lost } else { Data::Kept });
                if lose {
                    self.ledger.notes().losses.push(self.ledger.time.now());
                    self.ledger.count("data losses");
                }
                let length = self.millis(50, 4_000);
                self.broken.push((now + length, Cure::BounceServer));
                format!(
                    "restarts in {length:?}, data {}",
                    if lose { "lost" } else { "kept" }
                )
            }
            1 | 2 => {
                faults.kill_subscribers();
                "subscribers cut".to_owned()
            }
            3 => {
                faults.kill_connections();
                "all connections cut".to_owned()
            }
            4 => {
                faults.flush_scripts();
                "scripts flushed".to_owned()
            }
            5 | 6 => {
                faults.lose_replies("EVALSHA", n);
                format!("{n} replies lost with their connections")
            }
            7 | 8 => {
                faults.lose_replies_silently("EVALSHA", n);
                format!("{n} replies lost silently")
            }
            9 | 10 => {
                faults.lose_messages(n);
                format!("{n} messages lost")
            }
            11 => {
                let error = [
                    "LOADING Redis is loading the dataset in memory",
                    "READONLY You can't write",
                    "BUSY Redis is busy",
                ];
                let error = error[self.rng.usize(..error.len())];
                faults.fail_next("EVALSHA", error, n * 3);
                format!("{} calls refused: {error}", n * 3)
            }
            12 => {
                let pause = self.millis(50, 2_500);
                self.engine
                    .execute(&["CLIENT", "PAUSE", &pause.as_millis().to_string(), "ALL"]);
                format!("paused for {pause:?}")
            }
            _ => {
                faults.refuse_connections(Switch::On);
                let length = self.millis(100, 3_000);
                self.broken.push((now + length, Cure::Accept));
                format!("refuses connections for {length:?}")
            }
        };
        self.ledger.fault(format!("{SERVER}: {what}"));
    }

    fn cure(&self, sim: &mut Sim<'_>, cure: Cure) {
        match cure {
            Cure::Repair(host) => sim.repair(host_name(host), SERVER),
            Cure::Deliver(host) => sim.release(host_name(host), SERVER),
            Cure::Speed(host) => {
                sim.set_link_latency(host_name(host), SERVER, LATENCY.0);
                sim.set_link_max_message_latency(host_name(host), SERVER, LATENCY.1);
            }
            Cure::Bounce(host) => {
                self.lives[host as usize].fetch_add(1, Ordering::Relaxed);
                sim.bounce(host_name(host));
            }
            Cure::BounceServer => sim.bounce(SERVER),
            Cure::Accept => self.engine.faults().refuse_connections(Switch::Off),
        }
        self.ledger.fault(format!("{cure:?}"));
    }
}
