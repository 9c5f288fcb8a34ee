//! Tests that real connections and processes end with `Client::shutdown`. `virtual/client/shutdown` and `real/kinds` have its other cases.

use stanchion_testkit::{Process, eventually};
use stanchion_tests::faults::*;

#[tokio::test]
async fn shutdown_completes_the_releases_of_dropped_guards_and_closes_every_connection() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let mut guards = Vec::new();
    for i in 0..50 {
        let lock = lock(&client, &format!("orders-{i}"), LONG);
        guards.push(lock.acquire().await.unwrap());
    }
    drop(guards);
    let report = client.shutdown(LONG / 3).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(leftovers(&server), [] as [String; 0]);
    eventually("only the test's own connection is left", || {
        server.cli(&["CLIENT", "LIST"]).as_text().lines().count() == 1
    })
    .await;
    assert!(!client.is_connected());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_shuts_down_leaves_nothing() {
    let Some(server) = server() else { return };
    let program = env!("CARGO_BIN_EXE_stanchion-test-worker");
    let mut worker = Process::start(program, &["hold", &server.url(), "orders", "30000"]);
    worker.wait_for_line(|line| line.starts_with("HELD"), LONG / 3);
    // The worker drops its guard, calls `Client::shutdown`, and returns from `main`.
    worker.close_stdin();
    assert!(worker.wait(LONG / 3).success());
    assert_eq!(leftovers(&server), [] as [String; 0]);
}
