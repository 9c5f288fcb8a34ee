//! Random histories of waits that time out or are dropped, with frozen clients, lost replies and lost messages, checked by an oracle.
//!
//! The oracle checks:
//! * A party passes a round at most once, and rounds in order.
//! * A complete round has at most n parties. Exactly the one with the arrival n is the last. A missing party is a wait that was dropped or
//!   failed.
//! * No round is both broken and complete.
//! * After the faults, the next round works.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::time::sleep;

use super::*;

/// A task and the result of its wait. `None`: the wait was dropped or failed, and may have been counted.
type Seen = (usize, Option<Result<Passed, (u64, BrokenBy)>>);

struct Plan {
    parties: u32,
    tasks: usize,
    faults: bool,
    options: WaitOptions,
}

async fn play(seed: u64, plan: &Plan) -> (Vec<Seen>, usize) {
    let world = engine();
    let mut random = fastrand::Rng::with_seed(seed);
    let clients = world.fleet(3).await;
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let mut tasks = Vec::new();
    for task in 0..plan.tasks {
        let barrier = of(&clients[task % 3], plan.parties);
        let (seen, mut random) = (Arc::clone(&seen), random.fork());
        let options = plan.options;
        tasks.push(tokio::spawn(async move {
            for _ in 0..30 {
                sleep(ms(random.u64(0..40))).await;
                let patience = ms(random.u64(1..120));
                let end = if random.u8(0..4) == 0 {
                    // The time-out drops the wait.
                    let wait = barrier.wait_with(options);
                    tokio::time::timeout(patience, wait).await.ok()
                } else {
                    Some(barrier.wait_with(options.timeout(patience)).await)
                };
                let end = match end {
                    Some(Ok(passed)) => Some(Ok(passed)),
                    Some(Err(BarrierError::Broken { generation, by, .. })) => {
                        Some(Err((generation, by)))
                    }
                    // P8: without `free_by` the wait is certainly not counted.
                    Some(Err(BarrierError::TimedOut { free_by: None, .. })) => continue,
                    Some(Err(_)) | None => None,
                };
                seen.lock().unwrap().push((task, end));
            }
        }));
    }
    let faults = world.as_engine().faults();
    while plan.faults && tasks.iter().any(|task| !task.is_finished()) {
        sleep(ms(random.u64(10..150))).await;
        let label = format!("p{}", random.u8(0..3));
        match random.u8(0..8) {
            0 => faults.lose_replies("EVALSHA", 1),
            1 => faults.lose_replies_silently("EVALSHA", 1),
            2 => faults.lose_messages(random.usize(1..4)),
            3 => faults.kill_label(&label),
            4 => {
                faults.freeze(Some(&label));
                sleep(ms(random.u64(10..400))).await;
                faults.thaw(Some(&label));
            }
            5 => faults.delay(Some(&label), ms(random.u64(0..30))),
            6 => faults.kill_subscribers(),
            _ => faults.hold_requests("EVALSHA", 1),
        }
        if random.u8(0..3) == 0 {
            faults.deliver();
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    faults.deliver();
    faults.clear();
    // Remaining places are given back, or expire with their leases.
    sleep(LEASE * 3).await;
    the_next_round_works(&world, plan.parties).await;
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (seen, world.keys().len())
}

fn judge(seed: u64, plan: &Plan, seen: &[Seen]) -> usize {
    let unknown = seen.iter().filter(|(_, end)| end.is_none()).count();
    let mut rounds: BTreeMap<u64, Vec<Passed>> = BTreeMap::new();
    let mut broken: BTreeMap<u64, BrokenBy> = BTreeMap::new();
    let mut last: BTreeMap<usize, u64> = BTreeMap::new();
    for (task, end) in seen {
        let round = match end {
            None => continue,
            Some(Ok(passed)) => {
                rounds.entry(passed.generation()).or_default().push(*passed);
                passed.generation()
            }
            Some(Err((round, by))) => {
                let why = broken.entry(*round).or_insert(*by);
                assert_eq!(why, by, "seed {seed}: round {round} broke for two reasons");
                *round
            }
        };
        let before = last.insert(*task, round);
        assert!(
            before.is_none_or(|before| before < round),
            "seed {seed}: {task} is in {round} after {before:?}"
        );
    }
    let mut missing = 0;
    for (round, parties) in &rounds {
        assert!(
            !broken.contains_key(round),
            "seed {seed}: {round} is complete and broken"
        );
        assert!(
            parties.len() <= plan.parties as usize,
            "seed {seed}: {round} has {parties:?}"
        );
        assert!(
            parties.iter().filter(|it| it.is_last()).count() <= 1,
            "seed {seed}: {parties:?}"
        );
        assert!(
            parties
                .iter()
                .all(|it| it.is_last() == (it.arrival() == plan.parties)),
            "seed {seed}: {parties:?}"
        );
        missing += plan.parties as usize - parties.len();
    }
    // A party that is missing in a complete round is a wait that was dropped or failed.
    assert!(
        missing <= unknown,
        "seed {seed}: {missing} of {unknown} are missing"
    );
    rounds.len()
}

fn seeds() -> Vec<u64> {
    match std::env::var("STANCHION_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..25).collect(),
    }
}

async fn histories(plan: Plan) {
    let mut complete = 0;
    for seed in seeds() {
        let (seen, keys) = play(seed, &plan).await;
        complete += judge(seed, &plan, &seen);
        // The barrier, its places, and at most one kept answer for each wait.
        assert!(keys <= 2 + 30 * plan.tasks, "seed {seed}: {keys} keys");
    }
    assert!(complete > 0);
}

#[tokio::test(start_paused = true)]
async fn random_waits_without_faults_satisfy_the_oracle() {
    for options in [WaitOptions::new(), breaking()] {
        histories(Plan {
            parties: 3,
            tasks: 5,
            faults: false,
            options,
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn random_waits_with_faults_satisfy_the_oracle() {
    histories(Plan {
        parties: 3,
        tasks: 5,
        faults: true,
        options: WaitOptions::new(),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn random_waits_with_faults_that_break_rounds_satisfy_the_oracle() {
    histories(Plan {
        parties: 3,
        tasks: 5,
        faults: true,
        options: breaking(),
    })
    .await;
}
