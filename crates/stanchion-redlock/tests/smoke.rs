//! The contract of RedLock, on three engines: a majority decides.

use stanchion_redlock::{Client, RedLock};

#[tokio::test]
async fn a_majority_of_the_servers_decides() {
    let mut sets = [Vec::new(), Vec::new()];
    for set in &mut sets {
        for url in ["memory://smoke-1", "memory://smoke-2", "memory://smoke-3"] {
            set.push(Client::connect(url).await.unwrap());
        }
    }
    let [ours, theirs] = sets.map(|it| RedLock::new(&it, "compaction").unwrap());
    let guard = ours.acquire().await.unwrap();
    assert!(guard.nodes_held() >= ours.quorum());
    assert!(theirs.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(async move { theirs.acquire().await });
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.is_held());
    next.release().await.unwrap();
}
