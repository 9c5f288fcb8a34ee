//! Errors that help: each says on one line what happened, and what to do.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is missing"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use stanchion::{Client, ClientConfig, Lock};
use stanchion_testkit::{Cluster, RedisServer, SentinelSet};

/// Returns the error of a connect to `url`, which has one line.
async fn refused(url: &str) -> String {
    let config = ClientConfig::new(url).connect_timeout(Duration::from_secs(2));
    let error = Client::connect_with(config).await.unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

/// Answers each connection with `answer` as soon as it has sent anything. Returns its address.
fn answering(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 1024];
            // OK: a client that has gone already.
            if stream.read(&mut bytes).is_ok() {
                let _ = stream.write_all(answer);
            }
        }
    });
    address
}

#[cfg(feature = "embedded")]
#[tokio::test(start_paused = true)]
async fn paused_time_names_virtual_time() {
    let error = refused("memory://paused").await;
    assert_eq!(
        error,
        "cannot reach memory://paused: no answer within 2s of tokio's paused time; for memory:// set \
         ClientConfig::virtual_time(), a real server needs time that runs"
    );
    let config = ClientConfig::new("memory://paused").virtual_time();
    Client::connect_with(config).await.unwrap();
}

#[tokio::test]
async fn a_port_of_another_protocol_is_named() {
    let address = answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(
        refused(&format!("redis://{address}")).await,
        format!(
            "cannot reach redis://{address}: this is no Redis server: it answered \"HTTP/1.1 400 Bad Request\""
        )
    );
    let address = answering(b"SSH-2.0-x\x1b[2J\r\n");
    let error = refused(&format!("redis://{address}")).await;
    assert!(
        error.ends_with("it answered \"SSH-2.0-x\\u{1b}[2J\""),
        "{error}"
    );
    let address = answering(&[0x15, 3, 1, 0, 2, 2, 70]);
    let error = refused(&format!("redis://{address}")).await;
    assert!(
        error.ends_with("this port speaks TLS: use rediss:// in the URL"),
        "{error}"
    );
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_to_a_plain_port_names_tls_in_the_error() {
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "rediss://");
    let error = refused(&url).await;
    assert!(
        error.ends_with(
            "no answer within 2s: does this port speak TLS? redis:// connects without it"
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_refused_password_has_the_servers_own_words() {
    let open = RedisServer::start();
    let url = open.url().replace("redis://", "redis://:hunter2@");
    let error = refused(&url).await;
    assert!(
        error.contains(
            "not authenticated: ERR AUTH <password> called without any password configured"
        ),
        "{error}"
    );
    let closed = RedisServer::builder().password("secret").start();
    let address = closed.addr();
    let error = refused(&format!("redis://:hunter2@{address}")).await;
    assert!(
        error.contains("not authenticated: WRONGPASS invalid username-password pair"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_cluster_node_names_the_scheme() {
    let Some(cluster) = Cluster::or_skip("a_cluster_node_names_the_scheme") else {
        return;
    };
    let client = Client::connect(&cluster.node(0).url()).await.unwrap();
    let name = (0..).map(|number| format!("job{number}"));
    let mut elsewhere = name.filter(|name| cluster.master_of_key(name) != 0);
    let name = elsewhere.next().unwrap();
    let owner = cluster.node(cluster.master_of_key(&name)).addr();
    let lock = Lock::new(&client, &name).unwrap();
    let url = format!("; connect with redis+cluster://{owner}");
    for error in [
        lock.acquire().await.unwrap_err().to_string(),
        lock.status().await.unwrap_err().to_string(),
    ] {
        assert!(
            error.contains("the server is part of a cluster: MOVED "),
            "{error}"
        );
        assert!(error.ends_with(&url) && !error.contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn a_sentinel_names_the_scheme_and_the_service() {
    let Some(set) = SentinelSet::or_skip("a_sentinel_names_the_scheme_and_the_service") else {
        return;
    };
    let sentinel = set.sentinel(0).url();
    let error = refused(&sentinel).await;
    let place = sentinel
        .trim_start_matches("redis://")
        .trim_end_matches('/');
    let service = set.url();
    let service = service.rsplit('/').find(|part| !part.is_empty()).unwrap();
    let url = format!("connect with redis+sentinel://{place}/{service}");
    assert!(
        error.contains("it is a sentinel and has no locks") && error.ends_with(&url),
        "{error}"
    );
}

#[tokio::test]
async fn parameters_name_themselves_and_where_they_belong() {
    for (url, told) in [
        (
            "redis://h?db=3",
            "the parameter db is not known here: write the database as redis://host:port/3",
        ),
        (
            "redis://h/?database=x",
            "the parameter database is not known here: write the database as redis://host:port/N",
        ),
        (
            "redis+sentinel://h/main?db=3",
            "write the database as redis+sentinel://host:port/service/3",
        ),
        (
            "redis+cluster://h?db=3",
            "the parameter db is not known here: write the database as redis+cluster://host:port/3",
        ),
        (
            "redis://h?password=x",
            "the parameter password is not known here: write the login as redis://user:password@host",
        ),
        (
            "redis://h?protocol=3",
            "the parameter protocol is not known here",
        ),
    ] {
        let error = refused(url).await;
        assert!(error.contains(told), "{url}: {error}");
        assert!(!error.contains("password=x"), "{error}");
    }
    // It may be the rest of a password.
    let error = refused("redis://h?word").await;
    assert!(
        !error.contains("?word") && error.contains("in a password ? is written as %3F"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_right_names_the_keys_and_the_rule() {
    let server = RedisServer::start();
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pw",
        "+@all",
        "&*",
        "~other:*",
        "~stanchion_*",
    ];
    let _ = server.cli(&user);
    let url = server.url().replace("redis://", "redis://app:pw@");
    let client = Client::connect(&url).await.unwrap();
    let lock = Lock::new(&client, "job").unwrap();
    let error = lock.acquire().await.unwrap_err().to_string();
    assert!(
        error.contains("not permitted: NOPERM") && error.contains("ACL SETUSER … ~job"),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
    let allowed = Lock::new(&client, "other:job").unwrap();
    let guard = allowed.acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn too_few_nodes_says_that_a_dead_one_counts() {
    let error = stanchion::RedLock::new(&[], "job").unwrap_err().to_string();
    assert_eq!(
        error,
        "a RedLock has at least 3 nodes, not 0: give a client for each server, also for one that is down"
    );
}
