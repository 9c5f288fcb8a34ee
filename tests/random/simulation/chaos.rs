//! Injects the faults of one simulation. The seed determines their kinds, times and lengths.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stanchion::embedded::{Data, Engine, Switch};
use turmoil::Sim;

use crate::simulation::client::{Life, host_name};
use crate::simulation::ledger::Ledger;
use crate::simulation::network::SERVER;
use crate::simulation::scenario::{FaultMode, Scenario};

/// Phases with faults alternate with calm phases, in which every call must be prompt again.
const FAULT_PHASE: Duration = Duration::from_secs(65);
const CALM_PHASE: Duration = Duration::from_secs(35);

/// The time after a phase with faults in which clients reconnect and leftover holds end.
const SETTLE: Duration = Duration::from_secs(12);

/// The latency of links without faults.
pub(crate) const LATENCY: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(20));

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
enum Undo {
    Repair(u32),
    Deliver(u32),
    Speed(u32),
    Bounce(u32),
    BounceServer,
    Accept,
}

/// Injects faults and ends them.
#[derive(Debug)]
pub(crate) struct Chaos {
    ledger: Arc<Ledger>,
    engine: Engine,
    scenario: Arc<Scenario>,
    rng: fastrand::Rng,
    next: Duration,
    /// The faults in effect, with the times of their ends.
    broken: Vec<(Duration, Undo)>,
    /// The number of restarts of each client host. The host reads its number when it starts.
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
        use crate::simulation::time::Time;
        let mut notes = self.ledger.notes();
        if self.scenario.fault_mode == FaultMode::Off {
            notes
                .calms
                .push((Time::at(SETTLE), Time::at(self.scenario.busy_for)));
            return;
        }
        let mut begin = FAULT_PHASE;
        while begin + CALM_PHASE <= self.scenario.busy_for {
            notes
                .calms
                .push((Time::at(begin + SETTLE), Time::at(begin + CALM_PHASE)));
            begin += FAULT_PHASE + CALM_PHASE;
        }
    }

    fn is_calm(&self, elapsed: Duration) -> bool {
        let in_turn = elapsed.as_millis() % (FAULT_PHASE + CALM_PHASE).as_millis();
        self.scenario.fault_mode == FaultMode::Off
            || in_turn >= FAULT_PHASE.as_millis()
            || elapsed >= self.scenario.busy_for
    }

    /// Called between the steps of the simulation.
    pub(crate) fn tick(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        let calm = self.is_calm(now);
        let mut due = Vec::new();
        self.broken.retain(|(until, undo)| {
            let over = calm || *until <= now;
            if over {
                due.push(*undo);
            }
            !over
        });
        for undo in due {
            self.undo(sim, undo);
        }
        if calm {
            if self.next <= now {
                self.engine.faults().clear();
                self.engine.execute(&["CLIENT", "UNPAUSE"]);
                self.next = now + Duration::from_secs(1);
            }
        } else if self.next <= now {
            self.next = now + self.millis(200, 3_500);
            self.inject_fault(sim, now);
        }
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.rng.u64(from..=to))
    }

    fn link_is_whole(&self, host: u32) -> bool {
        !self.broken.iter().any(|(_, undo)| match undo {
            Undo::Repair(h) | Undo::Deliver(h) | Undo::Speed(h) | Undo::Bounce(h) => *h == host,
            Undo::BounceServer | Undo::Accept => false,
        })
    }

    fn server_is_up(&self) -> bool {
        !self
            .broken
            .iter()
            .any(|(_, undo)| matches!(undo, Undo::BounceServer))
    }

    fn inject_fault(&mut self, sim: &mut Sim<'_>, now: Duration) {
        let host = self.rng.u32(..self.scenario.clients);
        let name = host_name(host);
        if self.rng.bool() {
            if self.link_is_whole(host) {
                self.inject_client_fault(sim, now, host, &name);
            }
        } else if self.server_is_up() && self.scenario.fault_mode != FaultMode::SlowLinks {
            self.inject_server_fault(sim, now);
        }
    }

    fn inject_client_fault(&mut self, sim: &mut Sim<'_>, now: Duration, host: u32, name: &str) {
        let kinds = if self.scenario.fault_mode == FaultMode::SlowLinks {
            3..11
        } else {
            0..13
        };
        let (what, length, undo) = match self.rng.u8(kinds) {
            0 => {
                sim.partition(name, SERVER);
                ("partition", self.millis(50, 6_000), Undo::Repair(host))
            }
            1 => {
                sim.partition_oneway(name, SERVER);
                ("requests lost", self.millis(50, 4_000), Undo::Repair(host))
            }
            2 => {
                sim.partition_oneway(SERVER, name);
                ("replies lost", self.millis(50, 4_000), Undo::Repair(host))
            }
            3..6 => {
                sim.hold(name, SERVER);
                (
                    "delivered late",
                    self.millis(20, 4_000),
                    Undo::Deliver(host),
                )
            }
            6..11 => {
                let latency = self.millis(30, 400);
                sim.set_link_latency(name, SERVER, latency);
                ("slow", self.millis(500, 8_000), Undo::Speed(host))
            }
            11 => {
                // Messages that were sent still arrive, and so do the operating system's FINs. They arrive at the same time, because
                // separate latencies would depend on the order in which the runtime drops its tasks.
                sim.hold(name, SERVER);
                self.crash(sim, host, name);
                sim.release(name, SERVER);
                ("killed", self.millis(50, 8_000), Undo::Bounce(host))
            }
            _ => {
                // After a loss of power no FIN is sent.
                sim.partition(name, SERVER);
                self.crash(sim, host, name);
                sim.repair(name, SERVER);
                ("power lost", self.millis(50, 8_000), Undo::Bounce(host))
            }
        };
        self.ledger.fault(format!("{name}: {what} for {length:?}"));
        self.broken.push((now + length, undo));
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

    fn inject_server_fault(&mut self, sim: &mut Sim<'_>, now: Duration) {
        let faults = self.engine.faults();
        let n = self.rng.usize(1..=3);
        let what = match self.rng.u8(..14) {
            0 => {
                sim.crash(SERVER);
                let lose =
                    self.scenario.fault_mode == FaultMode::AllWithDataLoss && self.rng.bool();
                faults.restart(if lose { Data::Lost } else { Data::Kept });
                if lose {
                    self.ledger.notes().losses.push(self.ledger.time.now());
                    self.ledger.count("data losses");
                }
                let length = self.millis(50, 4_000);
                self.broken.push((now + length, Undo::BounceServer));
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
                self.broken.push((now + length, Undo::Accept));
                format!("refuses connections for {length:?}")
            }
        };
        self.ledger.fault(format!("{SERVER}: {what}"));
    }

    fn undo(&self, sim: &mut Sim<'_>, undo: Undo) {
        match undo {
            Undo::Repair(host) => sim.repair(host_name(host), SERVER),
            Undo::Deliver(host) => sim.release(host_name(host), SERVER),
            Undo::Speed(host) => {
                sim.set_link_latency(host_name(host), SERVER, LATENCY.0);
                sim.set_link_max_message_latency(host_name(host), SERVER, LATENCY.1);
            }
            Undo::Bounce(host) => {
                self.lives[host as usize].fetch_add(1, Ordering::Relaxed);
                sim.bounce(host_name(host));
            }
            Undo::BounceServer => sim.bounce(SERVER),
            Undo::Accept => self.engine.faults().refuse_connections(Switch::Off),
        }
        self.ledger.fault(format!("{undo:?}"));
    }
}
