//! The contract of both barriers, on the engine: parties pass together.

use stanchion_barrier::{Client, CyclicBarrier, DoubleBarrier};

#[tokio::test]
async fn parties_of_a_cyclic_barrier_pass_together() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let ours = CyclicBarrier::new(&a, "checkpoint", 2).unwrap();
    let theirs = CyclicBarrier::new(&b, "checkpoint", 2).unwrap();
    for _ in 0..2 {
        let (one, other) = tokio::join!(ours.wait(), theirs.wait());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.generation(), other.generation());
        assert_ne!(one.is_last(), other.is_last());
    }
}

#[tokio::test]
async fn parties_of_a_double_barrier_enter_and_leave_together() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let ours = DoubleBarrier::new(&a, "stage", 2).unwrap();
    let theirs = DoubleBarrier::new(&b, "stage", 2).unwrap();
    let (one, other) = tokio::join!(ours.enter(), theirs.enter());
    let (left, left_too) = tokio::join!(one.unwrap().leave(), other.unwrap().leave());
    left.unwrap();
    left_too.unwrap();
}
