//! [`RedisServer`].

use std::time::Duration;

use stanchion_testkit::{RedisServer, Value, eventually_blocking, machine_clock};

use crate::client::Client;
use crate::real;

#[test]
fn commands_are_answered_and_counted() {
    let Some(server) = real() else { return };
    assert_eq!(server.cli(&["SET", "b", "1"]), Value::Status("OK".into()));
    assert_eq!(server.cli(&["INCRBY", "a", "41"]).as_int(), 41);
    assert_eq!(server.cli(&["GET", "a"]).as_text(), "41");
    assert_eq!(server.cli(&["GET", "none"]), Value::Nil);
    assert_eq!(server.cli(&["MGET", "a", "b"]).as_texts(), ["41", "1"]);
    assert!(server.cli(&["LPUSH", "a", "x"]).is_error());
    assert_eq!(server.keys(), ["a", "b"]);
    assert_eq!(server.commands_processed()["get"], 2);

    server.reset_stats();
    assert!(!server.commands_processed().contains_key("get"));
    server.flush();
    assert!(server.keys().is_empty());
}

#[test]
fn every_server_is_its_own() {
    let Some(one) = real() else { return };
    let two = RedisServer::start();
    assert_ne!(one.addr(), two.addr());
    let _ = one.cli(&["SET", "k", "v"]);
    assert!(two.keys().is_empty());
    assert_eq!(one.url(), format!("redis://{}/", one.addr()));
}

#[test]
fn a_kill_loses_what_is_not_on_disk() {
    let Some(mut memory) = real() else { return };
    let mut disk = RedisServer::builder().append_only().start();
    for (server, kept) in [(&mut memory, &[][..]), (&mut disk, &["k"][..])] {
        let _ = server.cli(&["SET", "k", "v"]);
        let (pid, addr) = (server.pid(), server.addr());
        let mut client = Client::connect(addr);
        assert_eq!(client.call("PING"), "+PONG");
        server.kill();
        assert!(client.line().is_err(), "the connection died");
        server.restart();
        assert_eq!(server.keys(), kept);
        assert_eq!(server.addr(), addr, "same address");
        assert_ne!(server.pid(), pid, "another process");
    }
}

#[test]
fn a_dropped_server_is_gone() {
    let Some(server) = real() else { return };
    let process = std::path::PathBuf::from(format!("/proc/{}", server.pid()));
    let dir = server.cli(&["CONFIG", "GET", "dir"]).as_texts().remove(1);
    assert!(process.exists() && std::fs::exists(&dir).unwrap());
    drop(server);
    assert!(!process.exists(), "reaped, not a zombie");
    assert!(!std::fs::exists(&dir).unwrap(), "nothing is left");
}

#[test]
fn a_stopped_server_keeps_connections_and_answers_later() {
    let Some(server) = real() else { return };
    let mut client = Client::connect(server.addr());
    assert_eq!(client.call("PING"), "+PONG");
    server.stop_signal();
    client.send("PING");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    assert!(stat.contains(") T "), "not stopped: {stat}");
    assert!(client.is_silent());
    server.cont();
    assert_eq!(client.line().unwrap(), "+PONG");
}

#[test]
fn a_password_is_required() {
    if !RedisServer::available() {
        return;
    }
    let server = RedisServer::builder().password("secret").start();
    let mut client = Client::connect(server.addr());
    assert!(client.call("PING").starts_with("-NOAUTH"));
    assert_eq!(client.call("AUTH secret"), "+OK");
    assert_eq!(server.cli(&["PING"]).as_text(), "PONG");
    assert_eq!(server.url(), format!("redis://:secret@{}/", server.addr()));
}

