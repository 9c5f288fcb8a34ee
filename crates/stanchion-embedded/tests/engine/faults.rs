//! The switches that make the engine misbehave, seen by an unmodified redis-rs client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{SOON, client, client_on, client_with, eval, pushed, run};
use redis::{ErrorKind, PushKind, RedisConnectionInfo, RedisResult, ServerErrorKind};
use stanchion_embedded::{Data, Engine, Reply, Switch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

fn int(n: i64) -> Reply {
    Reply::Int(n)
}

#[tokio::test]
async fn refused_connections_come_back_when_the_switch_is_off() {
    let engine = Engine::new();
    engine.faults().refuse_connections(Switch::On);
    let refused = engine.connect().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    engine.faults().clear();
    client(&engine).await;
}

#[tokio::test]
async fn a_killed_connection_ends_for_its_reader_and_its_writer() {
    let engine = Engine::new();
    let mut stream = engine.connect_as("victim").unwrap();
    let mut other = engine.connect_as("other").unwrap();
    engine.faults().kill_label("victim");
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    let broken = stream.write_all(b"PING\r\n").await.unwrap_err();
    assert_eq!(broken.kind(), std::io::ErrorKind::BrokenPipe);
    other.write_all(b"PING\r\n").await.unwrap();
    assert_eq!(other.read(&mut [0; 16]).await.unwrap(), 7);
    engine.faults().kill_connections();
    assert_eq!(other.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(engine.stats().connections, 0);
}

#[tokio::test]
async fn killing_subscribers_spares_the_others() {
    let engine = Engine::new();
    let (mut subscriber, mut pushes) = client_on(engine.connect().unwrap()).await.unwrap();
    subscriber.subscribe("ch").await.unwrap();
    let mut other = client(&engine).await;
    engine.faults().kill_subscribers();
    pushed(&mut pushes, PushKind::Disconnection).await;
    assert!(run::<()>(&mut subscriber, "PING").await.is_err());
    run::<()>(&mut other, "PING").await.unwrap();
    assert_eq!(engine.execute(&["PUBLISH", "ch", "m"]), int(0));
}

#[tokio::test(start_paused = true)]
async fn frozen_bytes_are_executed_when_thawed() {
    let engine = Engine::new();
    let (mut far, _) = client_on(engine.connect_as("far").unwrap()).await.unwrap();
    let mut near = client(&engine).await;
    engine.faults().freeze(Some("far"));
    let late = run::<()>(&mut far, "INCR n");
    assert!(timeout(SOON, late).await.is_err());
    assert_eq!(engine.execute(&["GET", "n"]), Reply::Nil);
    run::<()>(&mut near, "PING").await.unwrap();
    engine.faults().thaw(Some("far"));
    assert_eq!(engine.execute(&["GET", "n"]), Reply::Bulk(b"1".to_vec()));
    let n: i64 = run(&mut far, "INCR n").await.unwrap();
    assert_eq!(n, 2);
}

#[tokio::test]
async fn bytes_in_a_black_hole_outlive_their_connection() {
    let engine = Engine::new();
    let mut stream = engine.connect_as("far").unwrap();
    engine.faults().freeze(None);
    stream.write_all(b"SET k late\r\n").await.unwrap();
    drop(stream);
    assert_eq!(engine.stats().connections, 0);
    assert_eq!(engine.execute(&["GET", "k"]), Reply::Nil);
    engine.faults().thaw(None);
    assert_eq!(engine.execute(&["GET", "k"]), Reply::Bulk(b"late".to_vec()));
}

#[tokio::test]
async fn a_connection_made_while_frozen_is_frozen() {
    let engine = Engine::new();
    engine.faults().freeze(Some("far"));
    let mut stream = engine.connect_as("far").unwrap();
    stream.write_all(b"SET k v\r\n").await.unwrap();
    assert_eq!(engine.execute(&["EXISTS", "k"]), int(0));
    engine.faults().clear();
    assert_eq!(engine.execute(&["EXISTS", "k"]), int(1));
}

#[tokio::test(start_paused = true)]
async fn delayed_replies_arrive_in_order_and_late() {
    let engine = Engine::new();
    let (mut slow, _) = client_on(engine.connect_as("slow").unwrap()).await.unwrap();
    engine
        .faults()
        .delay(Some("slow"), Duration::from_millis(300));
    let start = Instant::now();
    let n: i64 = run(&mut slow, "INCR n").await.unwrap();
    assert_eq!(n, 1);
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(300) && took < Duration::from_millis(310),
        "{took:?}"
    );
    engine.faults().delay(Some("slow"), Duration::ZERO);
    let start = Instant::now();
    run::<()>(&mut slow, "PING").await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn a_lost_reply_was_executed() {
    let engine = Engine::new();
    let mut unlucky = client(&engine).await;
    engine.faults().lose_replies("incr", 1);
    let lost: RedisResult<i64> = run(&mut unlucky, "INCR n").await;
    assert!(lost.unwrap_err().is_connection_dropped());
    let mut lucky = client(&engine).await;
    let n: i64 = run(&mut lucky, "INCR n").await.unwrap();
    assert_eq!(n, 2);
}

#[tokio::test(start_paused = true)]
async fn a_silently_lost_reply_leaves_the_connection_black_for_good() {
    let engine = Engine::new();
    let mut unlucky = client(&engine).await;
    engine.faults().lose_replies_silently("*", 1);
    let lost = run::<()>(&mut unlucky, "INCR n");
    assert!(timeout(SOON, lost).await.is_err());
    assert_eq!(engine.execute(&["GET", "n"]), Reply::Bulk(b"1".to_vec()));
    engine.faults().clear();
    let again = run::<()>(&mut unlucky, "PING");
    assert!(timeout(SOON, again).await.is_err());
}

#[tokio::test]
async fn a_lost_message_counts_its_receivers() {
    let engine = Engine::new();
    let (mut subscriber, mut pushes) = client_on(engine.connect().unwrap()).await.unwrap();
    subscriber.subscribe("ch").await.unwrap();
    engine.faults().lose_messages(1);
    assert_eq!(engine.execute(&["PUBLISH", "ch", "lost"]), int(1));
    assert_eq!(engine.execute(&["PUBLISH", "ch", "kept"]), int(1));
    let message = pushed(&mut pushes, PushKind::Message).await;
    assert_eq!(message[1], redis::Value::BulkString(b"kept".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_message_arrives_twice_and_delays_nothing() {
    let engine = Engine::new();
    let (mut subscriber, mut pushes) = client_on(engine.connect().unwrap()).await.unwrap();
    subscriber.subscribe("ch").await.unwrap();
    while pushes.recv().await.unwrap().kind != PushKind::Subscribe {}
    let began = Instant::now();
    let mut next = async || {
        let push = timeout(SOON, pushes.recv()).await.unwrap().unwrap();
        assert_eq!(push.kind, PushKind::Message);
        (format!("{:?}", push.data[1]), began.elapsed().as_millis())
    };
    engine
        .faults()
        .repeat_messages(Some(Duration::from_millis(20)));
    assert_eq!(engine.execute(&["PUBLISH", "ch", "one"]), int(1));
    let one = next().await;
    engine.faults().repeat_messages(None);
    assert_eq!(engine.execute(&["PUBLISH", "ch", "two"]), int(1));
    let two = next().await;
    let copy = next().await;
    assert_eq!((one.1, two.1, copy.1), (0, 0, 20));
    assert_eq!(one.0, copy.0);
    assert_ne!(two.0, copy.0);
}

#[tokio::test]
async fn a_failing_command_is_not_executed() {
    let engine = Engine::new();
    let mut client = client(&engine).await;
    engine
        .faults()
        .fail_next("SET", "OOM command not allowed.", 1);
    let error = run::<()>(&mut client, "SET k v").await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"));
    assert_eq!(engine.execute(&["EXISTS", "k"]), int(0));
    run::<()>(&mut client, "SET k v").await.unwrap();
}

#[tokio::test]
async fn out_of_memory_stops_a_script_only_before_its_first_write() {
    let engine = Engine::new();
    let mut client = client(&engine).await;
    engine.execute(&["HSET", "h", "f", "1"]);
    engine.faults().out_of_memory(Switch::On);
    let refused = run::<()>(&mut client, "SET k v").await.unwrap_err();
    assert_eq!(refused.code(), Some("OOM"));
    for (works, script) in [
        (false, "return redis.call('HINCRBY', 'h', 'f', 1)"),
        (
            false,
            "redis.call('HGET', 'h', 'f') return redis.call('HSET', 'h', 'f', 1)",
        ),
        (
            true,
            "redis.call('PEXPIRE', 'h', 100000) return redis.call('HINCRBY', 'h', 'f', 1)",
        ),
        // Even a write without effect, or one that fails, counts.
        (
            true,
            "redis.call('ZREM', 'none', '') return redis.call('SET', 'k', 'v')",
        ),
        (
            true,
            "redis.call('PEXPIREAT', 'none', 1) return redis.call('SET', 'k', 'v')",
        ),
        (
            true,
            "redis.pcall('LPOP', 'h') return redis.call('SET', 'k', 'v')",
        ),
        (
            false,
            "redis.pcall('SET', 'k', 'v') return redis.call('SET', 'k', 'v')",
        ),
        (true, "return redis.call('PUBLISH', 'ch', 'm')"),
    ] {
        let result: RedisResult<redis::Value> = eval(&mut client, script).await;
        assert_eq!(result.is_ok(), works, "{script}: {result:?}");
        if let Err(error) = result {
            assert_eq!(error.code(), Some("OOM"), "{error}");
            let names_the_script = error.to_string().contains("'maxmemory'. script: ");
            assert!(names_the_script, "{error}");
        }
    }
    engine.faults().clear();
    run::<()>(&mut client, "SET k v").await.unwrap();
}

#[tokio::test]
async fn a_replica_refuses_writes_and_a_loading_server_most_things() {
    let engine = Engine::new();
    let mut client = client(&engine).await;
    engine.faults().read_only(Switch::On);
    let error = run::<()>(&mut client, "SET k v").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly));
    let script = "redis.call('GET', 'k') return redis.call('DEL', 'k')";
    let error = eval::<()>(&mut client, script).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly));
    run::<()>(&mut client, "GET k").await.unwrap();
    engine.faults().clear();
    engine.faults().loading(Switch::On);
    let error = run::<()>(&mut client, "GET k").await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::BusyLoading)
    );
    let info: String = run(&mut client, "INFO").await.unwrap();
    assert!(info.contains("loading:1"));
}

