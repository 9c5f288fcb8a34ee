//! Random histories of candidates with faults, checked against the promises P1 to P4.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use stanchion::election::CampaignOptions;
use stanchion::{Client, FencingToken, Leadership};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use tokio::time::{Instant, sleep, timeout};

use stanchion_tests::election::*;

const CLIENTS: usize = 5;
const SPAN: Duration = Duration::from_secs(400);

/// The terms of all candidates of a history, and the checks on them.
#[derive(Clone, Default)]
struct Judge(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    live: Vec<Arc<Leadership>>,
    last: Option<FencingToken>,
    count: u32,
}

impl Judge {
    /// Checks a grant when its candidate receives it.
    fn granted(&self, term: Leadership) -> Arc<Leadership> {
        let term = Arc::new(term);
        let Seen { live, last, count } = &mut *self.0.lock().unwrap();
        // A future that is not polled for a whole lease may return a term that has ended. Its candidate does not rely on it.
        if term.is_held() {
            let others = live.iter().filter(|other| other.is_held()).count();
            assert_eq!(others, 0, "P1");
            assert!(term.fencing_token() > *last, "P2");
            *last = term.fencing_token();
        }
        *count += 1;
        live.push(Arc::clone(&term));
        term
    }

    /// Removes the term from the checks, so that its candidate can end it.
    fn ends(&self, term: Arc<Leadership>) -> Leadership {
        self.0
            .lock()
            .unwrap()
            .live
            .retain(|it| !Arc::ptr_eq(it, &term));
        Arc::into_inner(term).unwrap()
    }

    /// Asserts that at most one candidate relies on its term.
    fn check(&self) {
        let held = self
            .0
            .lock()
            .unwrap()
            .live
            .iter()
            .filter(|it| it.is_held())
            .count();
        assert!(held <= 1, "P1: {held} lead");
    }

    fn count(&self) -> u32 {
        self.0.lock().unwrap().count
    }
}

fn some_time(rng: &mut Rng, up_to_ms: u64) -> Duration {
    Duration::from_millis(rng.u64(0..up_to_ms))
}

async fn candidate(client: Client, mut rng: Rng, judge: Judge, until: Instant) {
    let election = election(&client);
    while Instant::now() < until {
        let options = CampaignOptions::new()
            .priority(rng.i32(-1..3))
            .cooldown(some_time(&mut rng, 2000));
        let patience = some_time(&mut rng, 40_000);
        let campaign = election.campaign_with("v", options);
        let term = match rng.u8(0..4) {
            // The campaign is dropped at a random moment.
            0 => timeout(patience, campaign).await.ok().and_then(Result::ok),
            1 => election.try_campaign("v").await.ok().flatten(),
            _ => campaign.await.ok(),
        };
        let Some(term) = term else {
            sleep(some_time(&mut rng, 1000)).await;
            continue;
        };
        let term = judge.granted(term);
        let work = some_time(&mut rng, 25_000);
        let _ = term.run(sleep(work / 2)).await;
        let _ = timeout(work, term.proclaim("w")).await;
        let _ = term.run(sleep(work / 2)).await;
        let there = match rng.bool() {
            true => timeout(work, election.candidates()).await,
            false => Ok(Ok(Vec::new())),
        };
        let heir = there.ok().and_then(Result::ok).and_then(|all| {
            let one = rng.usize(0..all.len().max(1));
            all.get(one).map(|it| it.id.clone())
        });
        let term = judge.ends(term);
        match (heir, rng.u8(0..3)) {
            (Some(heir), _) => drop(term.hand_over(&heir).await),
            (None, 0) => drop(term),
            (None, 1) => drop(timeout(some_time(&mut rng, 20), term.step_down()).await),
            (None, _) => drop(term.step_down().await),
        }
    }
}

async fn faults(world: &World, mut rng: Rng, until: Instant) {
    let faults = world.as_engine().faults();
    while Instant::now() < until {
        sleep(some_time(&mut rng, 8000)).await;
        let label = format!("p{}", rng.usize(0..CLIENTS));
        match rng.u8(0..8) {
            0 => faults.lose_messages(rng.usize(1..4)),
            1 => faults.lose_replies("EVALSHA", 1),
            2 => faults.lose_replies_silently("EVALSHA", 1),
            3 => faults.kill_label(&label),
            4 => faults.delay(Some(&label), some_time(&mut rng, 300)),
            5 => {
                faults.freeze(Some(&label));
                sleep(some_time(&mut rng, 30_000)).await;
                faults.thaw(Some(&label));
            }
            6 => faults.kill_connections(),
            _ => faults.kill_subscribers(),
        }
    }
    faults.clear();
    (0..CLIENTS).for_each(|n| faults.thaw(Some(&format!("p{n}"))));
}

