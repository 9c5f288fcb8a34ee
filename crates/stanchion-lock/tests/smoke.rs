//! The contract of the lock, on the engine: one owner at a time, and the release lets the next in.

use stanchion_lock::{Client, Lock};

#[tokio::test]
async fn a_lock_has_one_owner_and_is_passed_on() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let (ours, theirs) = (Lock::new(&a, "job").unwrap(), Lock::new(&b, "job").unwrap());
    let guard = ours.acquire().await.unwrap();
    assert!(theirs.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(async move { theirs.acquire().await });
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.is_held() && next.fencing_token() > token);
    drop(next);
    ours.acquire().await.unwrap().release().await.unwrap();
}
