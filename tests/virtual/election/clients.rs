//! Candidates and leaders whose clients shut down, only poll, or lose the server, and the cost of candidates.

use stanchion::{AcquireError, Guard, Outage};
use stanchion_testkit::cancel_after;
use stanchion_tests::{World, ms, secs};
use tokio::time::Instant;

use stanchion_tests::election::*;

#[tokio::test(start_paused = true)]
async fn a_shutdown_removes_the_candidate_and_ends_a_term_with_its_lease() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&theirs).campaign("theirs").await.unwrap();
    let waiting = campaign(&ours, "ours");
    candidates(&world, &theirs, 1).await;
    assert!(ours.shutdown(secs(1)).await.is_clean());
    assert!(matches!(
        waiting.await.unwrap(),
        Err(AcquireError::Shutdown { .. })
    ));
    // P3: the shutdown removes the candidate. Its entry does not have to expire.
    assert!(election(&theirs).candidates().await.unwrap().is_empty());
    let report = theirs.shutdown(secs(1)).await;
    assert_eq!(report.abandoned.len(), 1, "{report:?}");
    assert!(!term.is_held());
    let after = world.named("after").await;
    let started = Instant::now();
    drop(election(&after).campaign("after").await.unwrap());
    assert!(started.elapsed() <= LEASE + ms(50));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_only_polls_is_elected() {
    let world = World::engine();
    let polls = world.polling().await;
    let theirs = world.named("theirs").await;
    let term = election(&theirs).campaign("theirs").await.unwrap();
    let waiting = campaign(&polls, "polls");
    tokio::time::sleep(LEASE * 3).await;
    assert_eq!(election(&theirs).candidates().await.unwrap().len(), 1);
    let started = Instant::now();
    term.step_down().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    assert!(started.elapsed() <= ms(200));
}

/// The campaign is polled a few times and kept. Its entry expires.
#[tokio::test(start_paused = true)]
async fn a_campaign_that_is_not_polled_delays_others_by_a_second() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let looking = world.named("looking").await;
    let term = election(&looking).campaign("v").await.unwrap();
    let mut kept = Box::pin(election(&ours).campaign_with("kept", priority(9)));
    // Polls until the campaign is a candidate.
    for _ in 0..4 {
        assert!(cancel_after(&mut kept, 1).await.is_none());
        world.quiet().await;
    }
    assert_eq!(election(&looking).candidates().await.unwrap().len(), 1);
    let waiting = campaign(&theirs, "theirs");
    candidates(&world, &looking, 2).await;
    let started = Instant::now();
    term.step_down().await.unwrap();
    let term = waiting.await.unwrap().unwrap();
    let took = started.elapsed();
    assert!(took <= ms(1050), "{took:?}");
    tokio::time::sleep(POLL * 4).await;
    assert!(election(&looking).candidates().await.unwrap().is_empty());
    // The campaign continues when it is polled again.
    term.step_down().await.unwrap();
    let term = tokio::time::timeout(LEASE, kept).await.unwrap().unwrap();
    assert_eq!(value(election(&looking).leader().await.unwrap()), "kept");
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn a_term_converts_into_a_guard() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&ours).campaign("v").await.unwrap();
    let token = term.fencing_token();
    let guard = Guard::from(term);
    assert_eq!(guard.fencing_token(), token);
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_held());
    let waiting = campaign(&theirs, "w");
    candidates(&world, &theirs, 1).await;
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

/// etcd#11007 and others: a campaign must end when its server is unreachable, and its error must state what may be true.
#[tokio::test(start_paused = true)]
async fn a_campaign_in_an_outage_ends_after_the_tolerance() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&theirs).campaign("v").await.unwrap();
    let waiting = campaign(&ours, "w");
    candidates(&world, &theirs, 1).await;
    let faults = world.faults();
    faults.refuse_connections(stanchion::embedded::Switch::On);
    faults.kill_connections();
    let started = Instant::now();
    let failed = waiting.await.unwrap().unwrap_err();
    let took = started.elapsed();
    assert!(took <= secs(40), "{took:?}");
    assert!(
        matches!(
            &failed,
            AcquireError::Unavailable { outage, .. } | AcquireError::Ambiguous { outage, .. }
                if !matches!(outage, Outage::Unanswered { .. })
        ),
        "{failed:?}"
    );
    faults.refuse_connections(stanchion::embedded::Switch::Off);
    tokio::time::sleep(LEASE * 2).await;
    assert!(!term.is_held());
    assert!(election(&theirs).candidates().await.unwrap().is_empty());
    assert!(election(&theirs).leader().await.unwrap().is_none());
}

/// Checks the costs that `docs/primitives/election.md` states.
#[tokio::test(start_paused = true)]
async fn candidates_cost_a_script_each_poll_and_one_when_a_term_ends() {
    for (high, at_the_end) in [(0, 11), (5, 21)] {
        let (world, fleet) = World::engine().with_fleet(10).await;
        let leading = world.named("leading").await;
        // Loads the scripts into the server.
        let known = election(&leading).campaign("v").await.unwrap();
        known.step_down().await.unwrap();
        let term = election(&leading).campaign("v").await.unwrap();
        let mut waiting = Vec::new();
        for (n, client) in fleet.iter().enumerate() {
            // The last candidate to receive the message has the highest priority.
            let rank = if n == 9 { high } else { 0 };
            waiting.push(campaign_with(client, "v", priority(rank)));
        }
        candidates(&world, &leading, 10).await;
        let before = world.scripts_run();
        tokio::time::sleep(POLL * 20).await;
        let cost = world.scripts_run() - before;
        // Ten processes, twenty polls, or one more at an edge, and twenty renewals.
        assert!((215..=230).contains(&cost), "{cost}");
        world.quiet().await;
        let before = world.scripts_run();
        term.step_down().await.unwrap();
        let term = winner(&mut waiting).await;
        world.quiet().await;
        let cost = world.scripts_run() - before;
        // The release and one request of each candidate. With a priority each candidate sends a second request.
        println!("priority {high}: {cost} scripts");
        assert!((11..=at_the_end).contains(&cost), "{cost}");
        drop(term);
    }
}
