//! `--wait` is for the server, too.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use stanchion_testkit::{Process, RedisServer, eventually_blocking, machine_clock};

use crate::support::{HOLD, SOON, code, is_held, output, stanchion, start_script, text, with};

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
    // One time, at which what this wait may have left there ends. Nothing was held that could not be released.
    assert!(!told.contains("could not release"), "{told}");
}

/// Starts a `run` that prints `ran`, and waits until it tries again because of `why`. Returns it with its messages.
fn tries_again(command: &mut Command, why: &str) -> (Process, tempfile::NamedTempFile) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let run = Process::spawn(command.stderr(log.reopen().unwrap()));
    eventually_blocking("it tries again", || {
        let told = fs::read_to_string(log.path()).unwrap();
        told.contains("trying again") && told.contains(why)
    });
    (run, log)
}

#[test]
fn a_full_server_is_waited_for_by_every_kind() {
    let server = RedisServer::start();
    let full = |bytes: &str| {
        assert!(
            !server
                .cli(&["CONFIG", "SET", "maxmemory", bytes])
                .is_error()
        );
    };
    full("1");
    let kinds = [
        &["run", "job"][..],
        &["run", "fair", "--fair"],
        &["run", "rw", "--write"],
        &["run", "permits", "--permits", "2"],
        &["run", "least", "--at-least", "1s", "--wait", "1m"],
        &[
            "run",
            "tick",
            "--tick",
            "2026-11-23T03:00:00Z",
            "--wait",
            "1m",
        ],
        &["lead", "leader"],
    ];
    let mut waiting = Vec::new();
    for kind in kinds {
        // A cron job that does not wait gets the code of an outage, which stops no service.
        let at_once = [kind, &["--wait", "0", "--", "true"]].concat();
        if !kind.contains(&"--wait") {
            assert_eq!(code(&server, &at_once), Some(69), "{kind:?}");
        }
        let args = [kind, &["--", "echo", "ran"]].concat();
        waiting.push(tries_again(&mut with(&server, &args), "OOM"));
    }
    let checks = output(&server, &["doctor"]);
    assert_eq!(checks.status.code(), Some(1), "{}", text(&checks.stderr));
    let checks = text(&checks.stdout);
    assert!(checks.contains("FAIL messages: no lock"), "{checks}");
    full("0");
    for (run, log) in &mut waiting {
        run.wait_for_line(|line| line == "ran", SOON);
        assert!(run.wait(SOON).success());
        let told = fs::read_to_string(log.path()).unwrap();
        assert_eq!(told.matches("trying again").count(), 1, "{told}");
    }
}

#[test]
fn a_password_that_changes_is_read_again_from_its_file() {
    let server = RedisServer::start();
    let user = |password: &str| {
        let rules = [
            "ACL",
            "SETUSER",
            "app",
            "resetpass",
            password,
            "on",
            "~*",
            "&*",
            "+@all",
        ];
        assert!(!server.cli(&rules).is_error());
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |password: &str| {
        let url = server
            .url()
            .replace("redis://", &format!("redis://app:{password}@"));
        fs::write(file.path(), url).unwrap();
    };
    write("old");
    user(">new");
    let path = file.path().to_str().unwrap();
    let run = |options: &[&str]| {
        let args = [
            &["run", "job", "--url-file", path],
            options,
            &["--", "echo", "ran"],
        ]
        .concat();
        stanchion(&args)
    };
    assert_eq!(run(&["--wait", "0"]).status().unwrap().code(), Some(69));
    let (mut waiting, log) = tries_again(&mut run(&[]), "WRONGPASS");
    write("new");
    waiting.wait_for_line(|line| line == "ran", SOON);
    assert!(waiting.wait(SOON).success());
    let told = fs::read_to_string(log.path()).unwrap();
    assert!(!told.contains("old") && !told.contains("new"), "{told}");
}

#[test]
fn a_name_of_another_kind_is_refused_with_the_option_for_it() {
    let server = RedisServer::start();
    let told = |args: &[&str]| {
        let refused = output(&server, args);
        assert_eq!(refused.status.code(), Some(78), "{args:?}");
        text(&refused.stderr)
    };
    assert!(
        output(&server, &["run", "perm", "--permits", "3", "--", "true"])
            .status
            .success()
    );
    let _taken = start_script(&server, &["taken", "--permits", "3"], HOLD);
    for wait in ["0", "1s"] {
        assert_eq!(
            told(&["run", "perm", "--wait", wait, "--", "true"]),
            "stanchion: perm is a semaphore, or a latch: use --permits for a semaphore\n"
        );
        assert_eq!(
            told(&["run", "taken", "--wait", wait, "--", "true"]),
            "stanchion: taken is a semaphore: use --permits\n"
        );
    }
    assert!(told(&["lead", "taken", "--", "true"]).contains("give the election its own name"));
}
