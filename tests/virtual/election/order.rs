//! The order of succession: hand-over, rest and priority.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use stanchion::election::{CampaignOptions, Challenge};
use stanchion_tests::{World, assert_within, ms, secs};
use tokio::time::{Instant, sleep};

use stanchion_tests::election::*;

#[tokio::test(start_paused = true)]
async fn a_named_candidate_wins_among_twenty() {
    let world = World::engine();
    let first = world.named("first").await;
    let fleet = world.fleet(20).await;
    let mut campaigns = Vec::new();
    for (n, client) in fleet.iter().enumerate() {
        campaigns.push(campaign(client, &n.to_string()));
    }
    let mut term = winner(&mut campaigns).await;
    candidates(&world, &first, 19).await;
    for round in 0..20 {
        let there = election(&first).candidates().await.unwrap();
        let heir = there[round * 7 % there.len()].id.clone();
        let started = Instant::now();
        term.hand_over(&heir).await.unwrap();
        term = winner(&mut campaigns).await;
        assert_eq!(term.id(), heir);
        assert_within(started, ms(500), round);
        world.quiet().await;
        assert!(campaigns.iter().all(|it| !it.is_finished()));
        if campaigns.len() < 3 {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_named_candidate_that_is_dead_costs_a_head_start() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let dead = world.named("dead").await;
    let term = election(&ours).campaign("ours").await.unwrap();
    let lost = campaign(&dead, "dead");
    candidates(&world, &ours, 1).await;
    let heir = election(&ours).candidates().await.unwrap().remove(0).id;
    let waiting = campaign(&theirs, "theirs");
    candidates(&world, &ours, 2).await;
    world.faults().freeze(Some("dead"));
    let started = Instant::now();
    term.hand_over(&heir).await.unwrap();
    let term = waiting.await.unwrap().unwrap();
    let took = started.elapsed();
    assert!(took >= HEAD_START && took < HEAD_START + ms(50), "{took:?}");
    assert!(!lost.is_finished());
    // A named candidate that gives up costs nothing.
    world.faults().thaw(Some("dead"));
    world.faults().delay(Some("dead"), ms(100));
    candidates(&world, &ours, 1).await;
    let heir = election(&ours).candidates().await.unwrap().remove(0).id;
    let waiting = campaign(&ours, "ours");
    candidates(&world, &ours, 2).await;
    let started = Instant::now();
    let handing = term.hand_over(&heir);
    lost.abort();
    handing.await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    assert!(started.elapsed() < HEAD_START, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_is_notified_of_a_higher_priority_and_stays() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&ours).campaign("ours").await.unwrap();
    let challenged = tokio::spawn(term.challenged());
    world.quiet().await;
    let equal = campaign(&theirs, "equal");
    sleep(POLL * 3).await;
    assert!(
        !challenged.is_finished(),
        "an equal priority is no challenge"
    );
    // A request of an operator is no challenge.
    let request = election(&theirs).request_release("a fix").await.unwrap();
    assert_eq!((request.holders, request.heard), (1, 1));
    assert_eq!(term.requested().await.reason, "a fix");
    assert!(!challenged.is_finished());
    equal.abort();
    let started = Instant::now();
    let higher = campaign_with(&theirs, "higher", priority(10));
    let challenge: Challenge = challenged.await.unwrap();
    assert_eq!(challenge.priority, 10);
    assert!(started.elapsed() < ms(50));
    sleep(LEASE * 4).await;
    assert!(
        term.is_held() && !higher.is_finished(),
        "a higher priority does not preempt"
    );
    // A later call returns at once.
    assert_eq!(term.challenged().await.priority, 10);
    let started = Instant::now();
    term.step_down().await.unwrap();
    drop(higher.await.unwrap().unwrap());
    assert!(started.elapsed() < ms(50));
}

#[tokio::test(start_paused = true)]
async fn a_lost_challenge_is_repeated_with_the_next_poll() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&ours).campaign("ours").await.unwrap();
    // The higher candidate is registered before the leader waits for a challenge.
    let higher = campaign_with(&theirs, "higher", priority(1));
    candidates(&world, &ours, 1).await;
    let started = Instant::now();
    term.challenged().await;
    assert!(started.elapsed() <= POLL + ms(20));
    assert!(!higher.is_finished());
}

