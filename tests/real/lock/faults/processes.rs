//! Tests other processes: paused, killed, and shut down.

use stanchion_testkit::{Process, RedisServer, Signal};
use stanchion_tests::faults::*;

/// The resource that the workers write to: it refuses a token below the highest it has seen.
const RESOURCE: &str = "resource";

fn worker(role: &str, server: &RedisServer, lease_ms: u64) -> Process {
    Process::start(
        env!("CARGO_BIN_EXE_stanchion-test-worker"),
        &[role, &server.url(), "orders", &lease_ms.to_string()],
    )
}

fn line(worker: &mut Process, start: &str) -> String {
    worker.wait_for_line(|line| line.starts_with(start), LONG / 3)
}

fn number(line: &str) -> u64 {
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_paused_beyond_its_lease_detects_the_loss_before_it_writes() {
    let Some(server) = server() else { return };
    let mut holder = worker("hold", &server, 600);
    let stale = number(&line(&mut holder, "HELD"));
    // The worker writes on command, at an await inside `guard.run`.
    holder.send_line("write");
    assert_eq!(line(&mut holder, "WROTE"), "WROTE accepted");
    // The worker will write again when its timer fires.
    holder.send_line("write later");
    line(&mut holder, "WAITING");
    holder.signal(Signal::Stop);
    let lock = lock_of(server.url(), "orders", LONG).await;
    let guard = soon(LONG / 3, lock.acquire()).await.unwrap();
    assert!(token(&guard) > stale, "P2");
    let wrote = server.cli(&["SET", RESOURCE, &token(&guard).to_string(), "GET"]);
    assert_eq!(wrote.as_int(), i64::try_from(stale).unwrap());
    let seen = holder.lines().len();
    // When the process continues, its timer has fired and its lease has ended. The loss must come first.
    holder.signal(Signal::Cont);
    let lost = line(&mut holder, "LOST");
    assert_eq!(lost, "LOST Expired");
    assert_eq!(holder.lines()[seen], lost, "P5: nothing was written before");
    // The resource refuses a write that ignores the loss.
    holder.send_line("write anyway");
    assert_eq!(line(&mut holder, "WROTE"), "WROTE refused");
    holder.send_line("release");
    assert_eq!(line(&mut holder, "RELEASED"), "RELEASED lost");
    quiet(&server).await;
    assert_eq!(
        hold_count(&server, "orders"),
        1,
        "the late release affects no other hold"
    );
    guard.release().await.unwrap();
    nothing_left_but_the_resource(&server);
}

fn nothing_left_but_the_resource(server: &RedisServer) {
    assert_eq!(leftovers(server), [RESOURCE]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_paused_for_less_than_its_lease_keeps_its_hold() {
    let Some(server) = server() else { return };
    let mut worker = worker("hold", &server, 3000);
    line(&mut worker, "HELD");
    let before = server.cli(&["PTTL", "orders"]).as_int();
    worker.signal(Signal::Stop);
    stanchion_testkit::eventually("a renewal is overdue", || {
        server.cli(&["PTTL", "orders"]).as_int() < before.min(1700)
    })
    .await;
    worker.signal(Signal::Cont);
    stanchion_testkit::eventually("the watchdog renews", || {
        server.cli(&["PTTL", "orders"]).as_int() > 1700
    })
    .await;
    worker.send_line("write");
    assert_eq!(line(&mut worker, "WROTE"), "WROTE accepted");
    worker.send_line("release");
    assert_eq!(line(&mut worker, "RELEASED"), "RELEASED");
    nothing_left_but_the_resource(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_blocks_the_others_for_its_lease_at_most() {
    let Some(server) = server() else { return };
    let mut holder = worker("hold", &server, 900);
    let stale = number(&line(&mut holder, "HELD"));
    // A killed holder publishes no message, and the poll interval is 30 s.
    let client = stanchion::Client::connect_with(config(server.url()).poll_interval(LONG))
        .await
        .unwrap();
    let waiter = waiting(&lock(&client, "orders", LONG));
    subscribed(&server, "orders").await;
    holder.signal(Signal::Kill);
    let guard = granted(waiter, ms(900) + SLACK).await;
    assert!(token(&guard) > stale, "P2");
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_waiters_leave_nothing_and_delay_no_other_waiter() {
    let Some(server) = server() else { return };
    let guard = acquired(server.url(), "orders", LONG).await;
    let mut killed: Vec<Process> = (0..3).map(|_| worker("hold", &server, 900)).collect();
    for process in &mut killed {
        line(process, "CONNECTED");
    }
    stanchion_testkit::eventually("the calls wait", || {
        server.subscribers("redisson_lock__channel:{orders}") == 3
    })
    .await;
    let waiter = waiting(&lock_of(server.url(), "orders", LONG).await);
    stanchion_testkit::eventually("the last call waits", || {
        server.subscribers("redisson_lock__channel:{orders}") == 4
    })
    .await;
    for process in &mut killed {
        process.signal(Signal::Kill);
        process.wait(LONG / 3);
    }
    guard.release().await.unwrap();
    served(waiter, LONG / 3).await;
    nothing_left(&server).await;
}

/// Rule L13 of docs/protocol.md: a grant by message lasts for 1.5 s. The stopped process continues after the end of its grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_waiter_at_the_head_costs_one_short_grant() {
    let Some(server) = server() else { return };
    let guard = acquired(server.url(), "orders", LONG).await;
    let mut stopped = worker("hold", &server, 30_000);
    line(&mut stopped, "CONNECTED");
    let entries = |count: &str| {
        server.cli(&["ZCARD", "stanchion_line:{orders}"]).as_int() == count.parse::<i64>().unwrap()
    };
    stanchion_testkit::eventually("the worker is queued", || entries("1")).await;
    let waiter = waiting(&lock_of(server.url(), "orders", LONG).await);
    stanchion_testkit::eventually("the second call is queued behind it", || entries("2")).await;
    quiet(&server).await;
    stopped.signal(Signal::Stop);
    let released = tokio::time::Instant::now();
    guard.release().await.unwrap();
    let guard = granted(waiter, ms(1500) + SLACK).await;
    assert!(released.elapsed() >= ms(1400), "{:?}", released.elapsed());
    let ours = token(&guard);
    stopped.signal(Signal::Cont);
    quiet(&server).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(number(&line(&mut stopped, "HELD")) > ours, "P2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_shuts_down_leaves_nothing() {
    let Some(server) = server() else { return };
    let mut worker = worker("hold", &server, 30_000);
    line(&mut worker, "HELD");
    // The worker drops its guard, calls `Client::shutdown`, and returns from `main`.
    worker.close_stdin();
    assert!(worker.wait(LONG / 3).success());
    assert_eq!(leftovers(&server), [] as [String; 0]);
}
