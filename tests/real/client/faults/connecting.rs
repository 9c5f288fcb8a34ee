//! Tests connects that fail: they return a typed error within the connect timeout, and never panic.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stanchion::error::ServerRejection;
use stanchion::{
    AcquireError, AcquireOptions, Client, ClientConfig, ConfigError, ConnectError, Semaphore,
};
use stanchion_testkit::{Certificate, Proxy, RedisServer, machine_clock};
use stanchion_tests::assert_is;
use stanchion_tests::faults::*;

/// Returns the error of a connect, which must fail within its timeout.
async fn refused(config: ClientConfig) -> ConnectError {
    let timeout = config.connect_timeout.min(ms(2000));
    let (began, config) = (machine_clock(), config.connect_timeout(timeout));
    let error = Client::connect_with(config).await.unwrap_err();
    assert!(machine_clock() - began < timeout + SLACK, "P9: {error}");
    error
}

fn unreachable(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Unreachable { .. })
}

fn tls(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Tls { .. })
}

/// Opens a port that replies `answer` to the first bytes of each connection, or never replies.
fn stranger(answer: Option<&'static [u8]>) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    // The thread ends with the process.
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if let Some(answer) = answer {
                let mut some = [0; 512];
                // The client may have closed the connection.
                let _ = stream.read(&mut some);
                let _ = stream.write_all(answer);
            }
            open.push(stream);
        }
    });
    addr
}

/// The error names the server.
#[tokio::test]
async fn a_closed_port_an_unknown_host_and_a_missing_socket_are_unreachable() {
    // Bound and dropped: no process listens on the port.
    let addr = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr();
    let addr = addr.unwrap().to_string();
    for (url, named) in [
        (format!("redis://{addr}/"), addr.as_str()),
        (
            "redis://no-such-host.invalid/".into(),
            "no-such-host.invalid",
        ),
        ("unix:///nowhere/redis.sock".into(), "/nowhere/redis.sock"),
    ] {
        let error = refused(config(url)).await;
        assert!(unreachable(&error), "{error:?}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
async fn a_port_that_never_answers_is_unreachable_within_the_timeout() {
    let addr = stranger(None);
    for url in [format!("redis://{addr}/"), format!("rediss://{addr}/")] {
        let error = refused(config(url).connect_timeout(ms(300))).await;
        assert!(unreachable(&error), "{error:?}");
    }
}

#[tokio::test]
async fn a_frozen_network_is_unreachable_within_the_timeout() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    proxy.freeze_all();
    let error = refused(config(proxy.url()).connect_timeout(ms(300))).await;
    assert!(unreachable(&error), "{error:?}");
}

#[tokio::test]
async fn a_port_with_another_protocol_is_an_error() {
    for answer in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"+OK\r\n+OK\r\n",
        b"\x00\xff\x00\xff",
        b"$-5\r\n",
        b"-ERR no\r\n",
    ] {
        let addr = stranger(Some(answer));
        let error = refused(config(format!("redis://{addr}/")).connect_timeout(ms(300))).await;
        let fits = matches!(
            error,
            ConnectError::Unreachable { .. } | ConnectError::Rejected { .. }
        );
        assert!(fits, "{:?}: {error:?}", String::from_utf8_lossy(answer));
        let error = refused(config(format!("rediss://{addr}/")).connect_timeout(ms(300))).await;
        assert!(tls(&error) || unreachable(&error), "{error:?}");
    }
}

#[tokio::test]
async fn tls_on_a_plain_port_is_a_tls_error() {
    let Some(server) = server() else { return };
    // Redis waits for the end of a line and sends no reply, so the connect may also time out.
    let error =
        refused(config(format!("rediss://{}/", server.addr())).connect_timeout(ms(500))).await;
    assert!(tls(&error) || unreachable(&error), "{error:?}");
}

#[tokio::test]
async fn a_plain_client_on_a_tls_port_is_refused() {
    let Some(server) = with_tls() else { return };
    let error = refused(config(format!("redis://{}/", server.addr()))).await;
    assert!(unreachable(&error), "{error:?}");
}

/// Writes the authority that a server's clients must trust to a file.
pub(crate) fn ca_file(server: &RedisServer) -> PathBuf {
    // Next to the server's own files, which are removed with the server.
    let path = server.unix_path().with_file_name("trusted.crt");
    std::fs::write(&path, server.ca_pem()).unwrap();
    path
}

#[tokio::test]
async fn a_bad_certificate_is_a_tls_error() {
    for (kind, word) in [
        (Certificate::OtherCa, "UnknownIssuer"),
        (Certificate::Expired, "xpired"),
        (Certificate::WrongHost, "not valid for name"),
    ] {
        let Some(server) = start(RedisServer::builder().tls_with(kind)) else {
            return;
        };
        let error = refused(config(server.url()).tls_ca_file(ca_file(&server))).await;
        assert!(tls(&error), "{kind:?}: {error:?}");
        assert!(error.to_string().contains(word), "{kind:?}: {error}");
    }
}

#[tokio::test]
async fn an_authority_that_is_not_trusted_is_a_tls_error() {
    let Some(server) = with_tls() else { return };
    // The client trusts the platform's authorities only.
    let error = refused(config(server.url())).await;
    assert!(tls(&error), "{error:?}");
}

#[tokio::test]
async fn a_bad_authority_file_is_a_configuration_error() {
    let Some(server) = with_tls() else { return };
    let empty = server.unix_path().with_file_name("empty.crt");
    std::fs::write(&empty, "").unwrap();
    for path in [empty, PathBuf::from("/nowhere/ca.crt")] {
        let error = refused(config(server.url()).tls_ca_file(path)).await;
        let fits = matches!(
            &error,
            ConnectError::Config(ConfigError::InvalidSetting {
                setting: "tls_ca_file",
                ..
            })
        );
        assert!(fits, "{error:?}");
    }
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_a_rejection() {
    let Some(server) = server() else { return };
    let error = refused(config(format!("{}99", server.url()))).await;
    assert_is!(
        error,
        ConnectError::Rejected {
            rejection: ServerRejection::Other { .. },
            ..
        }
    );
}

#[tokio::test]
async fn a_huge_reply_is_refused_without_reading_it() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    let most = Arc::new(AtomicUsize::new(0));
    let sent = Arc::clone(&most);
    // The thread ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, most) = (stream.unwrap(), Arc::clone(&most));
            thread::spawn(move || {
                let mut sent = 0;
                let mut part: &[u8] = b"$400000000\r\n";
                while stream.write_all(part).is_ok() {
                    sent += part.len();
                    most.fetch_max(sent, Ordering::Relaxed);
                    part = &[b'x'; 65_536];
                }
            });
        }
    });
    let error = refused(config(format!("redis://{addr}/"))).await;
    assert!(unreachable(&error), "{error:?}");
    assert!(error.to_string().contains("too long"), "{error}");
    // Bytes that the client does not read fill the buffers of the two sockets.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 32 * 1024 * 1024, "{sent} bytes");
}

