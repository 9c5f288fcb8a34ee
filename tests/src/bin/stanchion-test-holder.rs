//! A process that tests kill: `<kind> <url> <name> <lease ms>`. It acquires, prints `HELD`, and holds until its stdin ends.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test program fails by panicking and talks by its stdout"
)]

use std::time::Duration;

use stanchion::{Client, FairLock, Lease, LeasedSemaphore, Lock, MultiLock, RwLock, Semaphore};
use tokio::io::{AsyncReadExt as _, stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [kind, url, name, lease_ms] = args[..] else {
        panic!("usage: <kind> <url> <name> <lease ms>, not {args:?}");
    };
    let lease = Lease::new(Duration::from_millis(lease_ms.parse().unwrap())).unwrap();
    let client = Client::connect(url).await.unwrap();
    let lock = |name: &str| Lock::new(&client, name).unwrap().lease(lease);
    let rwlock = RwLock::new(&client, name).unwrap().lease(lease);
    // A guard of any kind is renewed until it is dropped, and then released.
    let held: Box<dyn std::any::Any> = match kind {
        "lock" => Box::new(lock(name).acquire().await.unwrap()),
        "fair" => {
            let lock = FairLock::new(&client, name).unwrap().lease(lease);
            Box::new(lock.acquire().await.unwrap())
        }
        "read" => Box::new(rwlock.read().await.unwrap()),
        "write" => Box::new(rwlock.write().await.unwrap()),
        "multi" => {
            let members: Vec<Lock> = name.split(',').map(lock).collect();
            let members = members
                .iter()
                .map(|member| member as &dyn stanchion::Lockable);
            Box::new(MultiLock::new(members).unwrap().acquire().await.unwrap())
        }
        "semaphore" => {
            let semaphore = Semaphore::new(&client, name).unwrap();
            Box::new(semaphore.acquire().await.unwrap())
        }
        "leased" => {
            let semaphore = LeasedSemaphore::new(&client, name).unwrap();
            Box::new(semaphore.lease(lease).acquire().await.unwrap())
        }
        other => panic!("unknown kind {other}"),
    };
    println!("HELD");
    stdin().read_to_end(&mut Vec::new()).await.unwrap();
    drop(held);
    assert!(client.shutdown(Duration::from_secs(5)).await.is_clean());
}