#[tokio::test]
async fn a_restart_cuts_connections_and_forgets_scripts() {
    let engine = Engine::new();
    let mut before = client(&engine).await;
    let run_id = |info: Reply| match info {
        Reply::Text(text) => text
            .lines()
            .find(|l| l.starts_with("run_id"))
            .map(str::to_owned),
        _ => None,
    };
    let first = run_id(engine.execute(&["INFO", "server"]));
    engine.execute(&["SET", "k", "v"]);
    let Reply::Bulk(sha) = engine.execute(&["SCRIPT", "LOAD", "return 1"]) else {
        panic!()
    };
    engine.faults().restart(Data::Kept);
    assert!(run::<()>(&mut before, "PING").await.is_err());
    assert_eq!(engine.keys(), [b"k"]);
    let missing = engine.execute(&[b"EVALSHA", sha.as_slice(), b"0"]);
    assert!(matches!(missing, Reply::Error(text) if text.starts_with("NOSCRIPT")));
    assert_ne!(run_id(engine.execute(&["INFO"])), first);
    engine.faults().restart(Data::Lost);
    assert!(engine.keys().is_empty());
    client(&engine).await;
}

#[tokio::test]
async fn new_connections_need_the_password() {
    let engine = Engine::new();
    let mut old = client(&engine).await;
    engine.faults().password(Some("secret"));
    run::<()>(&mut old, "GET k").await.unwrap();
    assert!(client_on(engine.connect().unwrap()).await.is_err());
    let wrong = RedisConnectionInfo::default().set_password("wrong");
    assert!(client_with(engine.connect().unwrap(), wrong).await.is_err());
    for protocol in [redis::ProtocolVersion::RESP2, redis::ProtocolVersion::RESP3] {
        let right = RedisConnectionInfo::default()
            .set_password("secret")
            .set_protocol(protocol);
        client_with(engine.connect().unwrap(), right).await.unwrap();
    }
    let mut raw = engine.connect().unwrap();
    raw.write_all(b"GET k\r\nAUTH x\r\n").await.unwrap();
    let mut reply = vec![0; 200];
    let read = raw.read(&mut reply).await.unwrap();
    let reply = String::from_utf8_lossy(&reply[..read]);
    assert_eq!(
        reply,
        "-NOAUTH Authentication required.\r\n-WRONGPASS invalid username-password pair or user is disabled.\r\n"
    );
}

