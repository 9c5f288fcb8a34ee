//! `watch`, `bench`, `clients`.

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking};

use super::{JAVA, done, hold_as_java, lines};
use crate::support::{SOON, output, start_script, text, with};

#[test]
fn watch_tells_what_happens_as_it_happens() {
    let server = RedisServer::start();
    let args = ["watch", "job", "--every", "10ms", "--json"];
    let mut watch = Process::spawn(&mut with(&server, &args));
    let event = |word: &str| {
        let wanted = format!("\"event\":\"{word}\"");
        move |line: &str| line.contains(&wanted)
    };
    watch.wait_for_line(event("start"), SOON);
    hold_as_java(&server, "job", "1", "20000");
    let acquired = watch.wait_for_line(event("acquired"), SOON);
    assert!(
        acquired.contains(&format!("\"owner\":\"{JAVA}:1\"")),
        "{acquired}"
    );
    let mut waiter = with(&server, &["run", "job", "--", "true"])
        .spawn()
        .unwrap();
    watch.wait_for_line(event("waiting"), SOON);
    done(&server, &["DEL", "job"]);
    watch.wait_for_line(event("released"), SOON);
    waiter.kill().unwrap();
    waiter.wait().unwrap();
    watch.signal(Signal::Int);
    assert_eq!(watch.wait(SOON).code(), Some(0));
}

#[test]
fn watch_lives_through_an_outage() {
    let mut server = RedisServer::start();
    let args = ["watch", "job", "--every", "10ms", "--json"];
    let mut watch = Process::spawn(&mut with(&server, &args));
    watch.wait_for_line(|line| line.contains("start"), SOON);
    server.kill();
    watch.wait_for_line(|line| line.contains("unreachable"), SOON);
    server.restart();
    watch.wait_for_line(|line| line.contains("\"reachable\""), SOON);
    watch.signal(Signal::Term);
    assert_eq!(watch.wait(SOON).code(), Some(0));
}

#[test]
fn bench_measures_every_part_and_leaves_nothing() {
    let server = RedisServer::start();
    let parts = lines(&output(&server, &["bench", "--seconds", "1", "--json"]));
    let named: Vec<&str> = parts
        .iter()
        .map(|part| part["part"].as_str().unwrap())
        .collect();
    assert_eq!(
        named,
        ["round trip", "uncontended", "hand-off", "in process"]
    );
    for part in &parts {
        assert!(part["per_second"].as_f64().unwrap() > 0.0, "{part}");
        assert!(part["p50_us"].as_u64() <= part["p99_us"].as_u64(), "{part}");
    }
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[test]
fn bench_that_is_interrupted_leaves_nothing() {
    let server = RedisServer::start();
    let mut bench = Process::spawn(&mut with(&server, &["bench", "--seconds", "8"]));
    eventually_blocking("it holds its lock", || {
        server
            .commands_processed()
            .get("evalsha")
            .is_some_and(|count| *count > 0)
    });
    bench.signal(Signal::Int);
    assert_eq!(bench.wait(SOON).code(), Some(130));
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[test]
fn clients_are_the_processes_that_hold() {
    let server = RedisServer::start();
    let nobody = output(&server, &["clients"]);
    assert_eq!(
        (nobody.status.code(), text(&nobody.stdout)),
        (Some(0), String::new())
    );
    let _holder = start_script(&server, &["job"], "echo ready; cat");
    let seen = lines(&output(&server, &["clients", "--json"]));
    assert_eq!(seen.len(), 1, "{seen:?}");
    // That of the command, without its arguments.
    assert_eq!(seen[0]["app"], "sh");
    let holder = lines(&output(&server, &["ls", "--scan", "--json"]));
    let owner = holder[0]["holder"]["owner"].as_str().unwrap();
    assert!(owner.starts_with(seen[0]["client"].as_str().unwrap()));
    assert_eq!(holder[0]["holder"]["connected"], true);
    // A holder that has died, of a client that names its connections.
    let ended = "11111111-1111-8111-8111-111111111111:7";
    done(&server, &["HSET", "gone", ended, "1"]);
    done(&server, &["PEXPIRE", "gone", "20000"]);
    let seen = lines(&output(&server, &["ls", "--scan", "gone", "--json"]));
    assert_eq!(seen[0]["trouble"][0]["check"], "holder-gone");
}
