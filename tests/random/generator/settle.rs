//! The end of every program: all faults end, all guards are dropped, and nothing may be left on the servers.

use std::time::Duration;

use crate::generator::keys;
use crate::generator::program::{Step, Verb};
use crate::generator::resource::{Family, Resource};
use crate::generator::run::Runner;
use crate::generator::state::{Op, OpKind, State};

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) async fn settle(runner: &mut Runner) {
    runner.shared.lock().log("-- settling");
    runner.clear_faults();
    // Lost holds, wrong counts and stuck waiters show after some time without faults.
    let needs_time = {
        let state = runner.shared.lock();
        let waits = |op: &Op| op.kind == OpKind::Wait && !op.parked;
        let had_faults = state
            .fault_states
            .iter()
            .any(|fault_state| fault_state.last > state.began);
        had_faults && !state.held.is_empty() || state.ops.values().any(waits)
    };
    let before = scripts(runner);
    runner.pass(seconds(if needs_time { 12 } else { 2 })).await;
    if needs_time && runner.tasks.is_empty() && runner.observer_tasks.is_empty() {
        spins(runner, scripts(runner) - before);
    }
    // Calls that fail in a deadlock need time to detect it.
    let gives_up = |op: &Op| op.kind == OpKind::Wait && op.opts.fails && !op.parked;
    let may_deadlock = runner.shared.lock().ops.values().any(gives_up);
    runner
        .pass(seconds(if may_deadlock { 48 } else { 0 }))
        .await;
    runner.shared.lock().stopping = true;
    let owners = std::mem::take(&mut runner.shared.lock().owners);
    drop(owners);
    // Guards are dropped. Waiting calls go on, and kept futures stay as they are.
    for slot in runner.slots.numbers() {
        if runner.slots.guard(slot).is_some() {
            runner.step(&Step::Use(slot, Verb::Discard)).await;
        }
    }
    drain(runner, seconds(30)).await;
    // No waiter may stay behind a future that is not polled.
    for slot in runner.slots.numbers() {
        if runner.slots.is_parked(slot) {
            runner.empty(slot);
        }
    }
    drain(runner, seconds(20)).await;
    for slot in runner.slots.numbers() {
        runner.empty(slot);
    }
    // Ends workers that wait for something that does not happen. Tasks that watch for losses go on.
    for (client, task) in &runner.tasks {
        if *client != u8::MAX {
            task.abort();
        }
    }
    runner.pass(seconds(10)).await;
    if !runner.is_over() {
        check_no_requests(runner).await;
    }
    if !runner.is_over() {
        check_nothing_is_left(runner).await;
    }
}

/// The number of scripts that have run.
fn scripts(runner: &Runner) -> u64 {
    let state = runner.shared.lock();
    let stats = state.engines.iter().map(stanchion::embedded::Engine::stats);
    stats.map(|it| it.count("EVALSHA") + it.count("EVAL")).sum()
}

/// P11: in 12 s without other events, holders only renew and waiters only poll.
fn spins(runner: &Runner, ran: u64) {
    let mut state = runner.shared.lock();
    let there = state.ops.len() + state.held.len() + 2 * state.processes.len();
    // A polling client slows down to 16 requests a second; a lease of 600 ms is renewed five times a second.
    if ran > 12 * 24 * u64::try_from(there).unwrap_or(u64::MAX) {
        let text =
            format!("P11: {ran} scripts ran in 12 s for {there} calls, guards and processes");
        state.report("Spins", text);
    }
}

/// Lets the waiters acquire one after the other, as long as one of them makes progress.
async fn drain(runner: &mut Runner, at_most: Duration) {
    let began = tokio::time::Instant::now();
    let mut stuck = Duration::ZERO;
    while began.elapsed() < at_most + stuck && !runner.is_over() {
        let waits = {
            let state = runner.shared.lock();
            let at_barrier = |op: &Op| op.uses.iter().any(|it| it.resource.family.is_barrier());
            // The missing parties of a barrier may never come.
            let alone = |op: &Op| at_barrier(op) && began.elapsed() > seconds(10);
            let waiting = |op: &Op| op.kind == OpKind::Wait && !op.parked && !alone(op);
            state.ops.values().any(waiting) || state.held.values().any(|held| !held.forgotten)
        };
        if !waits {
            return;
        }
        runner.pass(Duration::from_millis(100)).await;
        for slot in runner.slots.numbers() {
            if runner.slots.guard(slot).is_some() {
                runner.empty(slot);
                stuck = began.elapsed();
            }
        }
        if began.elapsed() > seconds(120) {
            return;
        }
    }
}

