//! The example with axum, and clients that disconnect.

use stanchion_embedded::Engine;
use stanchion_tower::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[path = "../../examples/axum.rs"]
mod example;

/// A response. The status is 0 if the connection ended without one.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) body: String,
}

/// Sends a request on a new connection.
async fn begin(address: &str, path: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

pub(crate) async fn exchange(address: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut stream = begin(address, path, headers, body).await;
    let mut text = String::new();
    // A reset of the connection is an end, too.
    let _ = stream.read_to_string(&mut text).await;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    Answer {
        status: head
            .split(' ')
            .nth(1)
            .map_or(0, |status| status.parse().unwrap()),
        replayed: head.contains("idempotency-replayed: true"),
        body: body.to_owned(),
    }
}

/// A process that runs the example.
struct Service {
    address: String,
    stop: oneshot::Sender<()>,
    served: JoinHandle<String>,
}

async fn start(url: &str) -> Service {
    let client = Client::connect(url).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(async move {
        let stop = async { stopped.await.unwrap() };
        let report = example::serve(listener, &client, stop).await.unwrap();
        format!("{report:?}")
    });
    Service {
        address,
        stop,
        served,
    }
}

/// Waits until the server has a key that begins with `prefix`, or has none.
async fn wait_for(engine: &Engine, prefix: &str, there: bool) {
    let what = format!("{prefix} is there: {there}");
    stanchion_testkit::eventually(&what, || {
        engine.any_key(|key| key.starts_with(prefix.as_bytes())) == there
    })
    .await;
}

#[tokio::test]
async fn the_lock_of_a_client_that_disconnects_is_free_in_all_processes() {
    let url = "memory://tower-axum-settle";
    let engine = Engine::named("tower-axum-settle");
    let (here, there) = (start(url).await, start(url).await);
    let path = "/accounts/7/settle";
    let minute = begin(&here.address, path, "", "60000").await;
    wait_for(&engine, "accounts:/accounts/7", true).await;
    drop(minute);
    // It waits for at most 5 s.
    let next = exchange(&there.address, path, "", "0").await;
    assert_eq!(next.status, 200, "{next:?}");
    wait_for(&engine, "accounts:/accounts/7", false).await;
}

#[tokio::test]
async fn a_payment_ends_although_its_client_disconnects() {
    let url = "memory://tower-axum-pay";
    let engine = Engine::named("tower-axum-pay");
    let (here, there) = (start(url).await, start(url).await);
    let headers = "x-user: ann\r\nidempotency-key: \"1\"\r\n";
    let first = begin(&here.address, "/payments", headers, "200").await;
    wait_for(&engine, "idempotency:", true).await;
    drop(first);
    // The claim is never free without a stored response.
    wait_for(&engine, "stanchion_done:", true).await;
    let answer = exchange(&there.address, "/payments", headers, "200").await;
    assert_eq!((answer.status, answer.replayed), (201, true));
    let without = exchange(&there.address, "/payments", "x-user: ann\r\n", "0").await;
    assert_eq!(without.status, 400);
}

#[tokio::test]
async fn a_graceful_shutdown_ends_requests_and_leaves_nothing_behind() {
    let url = "memory://tower-axum-shutdown";
    let engine = Engine::named("tower-axum-shutdown");
    let service = start(url).await;
    let path = "/accounts/7/settle";
    let (address, dropped) = (
        service.address.clone(),
        begin(&service.address, "/accounts/8/settle", "", "60000").await,
    );
    wait_for(&engine, "accounts:/accounts/8", true).await;
    let running = tokio::spawn(async move { exchange(&address, path, "", "300").await });
    wait_for(&engine, "accounts:/accounts/7", true).await;
    // This client disconnects in the last moment: its lock is released in the background.
    drop(dropped);
    service.stop.send(()).unwrap();
    let report = service.served.await.unwrap();
    assert_eq!(running.await.unwrap().status, 200);
    assert!(
        !engine.any_key(|key| key.starts_with(b"accounts")),
        "{report}"
    );
}
