//! The contract of both semaphores, on the engine: no more holders than permits, and a release lets the next in.

use stanchion_semaphore::{Client, LeasedSemaphore, Semaphore};

macro_rules! admits_as_many_as_permits {
    ($kind:ident, $name:literal) => {
        let url = "memory://smoke";
        let (a, b) = (
            Client::connect(url).await.unwrap(),
            Client::connect(url).await.unwrap(),
        );
        let (ours, theirs) = (
            $kind::new(&a, $name).unwrap(),
            $kind::new(&b, $name).unwrap(),
        );
        assert!(ours.init(2).await.unwrap());
        let (one, other) = (
            ours.acquire().await.unwrap(),
            theirs.acquire().await.unwrap(),
        );
        assert!(theirs.try_acquire().await.unwrap().is_none());
        let waiter = tokio::spawn({
            let theirs = theirs.clone();
            async move { theirs.acquire().await }
        });
        one.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        other.release().await.unwrap();
        assert_eq!(ours.available().await.unwrap(), 2);
    };
}

#[tokio::test]
async fn a_plain_semaphore_admits_as_many_as_it_has_permits() {
    admits_as_many_as_permits!(Semaphore, "plain");
}

#[tokio::test]
async fn a_leased_semaphore_admits_as_many_as_it_has_permits() {
    admits_as_many_as_permits!(LeasedSemaphore, "leased");
}
