//! Tests a server that flushes its scripts. `real/kinds/behaviour` has the memory limit.

use stanchion::AcquireOptions;
use stanchion_tests::faults::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_succeed_while_the_server_flushes_its_scripts() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let calls = tokio::spawn(async move {
        let orders = lock(&client, "orders", LONG);
        let rounds = async {
            let options = AcquireOptions::new().timeout(LONG / 3);
            for _ in 0..100 {
                let guard = orders.acquire_with(options.clone()).await.unwrap();
                let waiter = waiting(&orders);
                let again = guard.reenter().await.unwrap();
                guard.renew().await.unwrap();
                again.release().await.unwrap();
                guard.release().await.unwrap();
                served(waiter, LONG / 3).await;
                // The server may not know the script of the waiter's request, which then runs after the release that passes the lock
                // on. In that case the lock is granted to this process once more, and released at once.
                soon(LONG / 3, async {
                    while orders.status().await.unwrap().is_held() {}
                })
                .await;
            }
        };
        let short = lock(&client, "short", ms(2000));
        let watched = async {
            let guard = short.acquire().await.unwrap();
            renewed(&guard).await;
            guard.release().await.unwrap();
        };
        tokio::join!(rounds, watched);
    });
    tokio::task::block_in_place(|| {
        while !calls.is_finished() {
            admin(&server, &["SCRIPT", "FLUSH"]);
        }
    });
    calls.await.unwrap();
    nothing_left(&server).await;
}