/// Judges that no requests are sent without a holder or waiter. Observers and forgotten guards are exceptions.
async fn check_no_requests(runner: &mut Runner) {
    // In this time detached holds, holds of dead processes and rests end, and observers poll again.
    let has_observers = !runner.shared.lock().tracking.observers.is_empty();
    if has_observers {
        runner.pass(seconds(20)).await;
        crate::generator::judge::terms::at_the_end(&mut runner.shared.lock());
        for (_, task) in &runner.observer_tasks {
            task.abort();
        }
        return;
    }
    let busy = {
        let state = runner.shared.lock();
        let fault_free = (0..state.engines.len()).all(|server| {
            let server = u8::try_from(server).unwrap_or(u8::MAX);
            state.fault_free_server(server) > seconds(20)
        });
        !fault_free || !state.held.is_empty() || !state.ops.is_empty() || state.left
    };
    if busy {
        return;
    }
    // The records of the holds and waits of clients end within this time.
    runner.pass(seconds(20)).await;
    let before = scripts(runner);
    runner.pass(seconds(15)).await;
    let more = scripts(runner) - before;
    if more > 0 {
        let text = format!("{more} scripts ran in 15 s without a hold or a waiter");
        runner.shared.lock().report("Restless", text);
    }
}

/// Judges that only documented keys, and no connections, are left when all clients have ended and all leases are over.
async fn check_nothing_is_left(runner: &mut Runner) {
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
        state.records.values().map(|record| record.lease).max()
    };
    let leases = longest.unwrap_or_default();
    {
        let state = runner.shared.lock();
        for resource in state.records.keys() {
            crate::generator::java::unlock(
                &state.engines[usize::from(resource.server)],
                resource.name,
            );
        }
    }
    let stepped = runner
        .shared
        .lock()
        .fault_states
        .iter()
        .any(|fault_state| fault_state.stepped);
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
        let text = format!("P3: all clients have ended, and the servers have {left:?}");
        state.report("LeftBehind", text);
    }
    if connections > 0 && !forgotten {
        let text = format!("all clients have ended, and {connections} connections are open");
        state.report("Lingers", text);
    }
}

/// Returns whether a key may stay. The reasons are in `docs/protocol.md`.
fn is_documented(state: &State, server: usize, database: u8, line: &str) -> bool {
    let key = line.split(" = ").next().unwrap_or_default();
    let documented = [
        "stanchion_fence:",
        "stanchion_origin:",
        "redisson_lock_token:",
        "stanchion_latch_deleted:",
        "stanchion_semaphore_total",
        // Keys of clients that ended without a shutdown. They expire, too.
        "stanchion_client",
    ];
    if documented.iter().any(|prefix| key.starts_with(prefix)) {
        return true;
    }
    // These keys must expire.
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
        .records
        .keys()
        .filter(|resource| resource.family == Family::Rate);
    let mut limiters = limiters.flat_map(|resource| {
        let [value, log] = keys::limiter_keys(resource.name);
        [resource.name.to_owned(), value, log]
    });
    if ends && limiters.any(|one| one == key) {
        return true;
    }
    if ends && is_of_a_barrier(state, key) {
        return true;
    }
    let some_died = state.deaths || state.left;
    // Only a release of the lock removes what is known of its queue. The end of a term does not count as one.
    let led = |resource: &&Resource| key.ends_with(&keys::key_for("", resource.name));
    let unreleased = some_died || state.campaigns.iter().any(|resource| led(&resource));
    if unreleased && ends && key.starts_with("stanchion_wake") {
        return true;
    }
    // The entries of dead processes end with their queue.
    let queues = [
        "stanchion_",
        "stanchion_rwlock_",
        "stanchion_semaphore_",
        "stanchion_leased_",
    ];
    let of_queue = |kind: &&str| {
        let rest = key.strip_prefix(*kind).unwrap_or_default();
        rest.starts_with("line") || rest.starts_with("wake")
    };
    if some_died && ends && queues.iter().any(of_queue) {
        return true;
    }
    // Fair queues of dead waiters stay until the next waiter comes. The permits of dead processes stay, too.
    let of_dead_processes = [
        "redisson_lock_queue:",
        "redisson_lock_timeout:",
        "stanchion_fair_waiters:",
        "stanchion_permits",
    ];
    if some_died
        && of_dead_processes
            .iter()
            .any(|prefix| key.starts_with(prefix))
    {
        return true;
    }
    // A latch with an idle expiry must expire.
    let idle = keys::key_for("stanchion_latch_idle", key);
    let engine = &state.engines[server];
    let ends_unused = !state.tracking.armed && keys::all(engine, database).contains(&idle);
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
    state.records.iter().any(|(resource, record)| {
        usize::from(resource.server) == server
            && resource.database == database
            && (numbers.contains(&resource.family) && resource.name == key
                || resource.family == Family::Leased && keys::leases_of(resource.name) == key
                || resource.family == Family::Permits
                    && keys::ledger_of(resource.name) == key
                    && (record.forgotten || record.total.is_none()))
    })
}

/// A barrier stays for an hour, with places that have ended. The replies to arrivals stay for two minutes.
fn is_of_a_barrier(state: &State, key: &str) -> bool {
    let resources = state.records.keys();
    let mut resources = resources.filter(|resource| resource.family.is_barrier());
    resources.any(|resource| {
        keys::barrier_keys(*resource).contains(&key.to_owned())
            || key.starts_with(&keys::key_for("stanchion_once", resource.name))
    })
}