async fn history(seed: u64) -> u32 {
    let world = World::engine();
    let fleet = world.fleet(CLIENTS).await;
    let (judge, until) = (Judge::default(), Instant::now() + SPAN);
    let mut running = Vec::new();
    let mut rng = Rng::with_seed(seed);
    for client in &fleet {
        // Two candidates in the first process, so that they use its local queue.
        for _ in 0..if running.is_empty() { 2 } else { 1 } {
            let rng = Rng::with_seed(rng.u64(..));
            running.push(tokio::spawn(candidate(
                client.clone(),
                rng,
                judge.clone(),
                until,
            )));
        }
    }
    let looking = tokio::spawn({
        let judge = judge.clone();
        async move {
            while Instant::now() < until {
                judge.check();
                sleep(Duration::from_millis(7)).await;
            }
        }
    });
    faults(&world, Rng::with_seed(rng.u64(..)), until).await;
    for (n, running) in running.into_iter().enumerate() {
        let ended = timeout(Duration::from_secs(300), running).await;
        ended
            .unwrap_or_else(|_| panic!("P4: candidate {n} of seed {seed} waits indefinitely"))
            .unwrap();
    }
    looking.await.unwrap();
    for client in &fleet {
        let _ = client.shutdown(Duration::from_secs(20)).await;
    }
    // P3: all entries of clients that ended expire.
    sleep(LEASE * 2).await;
    eventually(&format!("nothing is left of seed {seed}"), || {
        world.keys().is_empty()
    })
    .await;
    judge.count()
}

/// `STANCHION_SEED=17` runs one history, `STANCHION_SEEDS=1000` that many.
#[tokio::test(start_paused = true)]
async fn at_most_one_candidate_leads_and_tokens_grow_under_faults() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|it| it.parse::<u64>().unwrap())
    };
    let seeds = match number("STANCHION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STANCHION_SEEDS").unwrap_or(10),
    };
    let mut terms = 0;
    for seed in seeds.clone() {
        println!("seed {seed}");
        terms += history(seed).await;
    }
    println!("{terms} terms in {} histories", seeds.end - seeds.start);
    assert!(terms > 0);
}

/// P4: while there are candidates, a vacancy lasts for a few round trips, however the term ends.
#[tokio::test(start_paused = true)]
async fn no_vacancy_lasts_without_faults() {
    const ROUND_TRIP: Duration = Duration::from_millis(5);
    let world = World::engine();
    let fleet = world.fleet(CLIENTS).await;
    world.as_engine().faults().delay(None, ROUND_TRIP);
    let until = Instant::now() + SPAN * 10;
    let vacant = Arc::new(Mutex::new((None::<Instant>, Duration::ZERO, 0)));
    let mut running = Vec::new();
    for (n, client) in fleet.iter().enumerate() {
        let (election, mut rng) = (election(client), Rng::with_seed(n as u64));
        let vacant = Arc::clone(&vacant);
        running.push(tokio::spawn(async move {
            while Instant::now() < until {
                let options = priority(rng.i32(-1..3));
                let term = election.campaign_with("v", options).await.unwrap();
                {
                    let (since, longest, count) = &mut *vacant.lock().unwrap();
                    let took = since.take().map_or(Duration::ZERO, |since| since.elapsed());
                    *longest = (*longest).max(took);
                    *count += 1;
                }
                // At least 100 ms, so that the others are candidates again.
                sleep(Duration::from_millis(rng.u64(100..20_000))).await;
                let there = election.candidates().await.unwrap();
                let heir = there.get(rng.usize(0..there.len().max(1)));
                vacant.lock().unwrap().0 = Some(Instant::now());
                match rng.u8(0..3) {
                    0 if heir.is_some() => term.hand_over(&heir.unwrap().id).await.unwrap(),
                    1 => drop(term),
                    _ => term.step_down().await.unwrap(),
                }
            }
        }));
    }
    sleep(SPAN * 10).await;
    let (_, longest, count) = *vacant.lock().unwrap();
    println!("{count} terms, the longest vacancy {longest:?}");
    assert!(count > 300, "{count}");
    // The release, its message, the first request, the message to the heir and the heir's request take at most a round trip each.
    assert!(longest <= ROUND_TRIP * 10, "{longest:?}");
}
