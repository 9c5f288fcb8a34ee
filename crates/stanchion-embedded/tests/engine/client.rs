//! An unmodified redis-rs client on the engine: scripts, messages, and bytes cut anywhere.

use crate::support::{SOON, client, client_on, eval, pushed, run};
use redis::{PushKind, Script, Value};
use stanchion_embedded::{Engine, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

#[tokio::test]
async fn a_script_is_loaded_again_after_a_flush() {
    let engine = Engine::new();
    let mut client = client(&engine).await;
    let script = Script::new("return {KEYS[1], ARGV[1] + 1}");
    for _ in 0..3 {
        let mut call = script.prepare_invoke();
        let reply: (String, i64) = call
            .key("k")
            .arg(41)
            .invoke_async(&mut client)
            .await
            .unwrap();
        assert_eq!(reply, ("k".to_owned(), 42));
        engine.faults().flush_scripts();
    }
    assert_eq!(engine.stats().count("evalsha"), 6);
    assert_eq!(engine.stats().count("SCRIPT"), 3);
}

#[tokio::test]
async fn commands_inside_of_a_script_are_not_counted() {
    let engine = Engine::new();
    let mut client = client(&engine).await;
    let before = engine.stats();
    let script =
        "for i = 1, 10 do redis.call('INCR', 'n') end return redis.call('PUBLISH', 'ch', 'm')";
    eval::<()>(&mut client, script).await.unwrap();
    let after = engine.stats();
    assert_eq!(after.commands - before.commands, 1);
    assert_eq!(after.count("INCR"), 0);
    assert_eq!(after.published, 1);
}

#[tokio::test]
async fn bytes_may_be_cut_anywhere() {
    let engine = Engine::new();
    let mut stream = engine.connect().unwrap();
    let commands =
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n";
    for byte in commands {
        stream.write_all(&[*byte]).await.unwrap();
    }
    let mut replies = Vec::new();
    while replies.len() < 22 {
        let mut one = [0];
        assert_eq!(
            timeout(SOON, stream.read(&mut one)).await.unwrap().unwrap(),
            1
        );
        replies.extend(one);
    }
    assert_eq!(replies, b"+OK\r\n$4\r\na\r\nb\r\n+PONG\r\n");
}

#[test]
fn messages_cross_threads_and_runtimes() {
    let engine = Engine::new();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (ready, is_ready) = std::sync::mpsc::channel();
    let subscriber = std::thread::spawn({
        let engine = engine.clone();
        move || {
            runtime().block_on(async {
                let (mut client, mut pushes) = client_on(engine.connect().unwrap()).await.unwrap();
                client.subscribe("ch").await.unwrap();
                ready.send(()).unwrap();
                let mut got = Vec::new();
                while got.len() < 1000 {
                    got.push(pushed(&mut pushes, PushKind::Message).await.remove(1));
                }
                got
            })
        }
    });
    is_ready.recv().unwrap();
    runtime().block_on(async {
        let mut publisher = client(&engine).await;
        for n in 0..1000 {
            let script = "return redis.call('PUBLISH', KEYS[1], ARGV[1])";
            let count: i64 = Script::new(script)
                .key("ch")
                .arg(n)
                .invoke_async(&mut publisher)
                .await
                .unwrap();
            assert_eq!(count, 1);
        }
    });
    let expected: Vec<_> = (0..1000)
        .map(|n| Value::BulkString(n.to_string().into()))
        .collect();
    assert_eq!(subscriber.join().unwrap(), expected);
}

#[test]
fn commands_of_many_threads_are_atomic() {
    let engine = Engine::new();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                let script = "local n = redis.call('GET', 'n') or 0 redis.call('SET', 'n', n + 1)";
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                runtime.unwrap().block_on(async {
                    let mut client = client(&engine).await;
                    for _ in 0..500 {
                        eval::<()>(&mut client, script).await.unwrap();
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(engine.execute(&["GET", "n"]), Reply::Bulk(b"2000".to_vec()));
}

#[tokio::test]
async fn shard_channels_are_apart_and_subscriptions_end_with_their_stream() {
    let engine = Engine::new();
    let (mut client, mut pushes) = client_on(engine.connect().unwrap()).await.unwrap();
    run::<()>(&mut client, "SSUBSCRIBE ch").await.unwrap();
    assert_eq!(engine.execute(&["PUBLISH", "ch", "plain"]), Reply::Int(0));
    assert_eq!(engine.execute(&["SPUBLISH", "ch", "shard"]), Reply::Int(1));
    let message = pushed(&mut pushes, PushKind::SMessage).await;
    assert_eq!(message[1], Value::BulkString(b"shard".to_vec()));
    assert_eq!(engine.stats().subscriptions, 1);
    drop(client);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.stats().subscriptions, 0);
    assert_eq!(engine.execute(&["SPUBLISH", "ch", "shard"]), Reply::Int(0));
    assert_eq!(engine.stats().connections, 0);
}

#[tokio::test]
async fn a_namespace_is_one_engine_while_a_client_uses_it() {
    let engine = Engine::named("shared");
    engine.execute(&["SET", "k", "v"]);
    let stream = Engine::named("shared").connect().unwrap();
    drop(engine);
    assert_eq!(Engine::named("shared").keys(), [b"k"]);
    assert!(Engine::named("other").keys().is_empty());
    drop(stream);
    assert!(Engine::named("shared").keys().is_empty());
}

#[tokio::test]
async fn a_tcp_port_can_be_served() {
    let engine = Engine::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn({
        let engine = engine.clone();
        async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let engine = engine.clone();
                tokio::spawn(async move { engine.serve(stream).await });
            }
        }
    });
    let client = redis::Client::open(format!("redis://{address}/?protocol=resp3")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    run::<()>(&mut connection, "SET k v").await.unwrap();
    assert_eq!(engine.keys(), [b"k"]);
    engine.faults().kill_connections();
    assert!(run::<()>(&mut connection, "PING").await.is_err());
    // A client that closes its half after its commands still gets its replies.
    let mut raw = tokio::net::TcpStream::connect(address).await.unwrap();
    raw.write_all(b"GET k\r\n").await.unwrap();
    raw.shutdown().await.unwrap();
    let mut replies = Vec::new();
    timeout(SOON, raw.read_to_end(&mut replies))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(replies, b"$1\r\nv\r\n");
    server.abort();
}

#[test]
fn a_script_leaves_nothing_behind_for_the_next() {
    let engine = Engine::new();
    for attempt in [
        "x = 1",
        "_G.x = 1",
        "string.x = 1",
        "rawset(_G, 'x', 1)",
        "getmetatable('').__index = {}",
    ] {
        let reply = engine.execute(&["EVAL", attempt, "0"]);
        assert!(matches!(reply, Reply::Error(_)), "{attempt}: {reply:?}");
    }
    let reply = engine.execute(&["EVAL", "return loadstring('\\27Lua') == nil", "0"]);
    assert_eq!(reply, Reply::Int(1));
    let reply = engine.execute(&["EVAL", "local t = {} t[1] = t return t", "0"]);
    assert!(matches!(reply, Reply::Array(_)), "{reply:?}");
}
