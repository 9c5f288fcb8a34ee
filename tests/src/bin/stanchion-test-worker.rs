//! A separate process for tests: it acquires a lock and executes the commands on its stdin.
//!
//! `hold <url> <name> <lease ms>`: prints `CONNECTED`, acquires, prints `HELD <token>`, and executes lines. `write`: writes
//! to the resource under `guard.run`. `write later`: prints `WAITING`, 400 ms later `WRITING`, and writes. `write
//! anyway`: writes even after a loss. `release`. At the end of stdin it drops the guard, shuts the client down and ends.
//!
//! `read <url> <name> <lease ms> <n>`: prints `CONNECTED`, takes `n` read holds, prints `HELD`, and `LOST <reason>` when it
//! loses one. At the end of stdin it ends as above. `write <url> <name> <lease ms>`: the same with a write hold and
//! `Preference::Writer`.
//!
//! `count <url> <name> <lease ms> <process> <tasks> <rounds> <history>`: prints `CONNECTED`, waits for a line, and counts
//! up the key `counter` by reading and writing it under the lock.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test program fails by panicking and talks by its stdout"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stanchion::rwlock::Preference;
use stanchion::{
    Client, ClientConfig, FencingToken, Lease, Lock, LockGuard, LostReason, ReleaseError, RwLock,
};
use stanchion_tests::holds::Hold;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines, Stdin, stdin,
};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (role, url, name, lease_ms) = match args.as_slice() {
        [role, url, name, lease_ms, ..] => (*role, *url, *name, lease_ms.parse().unwrap()),
        other => panic!("usage: hold|count <url> <name> <lease ms> ..., not {other:?}"),
    };
    let client =
        Client::connect_with(ClientConfig::new(url).response_timeout(Duration::from_millis(500)))
            .await
            .unwrap();
    let lock = Lock::new(&client, name)
        .unwrap()
        .lease(Lease::new(Duration::from_millis(lease_ms)).unwrap());
    let raw = Raw::connect(url).await;
    println!("CONNECTED");
    let orders = BufReader::new(stdin()).lines();
    match (role, &args[4..]) {
        ("hold", []) => hold(&lock, raw, orders).await,
        ("read", [n]) => {
            let mut guards = Vec::new();
            for _ in 0..n.parse::<usize>().unwrap() {
                guards.push(rwlock(&client, &lock, lease_ms).read().await.unwrap());
            }
            println!("HELD");
            let lost = guards[0].lost();
            until_lost_or_ended(lost, orders).await;
        }
        ("write", []) => {
            let guard = rwlock(&client, &lock, lease_ms).write().await.unwrap();
            println!("HELD");
            until_lost_or_ended(guard.lost(), orders).await;
        }
        ("count", [process, tasks, rounds, history]) => {
            let counting = Counting {
                process: process.parse().unwrap(),
                tasks: tasks.parse().unwrap(),
                rounds: rounds.parse().unwrap(),
            };
            counting
                .run(&client, &lock, raw, orders, Path::new(history))
                .await;
        }
        (role, rest) => panic!("unknown role {role} with {rest:?}"),
    }
    let report = client.shutdown(Duration::from_secs(5)).await;
    assert!(report.is_clean(), "{report:?}");
}

fn rwlock(client: &Client, lock: &Lock, lease_ms: u64) -> RwLock {
    RwLock::new(client, lock.name().as_bytes())
        .unwrap()
        .lease(Lease::new(Duration::from_millis(lease_ms)).unwrap())
        .preference(Preference::Writer)
}

async fn until_lost_or_ended(
    lost: impl Future<Output = LostReason>,
    mut orders: Lines<BufReader<Stdin>>,
) {
    tokio::select! {
        biased;
        reason = lost => {
            println!("LOST {reason:?}");
            while orders.next_line().await.unwrap().is_some() {}
        }
        line = orders.next_line() => assert_eq!(line.unwrap(), None),
    }
}