#[test]
fn a_unix_socket_answers() {
    use std::io::{Read as _, Write as _};

    if !RedisServer::available() {
        return;
    }
    let server = RedisServer::builder().unix_socket().start();
    let path = server.unix_path();
    assert_eq!(
        server.unix_url(),
        format!("redis+unix://{}", path.display())
    );
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    socket.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn a_cluster_node_owns_every_slot_also_after_a_restart() {
    if !RedisServer::available() {
        return;
    }
    let mut server = RedisServer::builder().cluster_enabled().start();
    for _ in 0..2 {
        for key in ["a", "b", "c"] {
            assert!(!server.cli(&["SET", key, "v"]).is_error());
        }
        let cross = server.cli(&["MGET", "a", "b"]);
        assert!(cross.as_text().starts_with("CROSSSLOT"), "{cross}");
        server.restart();
    }
}

#[test]
fn the_callers_directives_win() {
    if !RedisServer::available() {
        return;
    }
    let server = RedisServer::builder()
        .arg("maxmemory", "3mb")
        .arg("notify-keyspace-events", "")
        .start();
    let limit = server.cli(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(limit.as_texts(), ["maxmemory", "3145728"]);
}

#[test]
fn a_start_that_fails_shows_why() {
    if !RedisServer::available() {
        return;
    }
    let taken = RedisServer::start();
    let again = RedisServer::builder().port(taken.addr().port());
    let failed = std::panic::catch_unwind(|| again.start()).unwrap_err();
    let message = failed.downcast_ref::<String>().unwrap();
    assert!(message.contains("in use"), "{message}");
}

#[test]
fn subscribers_are_counted() {
    let Some(server) = real() else { return };
    assert_eq!(server.subscribers("ch"), 0);
    let mut client = Client::connect(server.addr());
    let mut shard = Client::connect(server.addr());
    client.call("SUBSCRIBE ch");
    shard.call("SSUBSCRIBE ch");
    assert_eq!(server.subscribers("ch"), 2);
    drop(client);
    eventually_blocking("one subscriber left", || server.subscribers("ch") == 1);
}

#[test]
fn a_monitor_shows_every_command_and_what_scripts_run() {
    let Some(server) = real() else { return };
    let monitor = server.monitor();
    let _ = server.cli(&["SET", "k", "1"]);
    let _ = server.cli(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", "k"]);
    let lines = monitor.lines();
    let position = |text: &str| lines.iter().position(|l| l.contains(text));
    assert!(position("\"SET\" \"k\" \"1\"") < position("\"EVAL\""));
    let incr = position("\"INCR\" \"k\"").unwrap();
    assert!(lines[incr].contains("lua]"), "{}", lines[incr]);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    let many = "for _ = 1, 20000 do redis.call('INCR', KEYS[1]) end";
    let _ = server.cli(&["EVAL", many, "1", "k"]);
    assert_eq!(monitor.lines().len(), 3 + 20_001, "complete up to the call");
    drop(monitor);
    eventually_blocking("the monitor's connection is closed", || {
        !server
            .cli(&["CLIENT", "LIST"])
            .as_text()
            .contains("cmd=monitor")
    });
}

#[test]
fn the_wall_clock_can_be_stepped() {
    if !RedisServer::available() {
        return;
    }
    let mut server = RedisServer::builder().steppable_clock().start();
    let seconds = |server: &RedisServer| -> i64 {
        let time = server.cli(&["TIME"]);
        time.as_texts()[0].parse().unwrap()
    };
    let began = machine_clock();
    let start = seconds(&server);
    let moved = |server: &RedisServer| seconds(server) - start;

    let _ = server.cli(&["SET", "k", "v", "PX", "30000"]);
    server.step_clock(29_000);
    assert_eq!(server.cli(&["EXISTS", "k"]).as_int(), 1);
    server.step_clock(2_000);
    assert_eq!(server.cli(&["EXISTS", "k"]).as_int(), 0, "expired");
    let passed = || i64::try_from((machine_clock() - began).as_secs()).unwrap() + 1;
    assert!((31..=31 + passed()).contains(&moved(&server)));
    server.step_clock(-91_000);
    assert!((-60..=-60 + passed()).contains(&moved(&server)));
    server.restart();
    assert!((-60..=-60 + passed()).contains(&moved(&server)), "kept");
}

#[test]
fn the_next_command_sees_a_step_of_the_clock() {
    if !RedisServer::available() {
        return;
    }
    let server = RedisServer::builder().steppable_clock().start();
    let micros = || -> i64 {
        let time = server.cli(&["TIME"]).as_texts();
        let [seconds, micros] = [0, 1].map(|part: usize| -> i64 { time[part].parse().unwrap() });
        seconds * 1_000_000 + micros
    };
    for step in [10_000, -10_000].repeat(50) {
        let before = micros();
        server.step_clock(step);
        let moved = (micros() - before) / 1000;
        assert!(
            (step..step + 5_000).contains(&moved),
            "{moved} ms after a step of {step} ms"
        );
    }
}

#[test]
fn processes_share_the_machines_clock() {
    let one = machine_clock();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let two = machine_clock();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    assert!(one <= two);
    // `uptime` also counts suspended time, so it is a bound from above (up to its rounding).
    assert!(one <= Duration::from_secs_f64(uptime) + Duration::from_millis(20));
}