#[tokio::test(start_paused = true)]
async fn the_highest_priority_leads_next_a_hundred_times() {
    let (world, fleet) = World::engine().with_fleet(3).await;
    let looking = world.named("looking").await;
    let ranks = [0, 5, 10];
    for round in 0..100 {
        let term = election(&looking).campaign("v").await.unwrap();
        // The candidates arrive in a different order in each round.
        let mut waiting = Vec::new();
        for n in 0..3 {
            let at = (n + round) % 3;
            let rank = ranks[at];
            waiting.push(campaign_with(&fleet[at], &rank.to_string(), priority(rank)));
        }
        candidates(&world, &looking, 3).await;
        let started = Instant::now();
        term.step_down().await.unwrap();
        let term = winner(&mut waiting).await;
        assert!(started.elapsed() < ms(100));
        let leader = election(&looking).leader().await.unwrap();
        assert_eq!(leader.as_ref().unwrap().priority, 10);
        assert_eq!(value(leader), "10", "round {round}");
        waiting.into_iter().for_each(|it| it.abort());
        candidates(&world, &looking, 0).await;
        term.step_down().await.unwrap();
        sleep(secs(2)).await;
    }
}

/// A dead candidate costs one head start, not one for each attempt of the others.
#[tokio::test(start_paused = true)]
async fn a_dead_candidate_of_high_priority_costs_one_head_start() {
    let (world, fleet) = World::engine().with_fleet(3).await;
    let looking = world.named("looking").await;
    let term = election(&looking).campaign("v").await.unwrap();
    let mut waiting = Vec::new();
    for (client, rank) in fleet.iter().zip([0, 5, 10]) {
        waiting.push(campaign_with(client, &rank.to_string(), priority(rank)));
    }
    candidates(&world, &looking, 3).await;
    world.faults().freeze(Some("p2"));
    let started = Instant::now();
    term.step_down().await.unwrap();
    let term = winner(&mut waiting).await;
    let took = started.elapsed();
    assert!(
        took >= HEAD_START && took < HEAD_START + ms(100),
        "{took:?}"
    );
    assert_eq!(value(election(&looking).leader().await.unwrap()), "5");
    // The entry of the dead candidate expires.
    sleep(POLL * 4).await;
    let there = election(&looking).candidates().await.unwrap();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].priority, 0);
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn a_negative_priority_comes_after_the_default() {
    let (world, [low, plain]) = World::engine().with_named(["low", "plain"]).await;
    let looking = world.named("looking").await;
    let term = election(&looking).campaign("v").await.unwrap();
    let last = campaign_with(&low, "low", priority(i32::MIN));
    candidates(&world, &looking, 1).await;
    let next = campaign(&plain, "plain");
    candidates(&world, &looking, 2).await;
    term.step_down().await.unwrap();
    let term = next.await.unwrap().unwrap();
    assert!(!last.is_finished());
    term.step_down().await.unwrap();
    drop(last.await.unwrap().unwrap());
}

/// A leader that stepped down does not return by its priority before its rest is over.
#[tokio::test(start_paused = true)]
async fn a_rest_takes_precedence_over_a_priority() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let third = world.named("third").await;
    let term = campaign_with(&ours, "high", priority(10))
        .await
        .unwrap()
        .unwrap();
    let plain = campaign(&theirs, "plain");
    candidates(&world, &ours, 1).await;
    let middle = campaign_with(&third, "middle", priority(5));
    candidates(&world, &ours, 2).await;
    term.step_down().await.unwrap();
    let again = campaign_with(&ours, "high", priority(10));
    let term = middle.await.unwrap().unwrap();
    assert!(
        !again.is_finished() && !plain.is_finished(),
        "the next highest priority wins"
    );
    // After its rest, the first candidate has the highest priority again.
    sleep(secs(2)).await;
    term.step_down().await.unwrap();
    drop(again.await.unwrap().unwrap());
    drop(plain.await.unwrap().unwrap());
}

