//! Sentinel failovers during a term: the term is kept, or its loss is reported within the lease.

use std::time::Duration;

use stanchion::election::Observed;
use stanchion::{Client, ClientConfig, Election};
use stanchion_testkit::{SentinelSet, eventually};
use tokio::time::timeout;

use stanchion_tests::election::*;
use stanchion_tests::{lease, ms, secs, sentinels};

/// A timeout far above the duration of any step.
const LONG: Duration = secs(40);
/// A lease that outlasts a failover.
const KEPT: Duration = secs(12);

async fn connect(set: &SentinelSet) -> (Client, Election) {
    let config = ClientConfig::new(set.url()).response_timeout(ms(500));
    let client = Client::connect_with(config).await.unwrap();
    let election = election(&client).lease(lease(KEPT));
    (client, election)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_keeps_the_data_keeps_the_term() {
    let Some(set) = sentinels() else { return };
    let ((_ours, election), (theirs, other)) = (connect(&set).await, connect(&set).await);
    let term = election.campaign("first").await.unwrap();
    let (token, id) = (term.fencing_token(), term.id().to_owned());
    let waiting = tokio::spawn(other.campaign("second"));
    eventually("the campaign waits", || theirs.waiters() == 1).await;
    tokio::task::block_in_place(|| {
        set.settle();
        set.fail_over()
    });
    let before = term.valid_until();
    eventually("the new master renews the term", || {
        assert!(term.is_held(), "P10");
        assert!(!waiting.is_finished(), "P1");
        term.valid_until() > before
    })
    .await;
    term.proclaim("still").await.unwrap();
    let leader = other.leader().await.unwrap().unwrap();
    assert_eq!((leader.id, leader.token), (id, token));
    term.step_down().await.unwrap();
    let next = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.fencing_token() > token, "P2");
    next.step_down().await.unwrap();
}

/// The new master does not know the term. Until the next renewal two candidates may lead, and the second has the larger token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_term_is_reported_within_its_lease_and_the_next_token_is_larger() {
    let Some(mut set) = sentinels() else { return };
    let ((ours, election), (_theirs, other)) = (connect(&set).await, connect(&set).await);
    let earlier = election.campaign("earlier").await.unwrap();
    let first = earlier.fencing_token();
    earlier.step_down().await.unwrap();
    tokio::task::block_in_place(|| {
        set.settle();
        set.hold_replication();
    });
    let lost = election.campaign("lost").await.unwrap();
    assert!(lost.fencing_token() > first, "P2");
    let promised = lost.valid_until();
    set.kill(0);
    set.resume_replicas(0);
    let mut leaders = other.observe();
    let next = timeout(LONG, other.campaign("next"))
        .await
        .unwrap()
        .unwrap();
    assert!(next.fencing_token() > lost.fencing_token(), "P2");
    // The last lease of the former leader ends, whether or not there is a new leader.
    timeout(LONG, lost.lost()).await.unwrap();
    assert!(!lost.is_held());
    assert!(ours.now() <= promised + KEPT / 3 + secs(1), "P5");
    assert!(lost.proclaim("a former leader").await.is_err());
    drop(lost);
    assert!(next.is_held(), "the lost guard does not end the new term");
    let seen = timeout(LONG, async {
        loop {
            if let Some(Observed::Leader(leader)) = leaders.next().await
                && leader.id == next.id()
            {
                return leader;
            }
        }
    });
    assert_eq!(seen.await.unwrap().token, next.fencing_token());
    next.step_down().await.unwrap();
}
