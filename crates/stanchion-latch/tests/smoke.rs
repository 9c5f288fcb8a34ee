//! The contract of the latch, on the engine: waiters pass when the count is zero.

use stanchion_latch::{Client, CountDownLatch};

#[tokio::test]
async fn waiters_pass_when_the_count_is_zero() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let ours = CountDownLatch::new(&a, "import").unwrap();
    let theirs = CountDownLatch::new(&b, "import").unwrap();
    assert!(ours.arm(2).await.unwrap());
    assert!(!theirs.arm(5).await.unwrap(), "it is armed already");
    let waiter = tokio::spawn(async move { theirs.wait().await });
    ours.count_down().await.unwrap();
    assert_eq!(ours.count().await.unwrap(), 1);
    ours.count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
}