#[tokio::test]
async fn a_lazy_client_serves_calls_when_its_server_starts() {
    let Some(mut server) = server() else { return };
    server.kill();
    let config = config(server.url()).operation_timeout(LONG);
    let client = Client::connect_lazy_with(config).await.unwrap();
    assert!(!client.is_connected());
    assert_eq!(client.server().version, "unknown");
    let orders = lock(&client, "orders", LONG);
    let timeout = AcquireOptions::new().timeout(ms(100));
    let error = orders.try_acquire_with(timeout).await.unwrap_err();
    assert!(
        matches!(error, AcquireError::Unavailable { .. }),
        "P8: {error}"
    );
    // Calls that begin before the server starts: a query, which is sent again; an `init`, which has a deadline on the server; and a wait.
    let permits = Semaphore::new(&client, "permits").unwrap();
    let querying = tokio::spawn(async move { (permits.available().await, permits.init(3).await) });
    let waiter = waiting(&orders);
    server.restart();
    granted(waiter, LONG).await.release().await.unwrap();
    let (available, made) = soon(LONG, querying).await.unwrap();
    assert_eq!((available.unwrap(), made.unwrap()), (0, true));
    assert!(client.is_connected());
    assert_ne!(client.server().version, "unknown");
}

#[tokio::test]
async fn a_lazy_client_checks_its_server_before_its_first_call() {
    let Some(server) = start(RedisServer::builder().cluster_enabled()) else {
        return;
    };
    let client = Client::connect_lazy_with(config(server.url()))
        .await
        .unwrap();
    let timeout = AcquireOptions::new().timeout(ms(500));
    let error = lock(&client, "orders", LONG)
        .try_acquire_with(timeout)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
    assert!(!server.commands_processed().contains_key("evalsha"));
    // A bad URL is an error without a server.
    let error = Client::connect_lazy("redis://h:port").await.unwrap_err();
    assert!(matches!(error, ConnectError::Config(_)), "{error}");
}

#[tokio::test]
async fn a_full_server_is_named_as_the_reason() {
    let Some(server) = server() else { return };
    admin(&server, &["CONFIG", "SET", "maxclients", "4"]);
    let hogs = || std::net::TcpStream::connect(server.addr());
    let hogs: Vec<_> = std::iter::repeat_with(hogs).take(4).collect();
    // The server closes the connection before, during or after the client's login.
    for _ in 0..10 {
        let error = refused(config(server.url())).await;
        assert!(unreachable(&error), "it may pass: {error:?}");
        let text = error.to_string();
        assert!(text.contains("max number of clients reached"), "{text}");
    }
    drop(hogs);
}