/// A rest outlasts the terms of others, so with short terms every candidate wins.
#[tokio::test(start_paused = true)]
async fn leaders_that_step_down_quickly_let_all_others_lead() {
    let world = World::engine();
    let started = Instant::now();
    let mut terms = vec![0; 4];
    let mut tasks = Vec::new();
    let (led, mut leaders) = tokio::sync::mpsc::unbounded_channel();
    for (n, client) in world.fleet(4).await.into_iter().enumerate() {
        let led = led.clone();
        tasks.push(tokio::spawn(async move {
            loop {
                let term = election(&client).campaign("v").await.unwrap();
                led.send(n).unwrap();
                sleep(ms(100)).await;
                term.step_down().await.unwrap();
            }
        }));
    }
    let mut last = None;
    for _ in 0..200 {
        let next = leaders.recv().await.unwrap();
        terms[next] += 1;
        assert_ne!(
            last.replace(next),
            Some(next),
            "a candidate wins twice in a row"
        );
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(terms.iter().all(|&terms| terms >= 40), "{terms:?}");
    assert!(started.elapsed() < secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_resting_candidate_wins_at_once_if_all_rest() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    for client in [&ours, &theirs] {
        let term = election(client).campaign("v").await.unwrap();
        term.step_down().await.unwrap();
    }
    let started = Instant::now();
    let mut both = vec![campaign(&ours, "ours"), campaign(&theirs, "theirs")];
    let term = winner(&mut both).await;
    assert!(started.elapsed() < ms(50));
    // A candidate with a longer rest rests for that time.
    term.step_down().await.unwrap();
    winner(&mut both).await.step_down().await.unwrap();
    world.at_rest().await;
    let restful = CampaignOptions::new().cooldown(secs(60));
    let campaigns = election(&ours).campaign_with("ours", restful);
    campaigns.await.unwrap().step_down().await.unwrap();
    for _ in 0..3 {
        let patient = campaign(&theirs, "theirs");
        let term = soon(patient).await;
        let waiting = campaign(&ours, "ours");
        candidates(&world, &theirs, 1).await;
        let another = world.named("another").await;
        let third = campaign(&another, "another");
        candidates(&world, &theirs, 2).await;
        term.step_down().await.unwrap();
        soon(third).await.step_down().await.unwrap();
        waiting.abort();
        candidates(&world, &theirs, 0).await;
        sleep(secs(2)).await;
    }
}

async fn soon(campaign: Campaign) -> stanchion::Leadership {
    let elected = tokio::time::timeout(POLL * 2, campaign).await;
    elected.expect("it is elected").unwrap().unwrap()
}

/// P4: while there are candidates, a vacancy lasts for a few round trips, however the term ends.
#[tokio::test(start_paused = true)]
async fn no_vacancy_lasts_without_faults() {
    const ROUND_TRIP: Duration = ms(5);
    const SPAN: Duration = secs(4000);
    let (world, fleet) = World::engine().with_fleet(5).await;
    world.faults().delay(None, ROUND_TRIP);
    let until = Instant::now() + SPAN;
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
                sleep(ms(rng.u64(100..20_000))).await;
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
    sleep(SPAN).await;
    let (_, longest, count) = *vacant.lock().unwrap();
    assert!(count > 300, "{count}");
    // The release, its message, the first request, the message to the heir and the heir's request take at most a round trip each.
    assert!(longest <= ROUND_TRIP * 10, "{longest:?}");
}
