//! Runs one scenario.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stanchion::embedded::{Engine, Reply};

use crate::simulation::chaos::{Chaos, LATENCY};
use crate::simulation::client::{self, Life, host_name};
use crate::simulation::kinds::INSPECTION;
use crate::simulation::ledger::Ledger;
use crate::simulation::network::{self, SERVER};
use crate::simulation::primitives::Primitive;
use crate::simulation::scenario::Scenario;

/// The time between two deliveries of messages. Timers are finer.
const TICK: Duration = Duration::from_millis(5);

/// A simulation that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) ledger: Arc<Ledger>,
    /// The keys that are left on the server, with their values if they are strings.
    pub(crate) keys: Vec<(String, Option<String>)>,
    pub(crate) commands: u64,
}

/// Simulates one scenario to its end.
pub(crate) fn simulate(scenario: Scenario) -> Finished {
    count_panics();
    let scenario = Arc::new(scenario);
    let ledger = Arc::new(Ledger::default());
    let time = ledger.time.clone();
    let engine = Engine::with_clock(move || time.date());
    let mut sim = turmoil::Builder::new()
        .rng_seed(scenario.seed)
        .tick_duration(TICK)
        .min_message_latency(LATENCY.0)
        .max_message_latency(LATENCY.1)
        .tcp_capacity(4_096)
        .build();
    {
        let (engine, mutation) = (engine.clone(), scenario.mutation);
        sim.host(SERVER, move || network::serve(engine.clone(), mutation));
    }
    let lives: Vec<_> = (0..scenario.clients)
        .map(|_| Arc::new(AtomicU32::new(0)))
        .collect();
    for (host, life) in (0..).zip(&lives) {
        let (ledger, scenario, life) =
            (Arc::clone(&ledger), Arc::clone(&scenario), Arc::clone(life));
        sim.host(host_name(host), move || {
            let life = Life {
                host,
                number: life.load(Ordering::Relaxed),
            };
            client::run(Arc::clone(&ledger), Arc::clone(&scenario), life)
        });
    }
    let mut chaos = Chaos::new(&ledger, engine.clone(), &scenario, lives);
    let mut next_inspection = INSPECTION;
    while sim.elapsed() < scenario.length {
        ledger.time.step_to(sim.elapsed());
        ledger
            .ending
            .store(sim.elapsed() >= scenario.busy_for, Ordering::Relaxed);
        chaos.tick(&mut sim);
        if let Err(error) = sim.step() {
            ledger.complain(format!("a host failed: {error}"));
            break;
        }
        if let Some(inspect) = scenario.workload.inspect
            && sim.elapsed() >= next_inspection
        {
            ledger.time.step_to(sim.elapsed());
            inspect(&engine, &scenario, &ledger);
            next_inspection += INSPECTION;
        }
    }
    ledger.time.step_to(sim.elapsed());
    let done = ledger.done.load(Ordering::Relaxed);
    if done < scenario.clients {
        ledger.complain(format!(
            "P9: only {done} of {} clients ended",
            scenario.clients
        ));
    }
    let panics = PANICS.replace(0);
    if panics > 0 {
        ledger.complain(format!("{panics} panics, see the output"));
    }
    if let Primitive::LeasedSemaphore(_) = scenario.primitive {
        reap_ended_leases(&engine, scenario.names);
    }
    let keys = engine
        .keys()
        .iter()
        .map(|key| {
            let key = String::from_utf8_lossy(key).into_owned();
            let value = match engine.execute(&["GET", &key]) {
                Reply::Bulk(text) => String::from_utf8(text).ok(),
                _ => None,
            };
            (key, value)
        })
        .collect();
    let stats = engine.stats();
    Finished {
        commands: stats.count("EVALSHA") + stats.count("EVAL"),
        scenario,
        ledger,
        keys,
    }
}

/// Removes the expired leases of killed processes, as the next request without a free permit would.
fn reap_ended_leases(engine: &Engine, names: &[&str]) {
    let Reply::Array(now) = engine.execute(&["TIME"]) else {
        unreachable!("TIME answers with an array");
    };
    let Some(Reply::Bulk(seconds)) = now.first() else {
        unreachable!("TIME answers with texts");
    };
    let now = format!("{}000", String::from_utf8_lossy(seconds));
    for name in names {
        let leases = format!("{{{name}}}:timeout");
        if let Reply::Int(ended) = engine.execute(&["ZREMRANGEBYSCORE", &leases, "-inf", &now]) {
            engine.execute(&["INCRBY", name, &ended.to_string()]);
        }
    }
}

thread_local! {
    /// The number of panics on this thread. Tokio catches panics of tasks, and a simulation runs on one thread.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
    PANICS.set(0);
}
