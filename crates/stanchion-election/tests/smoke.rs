//! The contract of the election, on the engine: one leader at a time, known to all.

use stanchion_election::{Client, Election};

#[tokio::test]
async fn one_leads_and_the_next_takes_over() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let (ours, theirs) = (
        Election::new(&a, "indexer").unwrap(),
        Election::new(&b, "indexer").unwrap(),
    );
    let term = ours.campaign("one").await.unwrap();
    assert!(theirs.try_campaign("two").await.unwrap().is_none());
    let leader = theirs.leader().await.unwrap().unwrap();
    assert_eq!(leader.value.as_deref(), Some(&b"one"[..]));
    let candidate = tokio::spawn(async move { theirs.campaign("two").await });
    term.step_down().await.unwrap();
    let next = candidate.await.unwrap().unwrap();
    let leader = ours.leader().await.unwrap().unwrap();
    assert_eq!(leader.value.as_deref(), Some(&b"two"[..]));
    next.step_down().await.unwrap();
}
