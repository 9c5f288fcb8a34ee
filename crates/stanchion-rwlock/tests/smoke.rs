//! The contract of the read-write lock, on the engine: readers share, a writer is alone.

use stanchion_rwlock::{Client, RwLock};

#[tokio::test]
async fn readers_share_and_a_writer_is_alone() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let (ours, theirs) = (
        RwLock::new(&a, "prices").unwrap(),
        RwLock::new(&b, "prices").unwrap(),
    );
    let (one, other) = (ours.read().await.unwrap(), theirs.read().await.unwrap());
    assert!(theirs.try_write().await.unwrap().is_none());
    let writer = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.write().await }
    });
    one.release().await.unwrap();
    other.release().await.unwrap();
    let writing = writer.await.unwrap().unwrap();
    assert!(ours.try_read().await.unwrap().is_none());
    let reading = writing.downgrade().await.unwrap();
    ours.read().await.unwrap().release().await.unwrap();
    reading.release().await.unwrap();
}
