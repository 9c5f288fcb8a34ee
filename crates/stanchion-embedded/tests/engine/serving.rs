//! Clients of other processes that do not behave: they harm themselves.

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

/// Returns the text of an error.
#[track_caller]
fn error(reply: Reply) -> String {
    match reply {
        Reply::Error(text) => text,
        other => panic!("{other:?}"),
    }
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
        let more = timeout(SOON, stream.read(&mut bytes)).await.unwrap();
        match more.unwrap() {
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
        let text = error(in_time(&engine, script));
        assert!(text.contains("ran for more than 5 s"), "{script}: {text}");
    }
    // By the machine's clock: it takes longer than 250 ms.
    let engine = Engine::new();
    let hungry = "local t = {} while true do t[#t + 1] = string.rep('x', 1000000) .. #t end";
    let text = error(engine.execute(&["EVAL", hungry, "0"]));
    assert!(text.contains("memory"), "{text}");
    let long = "local n = 0 for i = 1, 1000000 do n = n + 1 end return n";
    assert_eq!(engine.execute(&["EVAL", long, "0"]), Reply::Int(1_000_000));
    let after = engine.execute(&["EVAL", "return #string.rep('x', 1000000)", "0"]);
    assert_eq!(after, Reply::Int(1_000_000));
}

/// No hook runs in a C function: such functions ended the process, or ran for minutes while no client was served.
#[test]
fn no_function_of_strings_or_tables_runs_without_a_bound() {
    let engine = in_fast_time();
    for script in [
        // Backtracking without an end, from every function that takes a pattern.
        "return string.find(('a'):rep(200), ('a*'):rep(40) .. 'b')",
        "return string.match(('a'):rep(200), ('.-'):rep(40) .. 'b')",
        "return string.gsub(('a'):rep(200), ('a?'):rep(100) .. 'b', '')",
        "for _ in string.gmatch(('a'):rep(200), ('a-'):rep(40) .. 'b') do end",
        "return ('x'):rep(200):find(('(x*)'):rep(20) .. '%1y')",
        "while true do pcall(string.find, ('a'):rep(200), ('a*'):rep(40) .. 'b') end",
        // Each step is long.
        "return string.find(('a'):rep(10000000), ('a'):rep(5000000) .. 'b', 1, true)",
        "return string.find(('('):rep(1000000), '%b()')",
        "return string.find(('a'):rep(1000000), '[' .. ('b'):rep(1000000) .. ']+c')",
        "local s = ('a'):rep(1000000) return string.find(s .. s, '^(.-)%1b')",
        // Comparisons of long texts.
        "local a, t = ('a'):rep(10000000), {} for i = 1, 100000 do t[i] = a end table.sort(t)",
        "while true do pcall(string.rep, '', 2147483647) end",
        "while true do pcall(string.rep, 'x', 2147483647) end",
        "local s = ('x'):rep(20000000) while true do s:upper():lower() end",
        "local s = ('x'):rep(20000000) while true do local t = s .. 'y' end",
        "local s = ('1'):rep(20000000) while true do local n = s + 0 end",
        "local s = ('1'):rep(20000000) coroutine.wrap(function() while true do local n = s + 0 end end)()",
        "local s = ('1 '):rep(500000) while true do loadstring('return ' .. s) end",
    ] {
        let text = error(in_time(&engine, script));
        let bounded = text.contains("ran for more than 5 s") || text.contains("memory");
        assert!(bounded, "{script}: {text}");
    }
    for (script, refused) in [
        (
            "return string.find(('a'):rep(1000000), ('a?'):rep(1000000))",
            "pattern too complex",
        ),
        (
            "return string.find('x', ('('):rep(1000000))",
            "too many captures",
        ),
    ] {
        let text = error(in_time(&engine, script));
        assert!(text.contains(refused), "{text}");
    }
    assert_eq!(
        in_time(&engine, "return #string.rep('', 2147483647)"),
        Reply::Int(0)
    );
}

#[tokio::test]
async fn a_hostile_pattern_holds_others_up_for_the_time_of_a_script() {
    let engine = in_fast_time();
    let (mut hostile, _one) = client(&engine);
    let script = "return string.find(('a'):rep(200), ('a*'):rep(40) .. 'b')";
    let request = format!(
        "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n",
        script.len()
    );
    hostile.write_all(request.as_bytes()).await.unwrap();
    is_well(&engine).await;
    let refused = answer(&mut hostile, b"").await;
    assert!(refused.contains("ran for more than 5 s"), "{refused}");
    is_well(&engine).await;
}

