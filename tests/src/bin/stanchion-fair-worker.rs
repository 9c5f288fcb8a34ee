//! A separate process for tests of the fair lock.
//!
//! `<url> <name> <lease ms> <tasks> <rounds>`: prints `CONNECTED`, waits for a line, and starts `tasks` tasks that acquire and
//! release `rounds` times each. For each grant it prints `HELD <task> <token>`. The line `stall` blocks its only thread until the next line, from
//! `STALLING` to `STALLED`. The process exits when all tasks have ended.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test program fails by panicking and talks by its stdout"
)]

use std::time::Duration;

use stanchion::{Client, FairLock, Lease};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, name, lease_ms, tasks, rounds] = args.as_slice() else {
        panic!("usage: <url> <name> <lease ms> <tasks> <rounds>, not {args:?}");
    };
    let client = Client::connect(url.as_str()).await.unwrap();
    let lease = Lease::new(Duration::from_millis(lease_ms.parse().unwrap())).unwrap();
    let lock = FairLock::new(&client, name).unwrap().lease(lease);
    let rounds: u32 = rounds.parse().unwrap();
    println!("CONNECTED");
    let mut orders = BufReader::new(stdin()).lines();
    orders.next_line().await.unwrap();
    let working: Vec<_> = (0..tasks.parse::<u32>().unwrap())
        .map(|task| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for _ in 0..rounds {
                    let guard = lock.acquire().await.unwrap();
                    println!("HELD {task} {}", guard.fencing_token().unwrap());
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    tokio::spawn(async move {
        while let Some(order) = orders.next_line().await.unwrap() {
            assert_eq!(order, "stall");
            println!("STALLING");
            // Blocks the runtime on purpose.
            std::io::stdin().read_line(&mut String::new()).unwrap();
            println!("STALLED");
        }
    });
    for task in working {
        task.await.unwrap();
    }
    let report = client.shutdown(Duration::from_secs(5)).await;
    assert!(report.is_clean(), "{report:?}");
}
