//! A process is killed, or paused, in the middle of a request with an idempotency key. On a real server.
#![expect(clippy::print_stdout, reason = "a child process reports to its parent")]

use std::process::Command;
use std::time::Duration;

use ::axum::{Extension, Router, routing::post};
use stanchion_testkit::{Process, RedisServer, Signal, eventually};
use stanchion_tower::{Claim, Client, IdempotencyLayer, Lease};
use tokio::net::TcpListener;

use crate::axum::{Answer, exchange};

const URL: &str = "STANCHION_TOWER_TEST_URL";
const LEASE: Duration = Duration::from_millis(1500);
const LIMIT: Duration = Duration::from_secs(20);

/// The program of the child processes. The handler reports its token, and never ends if the child was started to hang.
#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let hangs = std::env::var("HANGS").is_ok();
    let client = Client::connect(url.as_str()).await.unwrap();
    let layer = IdempotencyLayer::new(&client, "pay", |_| Some("ann".to_owned()));
    let layer = layer.unwrap().lease(Lease::new(LEASE).unwrap());
    let handler = async move |Extension(claim): Extension<Claim>| {
        let token = claim.fencing_token().unwrap();
        println!("\nrunning {token}");
        if hangs {
            std::future::pending::<()>().await;
        }
        token.to_string()
    };
    let app = Router::new().route("/pay", post(handler)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("\nlistening {}", listener.local_addr().unwrap());
    ::axum::serve(listener, app).await.unwrap();
}

struct Child {
    process: Process,
    address: String,
}

impl Child {
    fn start(server: &RedisServer, hangs: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed::child", "--nocapture"]);
        command.env(URL, server.url());
        if hangs {
            command.env("HANGS", "1");
        }
        let mut process = Process::spawn(&mut command);
        let line = process.wait_for_line(|line| line.starts_with("listening "), LIMIT);
        let address = line.trim_start_matches("listening ").to_owned();
        Self { process, address }
    }

    /// The token of the request that the child has begun.
    fn running(&mut self) -> u64 {
        let line = self
            .process
            .wait_for_line(|line| line.starts_with("running "), LIMIT);
        line.trim_start_matches("running ").parse().unwrap()
    }
}

async fn pay(address: &str) -> Answer {
    exchange(address, "/pay", "idempotency-key: \"k\"\r\n", "5").await
}

/// The rest of the claim's lease in ms; `None` without a claim.
fn claimed(server: &RedisServer) -> Option<i64> {
    let keys = server.cli(&["KEYS", "idempotency:*"]);
    let claim = keys.as_array().first()?.as_text();
    Some(server.cli(&["PTTL", claim]).as_int())
}

/// Pays as soon as the claim has ended.
async fn pay_when_free(server: &RedisServer, address: &str) -> Answer {
    eventually("the claim has ended", || claimed(server).is_none()).await;
    pay(address).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claim_of_a_killed_process_is_freed_and_the_next_token_is_larger() {
    let Some(server) = RedisServer::or_skip("the_claim_of_a_killed_process_is_freed") else {
        return;
    };
    let (mut killed, next) = (Child::start(&server, true), Child::start(&server, false));
    let address = killed.address.clone();
    let first = tokio::spawn(async move { pay(&address).await });
    let token = killed.running();
    let mut least = i64::MAX;
    eventually("the claim is renewed", || {
        let left = claimed(&server).unwrap();
        least = least.min(left);
        left > least
    })
    .await;
    assert_eq!(pay(&next.address).await.status, 409);
    killed.process.signal(Signal::Kill);
    assert_eq!(
        first.await.unwrap().status,
        0,
        "the connection ends without a response"
    );
    let answer = pay_when_free(&server, &next.address).await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.body.parse::<u64>().unwrap() > token,
        "{answer:?} after {token}"
    );
    let again = pay(&next.address).await;
    assert_eq!((again.body, again.replayed), (answer.body, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_process_does_not_answer_after_its_successor() {
    let Some(server) = RedisServer::or_skip("a_paused_process_does_not_answer") else {
        return;
    };
    let (mut paused, next) = (Child::start(&server, true), Child::start(&server, false));
    let address = paused.address.clone();
    let first = tokio::spawn(async move { pay(&address).await });
    let token = paused.running();
    paused.process.signal(Signal::Stop);
    let answer = pay_when_free(&server, &next.address).await;
    assert!(
        answer.body.parse::<u64>().unwrap() > token,
        "{answer:?} after {token}"
    );
    paused.process.signal(Signal::Cont);
    assert_eq!(first.await.unwrap().status, 503);
    assert_eq!(pay(&next.address).await.body, answer.body);
}
