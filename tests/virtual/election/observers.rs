//! Observers: `Election::observe` reports leaders, vacancies and outages.

use std::time::Duration;

use stanchion::election::{Leaders, Observed};
use stanchion::embedded::Switch;
use stanchion::{Election, QueryError};
use stanchion_tests::{World, assert_is, ms, secs, together};
use tokio::time::{Instant, timeout};

use stanchion_tests::election::*;

async fn next(leaders: &mut Leaders) -> Observed {
    timeout(secs(60), leaders.next())
        .await
        .expect("something is reported")
        .expect("the stream has not ended")
}

/// `vacant`, `unknown`, or the value of the leader.
async fn word(leaders: &mut Leaders) -> String {
    match next(leaders).await {
        Observed::Vacant => "vacant".into(),
        Observed::Unknown(_) => "unknown".into(),
        Observed::Leader(leader) => value(Some(leader)),
        other => panic!("{other:?}"),
    }
}

/// etcd's Observe never reports that there is no leader.
#[tokio::test(start_paused = true)]
async fn an_observer_sees_the_present_leader_first_then_each_vacancy_and_the_next() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&theirs).campaign("a").await.unwrap();
    let mut leaders = election(&ours).observe();
    assert_eq!(word(&mut leaders).await, "a");
    let rest = timeout(secs(100), leaders.next()).await;
    assert!(rest.is_err(), "no event without a change: {rest:?}");
    let started = Instant::now();
    term.step_down().await.unwrap();
    assert_eq!(word(&mut leaders).await, "vacant");
    let term = election(&theirs).campaign("b").await.unwrap();
    assert_eq!(word(&mut leaders).await, "b");
    term.proclaim("c").await.unwrap();
    assert_eq!(word(&mut leaders).await, "c");
    assert!(started.elapsed() < ms(100), "by message");
    // After a crash no message is published.
    world.faults().freeze(Some("theirs"));
    assert_eq!(word(&mut leaders).await, "vacant");
    assert!(started.elapsed() <= LEASE + ms(200));
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn lost_messages_cost_an_observer_a_poll() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let mut leaders = election(&ours).observe();
    assert_eq!(word(&mut leaders).await, "vacant");
    let mut observing = tokio::spawn(async move {
        let word = word(&mut leaders).await;
        (word, leaders)
    });
    world.quiet().await;
    world.faults().lose_messages(1);
    let started = Instant::now();
    let term = election(&theirs).campaign("a").await.unwrap();
    let (seen, mut leaders) = (&mut observing).await.unwrap();
    assert_eq!(seen, "a");
    let took = started.elapsed();
    assert!(took > ms(100) && took <= POLL + ms(20), "{took:?}");
    for changed in ["b", "c"] {
        let observing = tokio::spawn(async move {
            let word = word(&mut leaders).await;
            (word, leaders)
        });
        world.quiet().await;
        world.faults().lose_messages(1);
        let started = Instant::now();
        term.proclaim(changed).await.unwrap();
        let seen = observing.await.unwrap();
        assert_eq!(seen.0, changed);
        leaders = seen.1;
        assert!(started.elapsed() <= POLL + ms(20));
    }
}

