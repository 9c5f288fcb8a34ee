//! The end of every program: calm weather, everybody lets go, and nothing may be left.

use std::time::Duration;

use crate::keys;
use crate::program::Verb;
use crate::run::Runner;
use crate::spot::Family;
use crate::state::OpKind;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) async fn settle(runner: &mut Runner) {
    runner.shared.lock().tell("-- settling");
    runner.calm();
    // As everybody stands: what is lost, miscounted or asleep shows when the weather has been calm for a while.
    let restless = {
        let state = runner.shared.lock();
        let waits = |op: &crate::state::Op| op.kind == OpKind::Wait && !op.parked;
        let stirred = state.skies.iter().any(|sky| sky.last > state.began);
        stirred && !state.held.is_empty() || state.ops.values().any(waits)
    };
    let before = scripts(runner);
    runner.pass(seconds(if restless { 12 } else { 2 })).await;
    if restless && runner.tasks.is_empty() && runner.lookers.is_empty() {
        spins(runner, scripts(runner) - before);
    }
    // Who would give up in a deadlock has the time to.
    let gives_up = |op: &crate::state::Op| op.kind == OpKind::Wait && op.ask.fails && !op.parked;
    let entangled = runner.shared.lock().ops.values().any(gives_up);
    runner.pass(seconds(if entangled { 48 } else { 0 })).await;
    runner.shared.lock().stopping = true;
    let owners = std::mem::take(&mut runner.shared.lock().owners);
    drop(owners);
    // What is held goes; what waits is polled, and what nobody polls stays as it is.
    for hand in runner.hands.numbers() {
        if runner.hands.guard(hand).is_some() {
            runner
                .step(&crate::program::Step::Use(hand, Verb::Let))
                .await;
        }
    }
    drain(runner, seconds(30)).await;
    // Nobody is left behind a future that is not polled.
    for hand in runner.hands.numbers() {
        if runner.hands.is_left(hand) {
            runner.empty(hand);
        }
    }
    drain(runner, seconds(20)).await;
    for hand in runner.hands.numbers() {
        runner.empty(hand);
    }
    // Workers that wait for what never comes; those who watch for losses go on.
    for (client, task) in &runner.tasks {
        if *client != u8::MAX {
            task.abort();
        }
    }
    runner.pass(seconds(10)).await;
    if !runner.is_over() {
        nobody_asks(runner).await;
    }
    if !runner.is_over() {
        at_rest(runner).await;
    }
}

/// The number of scripts that have run.
fn scripts(runner: &Runner) -> u64 {
    let state = runner.shared.lock();
    let stats = state.engines.iter().map(stanchion::embedded::Engine::stats);
    stats.map(|it| it.count("EVALSHA") + it.count("EVAL")).sum()
}

/// P11: who holds renews, and who waits looks now and then, in the 12 s in which nothing else happened.
fn spins(runner: &Runner, ran: u64) {
    let mut state = runner.shared.lock();
    let there = state.ops.len() + state.held.len() + 2 * state.processes.len();
    // Who polls asks sixteen times a second, at last; a lease of 600 ms is renewed five times a second.
    if ran > 12 * 24 * u64::try_from(there).unwrap_or(u64::MAX) {
        let text =
            format!("P11: {ran} scripts ran in 12 s for {there} calls, guards and processes");
        state.report("Spins", text);
    }
}

/// Those who wait get what they wait for, one after the other, for as long as anybody gets anything.
async fn drain(runner: &mut Runner, at_most: Duration) {
    let began = tokio::time::Instant::now();
    let mut stuck = Duration::ZERO;
    while began.elapsed() < at_most + stuck && !runner.is_over() {
        let waits = {
            let state = runner.shared.lock();
            let meets =
                |op: &crate::state::Op| op.uses.iter().any(|it| it.spot.family.is_barrier());
            // Others than those who are here may never come.
            let alone = |op: &crate::state::Op| meets(op) && began.elapsed() > seconds(10);
            let waiting =
                |op: &crate::state::Op| op.kind == OpKind::Wait && !op.parked && !alone(op);
            state.ops.values().any(waiting) || state.held.values().any(|held| !held.forgotten)
        };
        if !waits {
            return;
        }
        runner.pass(Duration::from_millis(100)).await;
        for hand in runner.hands.numbers() {
            if runner.hands.guard(hand).is_some() {
                runner.empty(hand);
                stuck = began.elapsed();
            }
        }
        if began.elapsed() > seconds(120) {
            return;
        }
    }
}

/// Nobody holds and nobody waits: nothing is sent, but by those who look on and for guards that were forgotten.
async fn nobody_asks(runner: &mut Runner) {
    // What tickets, the dead and rests keep ends; those who look on have looked again.
    let looked_on = !runner.shared.lock().books.lookouts.is_empty();
    if looked_on {
        runner.pass(seconds(20)).await;
        crate::judge::terms::at_the_end(&mut runner.shared.lock());
        for (_, task) in &runner.lookers {
            task.abort();
        }
        return;
    }
    let busy = {
        let state = runner.shared.lock();
        let calm = (0..state.engines.len()).all(|server| {
            let server = u8::try_from(server).unwrap_or(u8::MAX);
            state.calm_over(server) > seconds(20)
        });
        !calm || !state.held.is_empty() || !state.ops.is_empty() || state.left
    };
    if busy {
        return;
    }
    // The records of what clients hold and wait for end within this.
    runner.pass(seconds(20)).await;
    let before = scripts(runner);
    runner.pass(seconds(15)).await;
    let more = scripts(runner) - before;
    if more > 0 {
        let text = format!("{more} scripts ran in 15 s in which nobody held or waited");
        runner.shared.lock().report("Restless", text);
    }
}

