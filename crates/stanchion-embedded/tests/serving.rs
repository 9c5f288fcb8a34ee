//! Clients of other processes that do not behave: they harm themselves.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is missing"
)]

use std::time::Duration;

use stanchion_embedded::{Engine, Reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);
const MEGABYTE: usize = 1024 * 1024;

/// A client at a real socket, and the task that serves it.
fn client(engine: &Engine) -> (UnixStream, JoinHandle<std::io::Result<()>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let engine = engine.clone();
    (
        ours,
        tokio::spawn(async move { engine.serve(theirs).await }),
    )
}

async fn answer(stream: &mut UnixStream, request: &[u8]) -> String {
    stream.write_all(request).await.unwrap();
    let mut bytes = vec![0; 4096];
    let read = timeout(SOON, stream.read(&mut bytes)).await;
    let read = read.unwrap().unwrap();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

async fn is_well(engine: &Engine) {
    let (mut other, _serving) = client(engine);
    assert_eq!(answer(&mut other, b"PING\r\n").await, "+PONG\r\n");
}

#[tokio::test]
async fn a_request_of_a_gigabyte_is_refused_when_it_is_announced() {
    let engine = Engine::new();
    let (mut stream, serving) = client(&engine);
    let request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1073741824\r\n";
    let refused = answer(&mut stream, request).await;
    assert_eq!(refused, "-ERR Protocol error: invalid bulk length\r\n");
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
    is_well(&engine).await;
}

#[tokio::test]
async fn many_small_arguments_are_refused_before_they_fill_the_memory() {
    let engine = Engine::new();
    let (mut stream, serving) = client(&engine);
    let argument = [b"$100\r\n".as_slice(), &[b'x'; 100], b"\r\n"].concat();
    let chunk = argument.repeat(10_000);
    let sending = tokio::spawn(async move {
        stream.write_all(b"*1000000\r\n").await.unwrap();
        let mut sent = 0;
        while stream.write_all(&chunk).await.is_ok() {
            sent += 1;
        }
        sent * 10_000
    });
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
    let sent: usize = timeout(SOON, sending).await.unwrap().unwrap();
    assert!((500_000..750_000).contains(&sent), "{sent} arguments taken");
    is_well(&engine).await;
}

#[tokio::test]
async fn a_subscriber_that_never_reads_is_disconnected() {
    let engine = Engine::new();
    let (mut stream, serving) = client(&engine);
    answer(&mut stream, b"SUBSCRIBE c\r\n").await;
    let message = vec![b'x'; MEGABYTE];
    let mut published = 0;
    while engine.execute(&[b"PUBLISH".as_slice(), b"c", &message]) == Reply::Int(1) {
        published += 1;
        assert!(published < 100, "it never ends");
        tokio::task::yield_now().await;
    }
    assert!(published > 60, "{published} megabytes may wait");
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
    assert_eq!(engine.stats().connections, 0);
}

#[tokio::test]
async fn requests_wait_while_their_client_does_not_read() {
    const REQUESTS: usize = 1000;
    let engine = Engine::new();
    let value = vec![b'x'; MEGABYTE];
    engine.execute(&[b"SET".as_slice(), b"big", &value]);
    let (mut stream, _serving) = client(&engine);
    // All in one piece, and nothing after it.
    let requests = b"GET big\r\n".repeat(REQUESTS);
    stream.write_all(&requests).await.unwrap();
    stream.shutdown().await.unwrap();
    is_well(&engine).await;
    let executed = engine.stats().count("get");
    assert!(executed < 10, "{executed} replies wait in memory");
    let (mut bytes, mut read) = (vec![0; MEGABYTE], 0);
    loop {
        match timeout(SOON, stream.read(&mut bytes))
            .await
            .unwrap()
            .unwrap()
        {
            0 => break,
            more => read += more,
        }
    }
    assert_eq!(read, REQUESTS * (MEGABYTE + "$1048576\r\n\r\n".len()));
}

#[tokio::test]
async fn http_is_not_executed() {
    let engine = Engine::new();
    for request in [
        "POST / HTTP/1.1\r\nX: y\r\n\r\nSET smuggled 1\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\nSET smuggled 1\r\n",
    ] {
        let (mut stream, serving) = client(&engine);
        stream.write_all(request.as_bytes()).await.unwrap();
        timeout(SOON, serving).await.unwrap().unwrap().unwrap();
        assert!(engine.keys().is_empty(), "{request}");
    }
}

/// An engine whose clock runs at twenty times the speed of the machine's.
fn in_fast_time() -> Engine {
    let began = tokio::time::Instant::now();
    Engine::with_clock(move || Duration::from_secs(1_800_000_000) + began.elapsed() * 20)
}

/// Runs a script; a test of one that does not end fails.
fn in_time(engine: &Engine, script: &'static str) -> Reply {
    let (done, reply) = std::sync::mpsc::channel();
    let engine = engine.clone();
    std::thread::spawn(move || done.send(engine.execute(&["EVAL", script, "0"])));
    let reply = reply.recv_timeout(SOON);
    reply.unwrap_or_else(|_| panic!("it does not end: {script}"))
}

#[test]
fn a_script_without_end_is_stopped_and_one_that_eats_memory_too() {
    let engine = in_fast_time();
    for key in 0..10_000 {
        engine.execute(&["SET", &format!("k{key}"), "v"]);
    }
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "coroutine.wrap(function() while true do end end)()",
        "coroutine.wrap(function() while true do pcall(function() while true do end end) end end)()",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "while true do pcall(redis.call, 'KEYS', '*') end",
        "while true do redis.pcall('NONE') end",
    ] {
        let stopped = in_time(&engine, script);
        let Reply::Error(text) = stopped else {
            panic!("{stopped:?}");
        };
        assert!(text.contains("ran for more than 5 s"), "{script}: {text}");
    }
    let hungry = "local t = {} while true do t[#t + 1] = string.rep('x', 1000000) .. #t end";
    let stopped = engine.execute(&["EVAL", hungry, "0"]);
    assert!(
        matches!(&stopped, Reply::Error(text) if text.contains("memory")),
        "{stopped:?}"
    );
    let long = "local n = 0 for i = 1, 1000000 do n = n + 1 end return n";
    assert_eq!(engine.execute(&["EVAL", long, "0"]), Reply::Int(1_000_000));
    let after = engine.execute(&["EVAL", "return #string.rep('x', 1000000)", "0"]);
    assert_eq!(after, Reply::Int(1_000_000));
}