#[tokio::test(start_paused = true)]
async fn observers_end_with_the_last_of_quick_changes_and_see_none_twice() {
    let (_world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&theirs).campaign("0").await.unwrap();
    let looking: Vec<_> = (0..5)
        .map(|_| {
            let mut leaders = election(&ours).observe();
            tokio::spawn(async move {
                let mut last = -1;
                while last < 50 {
                    let now = word(&mut leaders).await.parse().unwrap();
                    assert!(now > last, "{now} after {last}");
                    last = now;
                }
            })
        })
        .collect();
    for n in 1..=50 {
        term.proclaim(n.to_string()).await.unwrap();
        if n % 7 == 0 {
            tokio::time::sleep(ms(n)).await;
        }
    }
    together(looking).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_as_unknown_and_the_stream_continues() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&theirs).campaign("a").await.unwrap();
    let mut leaders = election(&ours).observe();
    assert_eq!(word(&mut leaders).await, "a");
    let faults = world.faults();
    faults.refuse_connections(Switch::On);
    faults.kill_connections();
    let started = Instant::now();
    assert_eq!(word(&mut leaders).await, "unknown");
    let took = started.elapsed();
    assert!(
        took >= LEASE * 2 / 3 && took <= LEASE + POLL * 2,
        "{took:?}"
    );
    let still = timeout(secs(60), leaders.next()).await;
    assert!(still.is_err(), "reported once: {still:?}");
    faults.refuse_connections(Switch::Off);
    let started = Instant::now();
    let after = word(&mut leaders).await;
    assert!(started.elapsed() < secs(10));
    assert_eq!(after, "vacant", "the lease has passed");
    assert!(!term.is_held());
    let term = election(&theirs).campaign("b").await.unwrap();
    assert_eq!(word(&mut leaders).await, "b");
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_and_a_shutdown_end_the_stream() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let _ = world.admin(&["SET", "indexer", "mine"]);
    let mut leaders = election(&ours).observe();
    let refused = next(&mut leaders).await;
    assert_is!(refused, Observed::Unknown(QueryError::Rejected { .. }));
    assert_eq!(leaders.next().await, None);
    let _ = world.admin(&["DEL", "indexer"]);
    let mut leaders = election(&theirs).observe();
    assert_eq!(word(&mut leaders).await, "vacant");
    let looking = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(observed) = leaders.next().await {
            seen.push(observed);
        }
        seen
    });
    world.quiet().await;
    assert!(theirs.shutdown(secs(1)).await.is_clean());
    let seen = timeout(secs(30), looking).await.unwrap().unwrap();
    assert!(seen.len() <= 1, "{seen:?}");
}

/// One stream is polled and then kept without polls.
#[tokio::test(start_paused = true)]
async fn an_observer_that_is_not_polled_delays_no_other() {
    let (_world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let (mut stalled, mut leaders) = (election(&ours).observe(), election(&ours).observe());
    assert_eq!(word(&mut stalled).await, "vacant");
    assert_eq!(word(&mut leaders).await, "vacant");
    assert!(timeout(ms(50), stalled.next()).await.is_err());
    for n in 0..3 {
        let started = Instant::now();
        let term = election(&theirs).campaign(n.to_string()).await.unwrap();
        assert_eq!(word(&mut leaders).await, n.to_string());
        // At the latest after the stream's own read, once per lease.
        assert!(
            started.elapsed() <= LEASE + secs(1),
            "{:?}",
            started.elapsed()
        );
        term.step_down().await.unwrap();
        assert_eq!(word(&mut leaders).await, "vacant");
    }
    let _term = election(&theirs).campaign("last").await.unwrap();
    assert_eq!(word(&mut stalled).await, "last");
    drop((stalled, leaders));
    assert_eq!(ours.waiters(), 0);
}

/// While a leader renews, each process costs one script per poll, and each stream one read per lease.
#[tokio::test(start_paused = true)]
async fn observers_cost_a_poll_for_each_process_and_a_read_for_each_stream() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&theirs).campaign("a").await.unwrap();
    for _ in 0..10 {
        let mut leaders = election(&ours).observe();
        tokio::spawn(async move { while leaders.next().await.is_some() {} });
    }
    tokio::time::sleep(LEASE).await;
    let before = world.scripts_run();
    tokio::time::sleep(LEASE * 10).await;
    let cost = world.scripts_run() - before;
    // 30 renewals by the leader.
    println!("10 streams, 10 leases: {} scripts", cost - 30);
    // One script of the process every 5 s, and two of each stream every 15 s.
    assert!(cost <= 30 + 30 + 200, "{cost}");
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_at_once_with_its_client() {
    let (_world, client) = World::engine().with_client().await;
    let election = Election::new(&client, "job").unwrap();
    let mut leaders = election.observe();
    assert_eq!(next(&mut leaders).await, Observed::Vacant);
    let waiting = tokio::spawn(async move {
        let last = leaders.next().await;
        (last, Instant::now())
    });
    tokio::time::sleep(secs(1)).await;
    client.shutdown(secs(1)).await;
    let began = Instant::now();
    let (last, ended) = waiting.await.unwrap();
    assert_eq!((last, ended), (None, began));
    assert_eq!(
        election.observe().next().await,
        None,
        "one that begins later"
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
}
