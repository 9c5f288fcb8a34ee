//! Tests the fair lock between real processes: the order of grants, and processes that are killed, stopped or stalled.

use std::collections::VecDeque;

use tokio::time::Instant;

use stanchion::{Client, FairLock, FairLockGuard};
use stanchion_testkit::{Process, RedisServer, Signal, eventually};
use stanchion_tests::faults::*;
use stanchion_tests::{lease, spawn_ok};
use tokio::task::JoinHandle;

const QUEUE: &str = "redisson_lock_queue:{orders}";

fn worker(server: &RedisServer, lease_ms: u64, tasks: u32, rounds: u32) -> Process {
    let numbers = [lease_ms, tasks.into(), rounds.into()].map(|n| n.to_string());
    let [lease_ms, tasks, rounds] = numbers.each_ref().map(String::as_str);
    let mut worker = Process::start(
        env!("CARGO_BIN_EXE_stanchion-fair-worker"),
        &[&server.url(), "orders", lease_ms, tasks, rounds],
    );
    line(&mut worker, "CONNECTED");
    worker
}

fn line(worker: &mut Process, start: &str) -> String {
    worker.wait_for_line(|line| line.starts_with(start), LONG)
}

fn finish(worker: &mut Process) {
    worker.close_stdin();
    assert!(worker.wait(LONG).success());
}

fn fair(client: &Client) -> FairLock {
    FairLock::new(client, "orders").unwrap().lease(lease(LONG))
}

fn queued(server: &RedisServer) -> i64 {
    server.cli(&["LLEN", QUEUE]).as_int()
}

async fn queue_of(server: &RedisServer, length: i64) {
    eventually("the calls are queued", || queued(server) == length).await;
}

fn acquiring(client: &Client) -> JoinHandle<FairLockGuard> {
    let lock = fair(client);
    spawn_ok(lock.acquire())
}

/// The history of a queue as MONITOR shows it: new waiters, removed waiters, and holders.
#[derive(Default)]
struct Order {
    queue: VecDeque<String>,
    popped: Option<String>,
    holder: Option<String>,
    grants: usize,
    most: usize,
}

impl Order {
    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        match words.as_slice() {
            ["RPUSH", queue, owner] if *queue == QUEUE => {
                self.queue.push_back((*owner).to_owned());
                self.most = self.most.max(self.queue.len());
            }
            ["LPOP", queue] if *queue == QUEUE => {
                self.popped = Some(self.queue.pop_front().unwrap());
            }
            ["HSET", "orders", owner, "1"] => {
                assert_eq!(
                    self.holder, None,
                    "P1: {owner} holds next to another holder"
                );
                match self.popped.take() {
                    Some(head) => assert_eq!(head, *owner, "P7"),
                    None => assert!(
                        self.queue.is_empty(),
                        "P7: {owner} overtook {:?}",
                        self.queue
                    ),
                }
                self.holder = Some((*owner).to_owned());
                self.grants += 1;
            }
            ["HDEL", "orders", owner] => {
                assert_eq!(self.holder.take().as_deref(), Some(*owner));
            }
            [command @ ("LREM" | "DEL"), key, ..] if *key == QUEUE || *key == "orders" => {
                panic!("{command} {key}")
            }
            _ => {}
        }
    }
}

