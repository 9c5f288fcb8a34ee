//! Signals are passed on to the command.

use std::process::Command;

use stanchion_testkit::{Process, RedisServer, Signal};

use crate::support::{SOON, is_held, start_script};

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