async fn hold(lock: &Lock, mut raw: Raw, mut orders: Lines<BufReader<Stdin>>) {
    let guard = lock.acquire().await.unwrap();
    let token = guard.fencing_token().unwrap();
    println!("HELD {token}");
    let work = async {
        while let Some(order) = orders.next_line().await.unwrap() {
            match order.as_str() {
                "write" => println!("WROTE {}", raw.write_resource(token).await),
                "write later" => {
                    println!("WAITING");
                    tokio::time::sleep(Duration::from_millis(400)).await;
                    // This write must not happen after a loss.
                    println!("WRITING");
                    println!("WROTE {}", raw.write_resource(token).await);
                }
                // Executed below, outside of `run`.
                _ => return Some(order),
            }
        }
        None
    };
    let mut order = match guard.run(work).await {
        Ok(order) => order,
        Err(lost) => {
            println!("LOST {:?}", lost.reason);
            orders.next_line().await.unwrap()
        }
    };
    let mut guard = Some(guard);
    while let Some(text) = order {
        match text.as_str() {
            "write anyway" => println!("WROTE {}", raw.write_resource(token).await),
            "release" => println!("RELEASED{}", release(guard.take().unwrap()).await),
            other => panic!("unknown order {other}"),
        }
        order = orders.next_line().await.unwrap();
    }
}

async fn release(guard: LockGuard) -> &'static str {
    match guard.release().await {
        Ok(()) => "",
        Err(ReleaseError::Lost(_)) => " lost",
        Err(_) => " otherwise",
    }
}

struct Counting {
    process: u32,
    tasks: u32,
    rounds: u32,
}

impl Counting {
    async fn run(
        self,
        client: &Client,
        lock: &Lock,
        raw: Raw,
        mut orders: Lines<BufReader<Stdin>>,
        path: &Path,
    ) {
        let raw = Arc::new(Mutex::new(raw));
        orders.next_line().await.unwrap();
        let tasks: Vec<_> = (0..self.tasks)
            .map(|task| {
                let (client, lock, raw) = (client.clone(), lock.clone(), Arc::clone(&raw));
                let (process, rounds) = (self.process, self.rounds);
                tokio::spawn(async move {
                    let now = || client.now().since_origin();
                    let mut holds = Vec::new();
                    for _ in 0..rounds {
                        let invoked = now();
                        let guard = lock.acquire().await.unwrap();
                        let granted = now();
                        let token = guard.fencing_token().map(FencingToken::get).unwrap();
                        // The mutex protects the connection. The lock excludes the other tasks and processes.
                        let count: u64 =
                            raw.lock().await.call("GET counter").await.parse().unwrap();
                        raw.lock()
                            .await
                            .call(&format!("SET counter {}", count + 1))
                            .await;
                        let left = now();
                        guard.release().await.unwrap();
                        holds.push(Hold {
                            task: (process, task),
                            invoked,
                            granted,
                            token,
                            left,
                            released: now(),
                        });
                    }
                    holds
                })
            })
            .collect();
        let mut holds = Vec::new();
        for task in tasks {
            holds.extend(task.await.unwrap());
        }
        std::fs::write(path, serde_json::to_vec(&holds).unwrap()).unwrap();
    }
}

/// A separate connection, as the resource of an application would have.
struct Raw(BufReader<TcpStream>);

impl Raw {
    async fn connect(url: &str) -> Self {
        let addr = url.trim_start_matches("redis://").trim_end_matches('/');
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends an inline command and returns its reply, a status, a number or a text.
    async fn call(&mut self, command: &str) -> String {
        self.0
            .get_mut()
            .write_all(format!("{command}\r\n").as_bytes())
            .await
            .unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "+" | ":" => rest.to_owned(),
            "$" => {
                let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut text).await.unwrap();
                String::from_utf8(text).unwrap().trim_end().to_owned()
            }
            _ => panic!("{command}: {line}"),
        }
    }

    /// Writes to a resource that refuses a token below the highest it has seen.
    async fn write_resource(&mut self, token: FencingToken) -> &'static str {
        let check = "if tonumber(redis.call('get','resource')or'0')<=tonumber(ARGV[1])then redis.call('set','resource',ARGV[1])return(1)end;return(0)";
        let script = format!("EVAL \"{check}\" 0 {token}");
        if self.call(&script).await == "1" {
            "accepted"
        } else {
            "refused"
        }
    }
}
