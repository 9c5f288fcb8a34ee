//! A process of one library is killed, and the other library acquires its lock at the TTL.

use serde_json::json;
use stanchion_testkit::Signal;
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind};

const TTL: u64 = 1500;

#[tokio::test]
async fn the_lock_of_a_killed_jvm_is_free_at_its_ttl() {
    let Some(jvm) = Jvm::start() else { return };
    let Some(server) = server() else { return };
    let java = connect(&jvm, &server, json!({"watchdog": TTL})).await;
    let fleet = Fleet { java, server };
    fleet
        .java("holder", Kind::Lock, "orders")
        .done("lock")
        .await;
    let waiter = acquiring(&lock(&fleet.rust().await, "orders"));
    fleet.waiting(&channel("orders"), 1).await;
    jvm.kill();
    granted(waiter, ms(TTL) + SLACK)
        .await
        .release()
        .await
        .unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn killed_java_waiters_delay_no_other_waiter() {
    let Some(jvm) = Jvm::start() else { return };
    let Some(fleet) = Fleet::start_in(jvm.clone()).await else {
        return;
    };
    let guard = lock(&fleet.rust().await, "orders").acquire().await.unwrap();
    for actor in ["one", "two"] {
        let java = fleet.java(actor, Kind::Lock, "orders");
        drop(java.start("lock", json!({})));
    }
    fleet.waiting(&channel("orders"), 1).await;
    let waiter = acquiring(&lock(&fleet.rust().await, "orders"));
    fleet.waiting(&channel("orders"), 2).await;
    jvm.kill();
    guard.release().await.unwrap();
    granted(waiter, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn the_lock_of_our_killed_process_is_free_at_its_ttl() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let holder = holding(&fleet, "lock", "orders", ms(TTL));
    let java = fleet.java("waiter", Kind::Lock, "orders");
    let waiter = java.start("lock", json!({}));
    fleet.waiting(&channel("orders"), 1).await;
    holder.signal(Signal::Kill);
    java_granted(waiter, ms(TTL) + SLACK).await;
    java.done("unlock").await;
    fleet.at_rest().await;
}
