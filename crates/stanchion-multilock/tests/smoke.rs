//! The contract of the multi-lock, on the engine: all of its locks or none.

use stanchion_lock::{Client, Lock};
use stanchion_multilock::{Lockable, MultiLock};

#[tokio::test]
async fn a_multi_lock_takes_all_or_none() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let (from, to) = (
        Lock::new(&a, "account:7").unwrap(),
        Lock::new(&a, "account:4").unwrap(),
    );
    let both = MultiLock::new([&from as &dyn Lockable, &to]).unwrap();
    let theirs = Lock::new(&b, "account:4").unwrap();
    let held = theirs.acquire().await.unwrap();
    assert!(both.try_acquire().await.unwrap().is_none());
    // Nothing of the refused request stays.
    from.acquire().await.unwrap().release().await.unwrap();
    let waiter = tokio::spawn(async move { both.acquire().await });
    held.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert!(theirs.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    theirs.acquire().await.unwrap().release().await.unwrap();
}