/// Lua 5.1 overwrote its own stack for it.
#[test]
fn no_script_ends_the_process() {
    let engine = Engine::new();
    let doubling = "local t = {1} for i = 1, 60 do t = {t, t} end return t";
    for script in [
        "return {unpack({1, 2, 3}, -1, 2147483647)}",
        "return {unpack({1, 2, 3}, 2147483646, 4294967296)}",
        "return {unpack({1, 2, 3}, 0/0, 1/0)}",
        doubling,
    ] {
        let refused = engine.execute(&["EVAL", script, "0"]);
        assert!(matches!(refused, Reply::Error(_)), "{script}: {refused:?}");
    }
}

#[test]
fn what_has_expired_takes_no_memory() {
    let engine = Engine::new();
    engine.execute(&["SET", "short", "v", "PX", "1"]);
    engine.execute(&["SET", "long", "v"]);
    while engine.execute(&["PTTL", "short"]) != Reply::Int(-2) {
        std::thread::yield_now();
    }
    assert!(engine.any_key(|key| key == b"long"));
    assert!(!engine.any_key(|key| key == b"short"));
}

#[test]
fn a_count_that_no_memory_could_hold_is_refused() {
    let engine = Engine::new();
    engine.execute(&["HSET", "h", "f", "v"]);
    for count in ["-9223372036854775808", "-100000000000"] {
        let refused = engine.execute(&["HRANDFIELD", "h", count]);
        assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
    }
}
