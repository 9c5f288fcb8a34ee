//! `--wait` is for the server, too.

use std::fs;
use std::net::TcpListener;

use stanchion_testkit::{Process, RedisServer, eventually_blocking, machine_clock};

use crate::support::{HOLD, SOON, is_held, stanchion, start_script, text, with};

/// An address where nobody listens: it was free a moment ago.
fn nobody() -> String {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    format!("redis://{address}/")
}

#[test]
fn a_server_that_refuses_is_tried_for_as_long_as_the_wait() {
    let url = nobody();
    let began = machine_clock();
    let refused = stanchion(&["run", "job", "--url", &url, "--wait", "1s", "--", "true"]).output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(69));
    assert!(machine_clock() - began >= std::time::Duration::from_secs(1));
    let told = text(&refused.stderr);
    assert!(
        told.contains("trying again") && !told.contains("held by"),
        "{told}"
    );
    let began = machine_clock();
    let now = stanchion(&["run", "job", "--url", &url, "--wait", "0", "--", "true"]).output();
    assert_eq!(now.unwrap().status.code(), Some(69));
    assert!(machine_clock() - began < SOON);
}

#[test]
fn a_server_that_comes_later_is_found() {
    let mut server = RedisServer::start();
    server.kill();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = with(&server, &["run", "job", "--", "echo", "ran"]);
    let mut run = Process::spawn(command.stderr(log.reopen().unwrap()));
    eventually_blocking("it has tried", || {
        fs::read_to_string(log.path())
            .unwrap()
            .contains("trying again")
    });
    server.restart();
    run.wait_for_line(|line| line == "ran", SOON);
    assert!(run.wait(SOON).success());
}

#[test]
fn a_wait_that_ends_in_an_outage_says_so() {
    let server = RedisServer::start();
    let _holder = start_script(&server, &["job"], HOLD);
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = with(
        &server,
        &["run", "job", "--verbose", "--wait", "4s", "--", "true"],
    );
    let mut waiting = Process::spawn(command.stderr(log.reopen().unwrap()));
    eventually_blocking("it waits", || {
        fs::read_to_string(log.path())
            .unwrap()
            .contains("waiting for job")
    });
    assert!(is_held(&server, "job"));
    drop(server);
    assert_eq!(waiting.wait(SOON).code(), Some(69));
    // The library's warnings have the form of the program's own messages.
    let told = fs::read_to_string(log.path()).unwrap();
    assert!(told.contains("stanchion: connection lost"), "{told}");
    let tidy = |line: &str| line.starts_with("stanchion: ") && !line.contains("WARN");
    assert!(told.lines().all(tidy), "{told}");
}