#[tokio::test]
async fn the_clock_can_be_stepped_and_virtual() {
    let time = Arc::new(AtomicU64::new(1_700_000_000_000));
    let source = Arc::clone(&time);
    let engine = Engine::with_clock(move || Duration::from_millis(source.load(Ordering::SeqCst)));
    let mut client = client(&engine).await;
    run::<()>(&mut client, "SET k v PX 1000").await.unwrap();
    time.fetch_add(1000, Ordering::SeqCst);
    assert_eq!(engine.execute(&["PTTL", "k"]), int(0));
    time.fetch_add(1, Ordering::SeqCst);
    assert_eq!(engine.execute(&["DBSIZE"]), int(0));
    assert_eq!(engine.execute(&["PTTL", "k"]), int(-2));
    engine.execute(&["SET", "k", "v", "PX", "1000"]);
    engine.faults().step_clock(-500);
    assert_eq!(engine.execute(&["PTTL", "k"]), int(1500));
    engine.faults().step_clock(5000);
    assert!(engine.keys().is_empty());
    let now: (u64, u64) = run(&mut client, "TIME").await.unwrap();
    assert_eq!(now, (1_700_000_005, 501_000));
}

#[tokio::test]
async fn time_is_constant_in_a_script() {
    let ticks = Arc::new(AtomicU64::new(1_700_000_000_000));
    // Every look at the clock takes ten milliseconds.
    let engine =
        Engine::with_clock(move || Duration::from_millis(ticks.fetch_add(10, Ordering::SeqCst)));
    let script = "redis.call('SET', 'k', 'v', 'PX', 1)
        local a = redis.call('TIME')
        for _ = 1, 100 do redis.call('GET', 'k') end
        local b = redis.call('TIME')
        return {a[1] == b[1] and a[2] == b[2], redis.call('EXISTS', 'k')}";
    let reply = engine.execute(&["EVAL", script, "0"]);
    assert_eq!(reply, Reply::Array(vec![int(1), int(1)]));
    assert_eq!(engine.execute(&["EXISTS", "k"]), int(0));
}

#[tokio::test(start_paused = true)]
async fn paused_clients_go_on_when_the_pause_ends() {
    let start = Instant::now();
    let engine = Engine::with_clock(move || Duration::from_secs(1_700_000_000) + start.elapsed());
    let mut client = client(&engine).await;
    engine.execute(&["CLIENT", "PAUSE", "300", "WRITE"]);
    run::<()>(&mut client, "GET k").await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    run::<()>(&mut client, "SET k v").await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300));
    engine.execute(&["CLIENT", "PAUSE", "100000"]);
    let held = tokio::spawn(async move { run::<()>(&mut client, "DEL k").await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(engine.execute(&["EXISTS", "k"]), int(1));
    engine.execute(&["CLIENT", "UNPAUSE"]);
    held.await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
}