/// Clients go, leases end; then only documented keys are left, and no connection.
async fn at_rest(runner: &mut Runner) {
    let clients: Vec<_> = {
        let mut state = runner.shared.lock();
        state
            .processes
            .iter_mut()
            .filter_map(|process| process.client.take())
            .collect()
    };
    let forgotten = {
        let state = runner.shared.lock();
        state.held.values().any(|held| held.forgotten)
    };
    for client in &clients {
        if forgotten {
            // Forgotten guards are renewed for as long as their client lives.
            client.shutdown(seconds(1)).await;
        }
    }
    drop(clients);
    let longest = {
        let state = runner.shared.lock();
        state.places.values().map(|place| place.lease).max()
    };
    let leases = longest.unwrap_or_default();
    {
        let state = runner.shared.lock();
        for spot in state.places.keys() {
            crate::java::unlock(&state.engines[usize::from(spot.server)], spot.name);
        }
    }
    let stepped = runner.shared.lock().skies.iter().any(|sky| sky.stepped);
    let more = if stepped { seconds(25) } else { Duration::ZERO };
    tokio::time::sleep(leases + seconds(13) + more).await;
    let mut state = runner.shared.lock();
    let mut left = Vec::new();
    for (server, engine) in state.engines.iter().enumerate() {
        for database in 0..2 {
            let lines = keys::dump(engine, database);
            left.extend(
                lines
                    .into_iter()
                    .filter(|line| !is_documented(&state, server, database, line)),
            );
        }
    }
    let connections: usize = state
        .engines
        .iter()
        .map(|engine| engine.stats().connections)
        .sum();
    if !left.is_empty() && !forgotten {
        let text = format!("P3: everybody has gone, and the servers have {left:?}");
        state.report("LeftBehind", text);
    }
    if connections > 0 && !forgotten {
        let text = format!("everybody has gone, and {connections} connections are open");
        state.report("Lingers", text);
    }
}

/// The keys that may stay; for the reasons see `docs/protocol.md`.
fn is_documented(state: &crate::state::State, server: usize, database: u8, line: &str) -> bool {
    let key = line.split(" = ").next().unwrap_or_default();
    let documented = [
        "stanchion_fence:",
        "stanchion_origin:",
        "redisson_lock_token:",
        "stanchion_latch_deleted:",
        "stanchion_semaphore_total",
        "stanchion_semaphore_slow",
        // Of clients that ended without a shutdown: they end by themselves, too.
        "stanchion_client",
    ];
    if documented.iter().any(|prefix| key.starts_with(prefix)) {
        return true;
    }
    // Each of these ends by itself.
    let ends = !line.ends_with(", -1 ms left");
    let lasting = [
        "stanchion_job_last",
        "stanchion_bucket",
        "stanchion_limiter_",
    ];
    if ends && lasting.iter().any(|prefix| key.starts_with(prefix)) {
        return true;
    }
    let limiters = state
        .places
        .keys()
        .filter(|spot| spot.family == Family::Rate);
    let mut limiters = limiters.flat_map(|spot| {
        let [value, log] = keys::limiter_keys(spot.name);
        [spot.name.to_owned(), value, log]
    });
    if ends && limiters.any(|one| one == key) {
        return true;
    }
    if ends && is_of_a_barrier(state, key) {
        return true;
    }
    let some_died = state.deaths || state.left;
    // Without a release of a lock after them nobody says that the line has ended; the end of a term is none.
    let led = |spot: &&crate::spot::Spot| key.ends_with(&keys::beside("", spot.name));
    let unreleased = some_died || state.campaigns.iter().any(|spot| led(&spot));
    if unreleased && ends && key.starts_with("stanchion_wake") {
        return true;
    }
    // Queues whose waiters all died stay until the next one comes; so do the permits of the dead.
    let of_the_dead = [
        "redisson_lock_queue:",
        "redisson_lock_timeout:",
        "stanchion_fair_waiters:",
        "stanchion_permits",
    ];
    if some_died && of_the_dead.iter().any(|prefix| key.starts_with(prefix)) {
        return true;
    }
    // A latch that ends has an end.
    let idle = keys::beside("stanchion_latch_idle", key);
    let engine = &state.engines[server];
    let ends_unused = !state.books.armed && keys::all(engine, database).contains(&idle);
    if !ends && ends_unused {
        return false;
    }
    if ends && key.starts_with("stanchion_latch_idle") {
        return true;
    }
    // Numbers that another program set.
    if ["s", "p", "l", "m"].contains(&key) {
        return true;
    }
    let numbers = [Family::Permits, Family::Leased, Family::Latch];
    state.places.iter().any(|(spot, place)| {
        usize::from(spot.server) == server
            && spot.database == database
            && (numbers.contains(&spot.family) && spot.name == key
                || spot.family == Family::Leased && keys::leases_of(spot.name) == key
                || spot.family == Family::Permits
                    && keys::ledger_of(spot.name) == key
                    && (place.forgotten || place.total.is_none()))
    })
}

/// A barrier stays for an hour, with places that have ended; the answers to arrivals for two minutes.
fn is_of_a_barrier(state: &crate::state::State, key: &str) -> bool {
    let spots = state.places.keys();
    let mut spots = spots.filter(|spot| spot.family.is_barrier());
    spots.any(|spot| {
        keys::barrier_keys(*spot).contains(&key.to_owned())
            || key.starts_with(&keys::beside("stanchion_once", spot.name))
    })
}
