//! The contract of what limits a rate, on the engine: no more than the quota, over all clients.

use stanchion_limiter::{Attempt, Client, Limit, RateLimiter, TokenBucket};

fn is_granted(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Granted(_))
}

#[tokio::test]
async fn a_limiter_grants_its_quota_over_all_clients() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let of = |client| RateLimiter::new(client, "api", "2/h".parse().unwrap()).unwrap();
    let (ours, theirs) = (of(&a), of(&b));
    assert!(is_granted(&ours.try_acquire().await.unwrap()));
    assert!(is_granted(&theirs.try_acquire().await.unwrap()));
    let Attempt::Limited(limited) = theirs.try_acquire().await.unwrap() else {
        panic!("the third is over the quota");
    };
    assert!(limited.retry_after_secs() > 3500);
}

#[tokio::test]
async fn a_bucket_grants_its_burst_over_all_clients() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let limit = || Limit::new("1/h".parse().unwrap(), 3).unwrap();
    let of = |client| TokenBucket::new(client, "user", limit()).unwrap();
    let (ours, theirs) = (of(&a), of(&b));
    for bucket in [&ours, &theirs, &ours] {
        assert!(is_granted(&bucket.try_acquire().await.unwrap()));
    }
    assert!(!is_granted(&theirs.try_acquire().await.unwrap()));
}