#[test]
fn no_waiter_overtakes_in_a_thousand_rounds_of_four_processes() {
    let Some(server) = server() else { return };
    let monitor = server.monitor();
    let mut workers: Vec<Process> = (0..4).map(|_| worker(&server, 30_000, 5, 50)).collect();
    for worker in &mut workers {
        worker.send_line("go");
    }
    for worker in &mut workers {
        finish(worker);
    }
    let mut order = Order::default();
    for line in monitor.lines() {
        order.read(&line);
    }
    assert_eq!(order.grants, 1000);
    assert!(order.most > 5, "there was a queue: {}", order.most);
    assert!(order.queue.is_empty() && order.holder.is_none());
    let mut tokens: Vec<(u64, String)> = Vec::new();
    for worker in &mut workers {
        for line in worker
            .lines()
            .iter()
            .filter(|line| line.starts_with("HELD"))
        {
            tokens.push((
                line.rsplit(' ').next().unwrap().parse().unwrap(),
                line.clone(),
            ));
        }
    }
    tokens.sort();
    tokens.dedup_by_key(|(token, _)| *token);
    assert_eq!(tokens.len(), 1000, "P2");
    assert!(leftovers(&server).is_empty(), "{:?}", leftovers(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_killed_with_fifty_waiters_delay_no_other() {
    for killed in [1, 3] {
        let Some(server) = server() else { return };
        let client = connect(server.url()).await;
        let held = fair(&client).acquire().await.unwrap();
        let mut doomed: Vec<Process> = Vec::new();
        for i in 0..killed {
            let mut process = worker(&server, 30_000, 50, 1);
            process.send_line("go");
            queue_of(&server, 50 * (i + 1)).await;
            doomed.push(process);
        }
        let next = acquiring(&client);
        queue_of(&server, 50 * killed + 1).await;
        // A process counts as alive for a second after its first request, because it is about to subscribe.
        tokio::time::sleep(ms(1100)).await;
        for process in &mut doomed {
            process.signal(Signal::Kill);
            process.wait(LONG);
        }
        let started = Instant::now();
        held.release().await.unwrap();
        let guard = soon(LONG, next).await.unwrap();
        assert!(
            started.elapsed() <= SLACK,
            "P7: {:?} for {killed}",
            started.elapsed()
        );
        guard.release().await.unwrap();
        nothing_left(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_executor_keeps_its_queue_entries_and_its_grant() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let held = fair(&client).acquire().await.unwrap();
    let mut stalled = worker(&server, 30_000, 2, 1);
    stalled.send_line("go");
    queue_of(&server, 2).await;
    let last = acquiring(&client);
    queue_of(&server, 3).await;
    stalled.send_line("stall");
    line(&mut stalled, "STALLING");
    tokio::time::sleep(ms(2300)).await;
    assert_eq!(queued(&server), 3, "P7: no waiter is evicted");
    held.release().await.unwrap();
    eventually("the stalled process is granted and renews", || {
        server.cli(&["PTTL", "orders"]).as_int() > 2000
    })
    .await;
    assert_eq!(queued(&server), 2);
    stalled.send_line("go on");
    finish(&mut stalled);
    let lines = stalled.lines().to_vec();
    let at = |start: &str| lines.iter().position(|line| line.starts_with(start));
    assert!(at("STALLED") < at("HELD"), "{lines:?}");
    soon(LONG, last).await.unwrap().release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_channel_rights_releases_and_acquires() {
    let Some(server) = server() else { return };
    let mute = [
        "ACL",
        "SETUSER",
        "mute",
        "on",
        ">secret",
        "~*",
        "+@all",
        "resetchannels",
    ];
    admin(&server, &mute);
    let url = server.url().replace("redis://", "redis://mute:secret@");
    let (mute, other) = (connect(url).await, connect(server.url()).await);
    let held = fair(&mute).acquire().await.unwrap();
    let next = acquiring(&other);
    queue_of(&server, 1).await;
    held.release().await.unwrap();
    let started = Instant::now();
    let guard = soon(LONG, next).await.unwrap();
    assert!(
        started.elapsed() < ms(5000) + SLACK,
        "the next poll finds the free lock"
    );
    // Conversely, a waiter that may not subscribe polls.
    let next = acquiring(&mute);
    queue_of(&server, 1).await;
    guard.release().await.unwrap();
    let started = Instant::now();
    let guard = soon(LONG, next).await.unwrap();
    assert!(started.elapsed() < ms(500) + SLACK);
    guard.release().await.unwrap();
    nothing_left(&server).await;
}
