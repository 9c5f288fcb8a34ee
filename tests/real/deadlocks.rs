//! `OnDeadlock::Fail` with the minimal rights of `docs/running/rights.md`, on a real server.

use stanchion::{AcquireError, AcquireOptions, Client, Lock, OnDeadlock};
use stanchion_testkit::eventually;
use stanchion_tests::{ms, rights, secs, server};
use tokio::task::JoinHandle;

fn entangled(client: &Client, holds: &str, waits: &str) -> JoinHandle<Result<(), AcquireError>> {
    let lock = |name: &str| Lock::new(client, name).unwrap();
    let (holds, waits) = (lock(holds), lock(waits));
    let fails = AcquireOptions::new().on_deadlock(OnDeadlock::Fail);
    let work = async move {
        let _held = holds.acquire().await?;
        // Until the other task holds its lock.
        while waits.status().await.unwrap().holder.is_none() {
            tokio::time::sleep(ms(5)).await;
        }
        waits.acquire_with(fails).await.map(drop)
    };
    tokio::spawn(client.actor("transfer").scope(work))
}

#[tokio::test]
async fn a_waiter_keeps_waiting_until_it_may_read_records_and_needs_no_other_right() {
    let Some(server) = server() else { return };
    let config = rights::least(&server);
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(Client::connect_with(config.clone()).await.unwrap());
    }
    let first = entangled(&clients[0], "app:x", "app:y");
    let second = entangled(&clients[1], "app:y", "app:x");
    let refused = || rights::refused(&server);
    let deadline = tokio::time::Instant::now() + secs(30);
    while !refused()
        .iter()
        .any(|it| it.starts_with("stanchion_client:"))
    {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", refused());
        tokio::time::sleep(ms(100)).await;
    }
    assert!(!first.is_finished() && !second.is_finished());
    let _ = server.cli(&["ACL", "SETUSER", "app", "~stanchion_client*"]);
    let _ = server.cli(&["ACL", "LOG", "RESET"]);
    let ends = async { [first.await.unwrap(), second.await.unwrap()] };
    let ends = tokio::time::timeout(secs(90), ends);
    let ends = ends.await.unwrap();
    let failed: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
    assert!(
        matches!(&failed[..], [AcquireError::Deadlock { .. }]),
        "{failed:?}"
    );
    assert_eq!(refused(), [""; 0]);
    let waiting = || clients.iter().map(Client::waiters).sum::<usize>();
    eventually("no waiter is left", || waiting() == 0).await;
}
