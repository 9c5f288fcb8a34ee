//! Signals: passed on to the command, and an end while waiting leaves nothing behind.

use std::process::Command;

use stanchion_testkit::{Process, RedisServer, Signal};

use crate::support::{SOON, is_held, start_script, wait_for_waiters, with};

#[test]
fn term_reaches_the_command_and_its_exit_code_passes() {
    let server = RedisServer::start();
    let script = "trap 'echo told; exit 5' TERM; echo ready; idle";
    let mut run = start_script(&server, &["job"], script);
    run.signal(Signal::Term);
    run.wait_for_line(|line| line == "told", SOON);
    assert_eq!(run.wait(SOON).code(), Some(5));
    assert!(!is_held(&server, "job"));
}

#[test]
fn a_command_that_dies_of_a_signal_gives_128_and_its_number() {
    let server = RedisServer::start();
    let mut run = start_script(&server, &["job"], "echo ready; exec sleep 60");
    run.signal(Signal::Term);
    assert_eq!(run.wait(SOON).code(), Some(128 + 15));
    assert!(!is_held(&server, "job"));
}

#[test]
fn int_without_a_terminal_and_usr1_reach_the_command() {
    let server = RedisServer::start();
    let script = "trap 'echo int' INT; trap 'echo usr1; exit 4' USR1; echo ready; idle";
    let mut run = start_script(&server, &["job"], script);
    run.signal(Signal::Int);
    run.wait_for_line(|line| line == "int", SOON);
    let sent = Command::new("kill")
        .args(["-USR1", &run.pid().to_string()])
        .status();
    assert!(sent.unwrap().success());
    run.wait_for_line(|line| line == "usr1", SOON);
    assert_eq!(run.wait(SOON).code(), Some(4));
}

#[test]
fn an_ignored_signal_stays_ignored_as_with_nohup() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let server = RedisServer::start();
    let script = "echo ready; read line; exit 6";
    let binary = env!("CARGO_BIN_EXE_stanchion");
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            r#"trap '' HUP; exec "$0" run job -- sh -c "$1""#,
            binary,
            script,
        ])
        .env("STANCHION_URL", server.url());
    let mut run = Process::spawn(&mut shell);
    run.wait_for_line(|line| line == "ready", SOON);
    let sent = Command::new("kill")
        .args(["-HUP", &run.pid().to_string()])
        .status();
    assert!(sent.unwrap().success());
    run.send_line("go on");
    assert_eq!(run.wait(SOON).code(), Some(6));
}

#[test]
fn an_interrupted_wait_leaves_nothing_behind() {
    let server = RedisServer::start();
    let mut holder = start_script(&server, &["job"], "echo ready; read line");
    for (signal, code) in [(Signal::Int, 130), (Signal::Term, 143)] {
        let mut waiting = Process::spawn(&mut with(&server, &["run", "job", "--", "echo", "ran"]));
        wait_for_waiters(&server, "job", 1);
        waiting.signal(signal);
        assert_eq!(waiting.wait(SOON).code(), Some(code));
        assert!(waiting.lines().is_empty());
        // It has left the line itself: its place has not ended with time.
        assert_eq!(server.cli(&["EXISTS", "stanchion_line:{job}"]).as_int(), 0);
        wait_for_waiters(&server, "job", 0);
    }
    holder.send_line("end");
    assert!(holder.wait(SOON).success());
    assert!(!is_held(&server, "job"));
    let left: Vec<String> = server.keys();
    assert!(
        left.iter().all(|key| key.starts_with("stanchion_fence:")),
        "{left:?}"
    );
}