/// Scripts that fill the interpreter, each in its own way. The next script found no room.
#[test]
fn scripts_run_after_one_that_ran_out_of_memory() {
    let engine = Engine::new();
    let sha = engine.execute(&["SCRIPT", "LOAD", "return ARGV[1]"]);
    let Reply::Bulk(sha) = sha else {
        panic!("{sha:?}");
    };
    for script in [
        "local t = {} while true do t[#t + 1] = {} end",
        "collectgarbage('stop') local t = {} while true do t[#t + 1] = {} end",
        "collectgarbage('stop') for i = 1, 1e9 do local s = ('x'):rep(100000) .. i end",
        "local t = {} pcall(function() while true do t[#t + 1] = ('x'):rep(1000) .. #t end end) return #t",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(1e12)",
        "local s = ('x'):rep(30000000) return {s, s, s, s, s, s, s, s, s, s}",
    ] {
        let _ = in_time(&engine, script);
        let after = engine.execute(&["EVAL", "return #string.rep('x', 1000000)", "0"]);
        assert_eq!(after, Reply::Int(1_000_000), "after {script}");
        // Those that were loaded before are still known.
        let known = engine.execute(&[b"EVALSHA".as_slice(), &sha, b"0", b"v"]);
        assert_eq!(known, Reply::Bulk(b"v".to_vec()), "after {script}");
    }
    let large = "x".repeat(40_000_000);
    for _ in 0..3 {
        let _ = engine.execute(&["EVAL", "return #ARGV[1]", "0", &large]);
        let after = engine.execute(&["EVAL", "return 1", "0"]);
        assert_eq!(after, Reply::Int(1));
    }
    // Each of many scripts takes memory for ever.
    for number in 0..300 {
        let script = format!(
            "local t = {{{}}} return {number}",
            "'abcdefgh', ".repeat(10_000)
        );
        let done = engine.execute(&["EVAL", &script, "0"]);
        assert_eq!(done, Reply::Int(number));
    }
}

/// Sends the command over a connection: an administrator's commands are never refused.
async fn ask(stream: &mut UnixStream, words: &[&str]) -> String {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    answer(stream, request.as_bytes()).await
}

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

#[tokio::test]
async fn keys_take_no_more_memory_than_permitted() {
    let engine = Engine::new();
    engine.limit_memory(10_000_000);
    let (mut stream, _serving) = client(&engine);
    let value = "v".repeat(100_000);
    let append = "return redis.call('APPEND', KEYS[1], ARGV[1])";
    for (write, free) in [
        ("SET key? ?", "DEL"),
        ("HSET one field? ?", "DEL"),
        ("RPUSH one ?", "DEL"),
        ("ZADD one 1 ?", "DEL"),
        ("EVAL script 1 one ?", "UNLINK"),
    ] {
        let mut written = 0;
        let refused = loop {
            let word = |word: &str| match word {
                "script" => append.to_owned(),
                "?" => format!("{written}{value}"),
                word => word.replace('?', &written.to_string()),
            };
            let words: Vec<String> = write.split(' ').map(word).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let said = ask(&mut stream, &words).await;
            if said.starts_with('-') {
                break said;
            }
            written += 1;
            assert!(written < 100, "{write} goes on");
        };
        assert!(refused.starts_with(OOM), "{refused}");
        // Some 90 of 100 KB: a sorted set has each member twice.
        assert!((40..95).contains(&written), "{write}: {written}");
        // What needs no memory goes on, and what it frees can be used.
        let info = ask(&mut stream, &["INFO", "memory"]).await;
        assert!(
            info.contains("used_memory:10") && info.contains("maxmemory:10000000"),
            "{info}"
        );
        for key in engine.keys() {
            let key = String::from_utf8(key).unwrap();
            assert_eq!(ask(&mut stream, &[free, &key]).await, ":1\r\n");
        }
        assert_eq!(ask(&mut stream, &["SET", "small", "v"]).await, "+OK\r\n");
        assert_eq!(ask(&mut stream, &["DEL", "small"]).await, ":1\r\n");
    }
    for (words, said) in [
        ("CONFIG SET maxmemory 2mb", "+OK"),
        ("CONFIG GET maxmemory", "2097152"),
        ("CONFIG SET maxmemory much", "must be a memory value"),
    ] {
        let words: Vec<_> = words.split(' ').collect();
        let told = ask(&mut stream, &words).await;
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn a_script_that_writes_without_end_is_refused_at_last() {
    let engine = Engine::new();
    engine.limit_memory(10_000_000);
    let writes =
        "local s = ('x'):rep(1000000) for i = 1, 100 do redis.call('SET', 'k' .. i, s) end";
    let text = error(engine.execute(&["EVAL", writes, "0"]));
    assert!(text.starts_with(&OOM[1..]), "{text}");
    // It had begun below the limit, so it went on for a while.
    let keys = engine.keys().len();
    assert!((20..30).contains(&keys), "{keys}");
    let text = error(engine.execute(&["EVAL", "return redis.call('SET', 'k', 'v')", "0"]));
    assert!(text.starts_with(&OOM[1..]), "{text}");
    let freed = engine.execute(&["EVAL", "return redis.call('DEL', 'k1')", "0"]);
    assert_eq!(freed, Reply::Int(1));
}

/// Lua 5.1 overwrote its own stack for it.
#[test]
fn no_script_ends_the_process() {
    let engine = Engine::new();
    for script in [
        "return {unpack({1, 2, 3}, -1, 2147483647)}",
        "return {unpack({1, 2, 3}, 2147483646, 4294967296)}",
        "return {unpack({1, 2, 3}, 0/0, 1/0)}",
        "local t = {1} for i = 1, 60 do t = {t, t} end return t",
    ] {
        error(engine.execute(&["EVAL", script, "0"]));
    }
}

#[test]
fn expired_keys_take_no_memory() {
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
        error(engine.execute(&["HRANDFIELD", "h", count]));
    }
}
