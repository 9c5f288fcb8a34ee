//! The example with tonic: a client of gRPC reads the refusals of the layers as statuses.

use std::time::Duration;

use ::tonic::Code;
use stanchion_embedded::Switch;
use stanchion_tower::Lock;

use super::*;

#[path = "../../examples/tonic.rs"]
mod example;

#[tokio::test(start_paused = true)]
async fn a_client_of_grpc_reads_refusals_as_statuses() {
    let (engine, client) = world().await;
    let app = example::app(&client).unwrap();
    let first = tokio::spawn({
        let app = app.clone();
        async move { example::call(&app, "7", 1000).await }
    });
    stanchion_testkit::eventually("the first call has the lock", || {
        engine.any_key(|key| key == b"accounts:7")
    })
    .await;
    let busy = example::call(&app, "7", 0).await.unwrap_err();
    assert_eq!(busy.code(), Code::Aborted);
    assert_eq!(
        busy.message(),
        "Another request for the same resource is in progress"
    );
    assert_eq!(busy.metadata().get("retry-after").unwrap(), "1");
    assert!(first.await.unwrap().unwrap().starts_with("settled under "));
    let passed = example::call(&app, "8", 0).await.unwrap();
    assert!(passed.starts_with("settled under "));

    example::call(&app, "7", 0).await.unwrap();
    let limited = example::call(&app, "7", 0).await.unwrap_err();
    assert_eq!(limited.code(), Code::ResourceExhausted);
    assert_eq!(limited.metadata().get("ratelimit-remaining").unwrap(), "0");

    let lock = Lock::new(&client, "accounts:8").unwrap();
    let free = lock.acquire_timeout(Duration::from_secs(1)).await;
    free.unwrap().release().await.unwrap();
    engine.faults().refuse_connections(Switch::On);
    engine.faults().kill_connections();
    stanchion_testkit::eventually("the client is disconnected", || !client.is_connected()).await;
    let outage = example::call(&app, "8", 0).await.unwrap_err();
    assert_eq!(outage.code(), Code::Unavailable);
}
