//! P12: what `run` started, all of it, ends with the hold, and the hold is not given back before it has ended.

use std::fs;
use std::path::Path;
use std::process::Command;

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking};

use crate::support::{
    SOON, is_held, only_child, output, pids, runs, start_script, text, wait_for_waiters, with,
};

/// For scripts: a child that works on whatever it is told, a minute at most.
const DEAF: &str =
    "sh -c 'trap \"\" TERM HUP INT; for i in $(seq 3000); do sleep 0.02; done' & echo pid $!";
/// The same, in a session of its own, and with no parent.
const DAEMON: &str = "(setsid sh -c 'trap \"\" TERM HUP INT; echo pid $$; for i in $(seq 3000); do sleep 0.02; done' &); sleep 0.2";

fn all_ended(what: &str, pids: &[u32]) {
    for pid in pids {
        eventually_blocking(what, || !runs(*pid));
    }
}

/// A shell that runs a program in the foreground, as scripts do; the program says when it is ready.
fn shell_with_a_program(dir: &Path) -> String {
    let python = Command::new("python3").arg("--version").output().is_ok();
    let program = if python {
        let file = dir.join("program.py");
        let source = "import os, time\nprint('pid', os.getpid(), flush=True)\nprint('ready', flush=True)\ntime.sleep(60)\n";
        fs::write(&file, source).unwrap();
        format!("python3 {}", file.display())
    } else {
        "sh -c 'echo pid $$; echo ready; sleep 60'".to_owned()
    };
    format!("echo pid $$; {program}; echo went on")
}

#[test]
fn a_lost_lock_stops_what_the_command_has_started() {
    let server = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let script = shell_with_a_program(dir.path());
    let mut run = start_script(&server, &["job", "--lease", "1s"], &script);
    let started = pids(&mut run);
    assert_eq!(started.len(), 2);
    assert_eq!(server.cli(&["DEL", "job"]).as_int(), 1);
    assert_eq!(run.wait(SOON).code(), Some(73));
    assert!(!started.into_iter().any(runs));
    assert!(!run.lines().contains(&"went on".to_owned()));
}

#[test]
fn whatever_ignores_term_is_killed_after_the_grace_however_it_was_started() {
    let server = RedisServer::start();
    for (script, count) in [(DEAF, 1), (DAEMON, 1)] {
        let options = ["job", "--lease", "500ms", "--grace", "200ms"];
        let script = format!("{script}; echo ready; idle");
        let mut run = start_script(&server, &options, &script);
        let started = pids(&mut run);
        assert_eq!(started.len(), count, "{script}");
        assert_eq!(server.cli(&["DEL", "job"]).as_int(), 1);
        assert_eq!(run.wait(SOON).code(), Some(73));
        assert!(!started.into_iter().any(runs), "{script}");
    }
}

#[test]
fn term_for_run_ends_all_of_it_before_the_lock_is_given_back() {
    let server = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let may_end = dir.path().join("may-end");
    let slow = format!(
        "sh -c 'trap \"echo told\" TERM; while ! [ -e {} ]; do sleep 0.02; done' & echo pid $!",
        may_end.display()
    );
    let mut run = start_script(
        &server,
        &["job"],
        &format!("{slow}; sleep 0.2; echo ready; wait; wait"),
    );
    let started = pids(&mut run);
    run.signal(Signal::Term);
    run.wait_for_line(|line| line == "told", SOON);
    // The shell is dead by now, or soon; its child takes its time, and the lock is held for it.
    std::thread::park_timeout(std::time::Duration::from_millis(300));
    assert!(is_held(&server, "job") && runs(started[0]));
    fs::write(&may_end, "").unwrap();
    assert_eq!(run.wait(SOON).code(), Some(128 + 15));
    assert!(!runs(started[0]) && !is_held(&server, "job"));
}

#[test]
fn a_killed_run_takes_all_of_it_along() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let server = RedisServer::start();
    let script = format!("{DEAF}; {DAEMON}; echo pid $$; echo ready; idle");
    let mut run = start_script(&server, &["job", "--grace", "200ms"], &script);
    let started = pids(&mut run);
    assert_eq!(started.len(), 3);
    run.signal(Signal::Kill);
    all_ended("it ends without run", &started);
}

#[test]
fn a_killed_warden_takes_all_of_it_along_and_the_lock_is_given_back_after() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let server = RedisServer::start();
    let script = format!("{DEAF}; {DAEMON}; echo pid $$; echo ready; idle");
    let mut run = start_script(&server, &["job", "--grace", "200ms"], &script);
    let started = pids(&mut run);
    let warden = only_child(run.pid());
    let killed = Command::new("kill")
        .args(["-KILL", &warden.to_string()])
        .status();
    assert!(killed.unwrap().success());
    assert_eq!(run.wait(SOON).code(), Some(74));
    assert!(!started.into_iter().any(runs) && !is_held(&server, "job"));
}

#[test]
fn a_command_does_not_outlive_both_run_and_its_warden() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let server = RedisServer::start();
    let script = "trap '' TERM HUP; echo pid $$; echo ready; idle";
    let mut run = start_script(&server, &["job"], script);
    let started = pids(&mut run);
    let both = [run.pid(), only_child(run.pid())].map(|pid| pid.to_string());
    let killed = Command::new("kill").arg("-KILL").args(both).status();
    assert!(killed.unwrap().success());
    all_ended("the command ends with them", &started);
}

#[test]
fn a_run_that_is_stopped_does_not_renew_so_its_command_ends() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let server = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let script = shell_with_a_program(dir.path());
    let options = ["job", "--lease", "1s", "--grace", "1s"];
    let mut run = start_script(&server, &options, &script);
    let started = pids(&mut run);
    run.signal(Signal::Stop);
    all_ended("nobody renews", &started);
    run.signal(Signal::Cont);
    assert_eq!(run.wait(SOON).code(), Some(73));
}

#[test]
fn what_the_command_leaves_behind_keeps_the_lock() {
    let server = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let may_end = dir.path().join("may-end");
    let script = format!(
        "(setsid sh -c 'while ! [ -e {} ]; do sleep 0.02; done' >/dev/null 2>&1 &); exit 3",
        may_end.display()
    );
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = with(&server, &["run", "job", "--", "sh", "-c", &script]);
    let mut run = Process::spawn(command.stderr(log.reopen().unwrap()));
    eventually_blocking("a message", || {
        let told = fs::read_to_string(log.path()).unwrap();
        told.contains("the command has ended, but") && told.contains("job stays held until")
    });
    assert!(is_held(&server, "job"));
    fs::write(&may_end, "").unwrap();
    assert_eq!(run.wait(SOON).code(), Some(3));
    assert!(!is_held(&server, "job"));
}

#[test]
fn what_the_command_leaves_behind_can_be_stopped() {
    let server = RedisServer::start();
    let script = "sleep 60 & echo pid $!; exit 3";
    let args = [
        "run",
        "job",
        "--leftovers",
        "stop",
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut run = Process::spawn(&mut with(&server, &args));
    assert_eq!(run.wait(SOON).code(), Some(3));
    let sleep = run.wait_for_line(|line| line.starts_with("pid "), SOON);
    assert!(!runs(sleep["pid ".len()..].parse().unwrap()));

    // TERM does the same to a run that waits for what was left behind.
    let script = "sleep 60 >/dev/null & echo ready; exit 3";
    let mut run = start_script(&server, &["job"], script);
    let mut next = Process::spawn(&mut with(&server, &["run", "job", "--", "true"]));
    wait_for_waiters(&server, "job", 1);
    run.signal(Signal::Term);
    assert_eq!(run.wait(SOON).code(), Some(3));
    assert!(next.wait(SOON).success());
}

#[test]
fn processes_that_others_started_are_left_alone() {
    let server = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let script = shell_with_a_program(dir.path());
    // `exec` makes the shell's background job a child of `run`.
    let shell = r#"sleep 60 >/dev/null & echo pid $!; exec "$0" run job --lease 500ms --leftovers stop -- sh -c "$1""#;
    let mut command = Command::new("sh");
    command
        .args(["-c", shell, env!("CARGO_BIN_EXE_stanchion"), &script])
        .env("STANCHION_URL", server.url());
    let mut run = Process::spawn(&mut command);
    run.wait_for_line(|line| line == "ready", SOON);
    let [bystander, shell, program] = pids(&mut run)[..] else {
        panic!("{:?}", run.lines())
    };
    assert_eq!(server.cli(&["DEL", "job"]).as_int(), 1);
    assert_eq!(run.wait(SOON).code(), Some(73));
    assert!(runs(bystander) && !runs(shell) && !runs(program));
    Command::new("kill")
        .arg(bystander.to_string())
        .status()
        .unwrap();
}

#[test]
fn a_run_within_a_run_ends_with_the_outer_one() {
    let server = RedisServer::start();
    let script = format!("{DAEMON}; echo ready; sleep 60");
    let inner = [
        env!("CARGO_BIN_EXE_stanchion"),
        "run",
        "inner",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut args = vec!["run", "outer", "--lease", "500ms", "--grace", "1s", "--"];
    args.extend(inner);
    let mut run = Process::spawn(&mut with(&server, &args));
    run.wait_for_line(|line| line == "ready", SOON);
    let started = pids(&mut run);
    assert_eq!(server.cli(&["DEL", "outer"]).as_int(), 1);
    assert_eq!(run.wait(SOON).code(), Some(73));
    assert_eq!(started.len(), 1);
    assert!(!started.into_iter().any(runs));
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_run_frees_the_lock_of_every_kind_once_its_command_has_ended() {
    let server = RedisServer::start();
    for kind in [
        &[][..],
        &["--fair"],
        &["--read"],
        &["--write"],
        &["--permits", "1"],
    ] {
        let name = format!("job{}", kind.first().unwrap_or(&""));
        let options = [&[&*name, "--lease", "10m", "--grace", "1s"], kind].concat();
        // It ignores TERM, so it lives for all of the grace.
        let script = "trap '' TERM; echo pid $$; echo ready; idle";
        let mut run = start_script(&server, &options, script);
        let command = pids(&mut run)[0];
        run.signal(Signal::Kill);
        // A reader would not wait for another one.
        let other = match kind {
            ["--read"] => &["--write"][..],
            kind => kind,
        };
        let next = [&["run", &*name, "--verbose"], other, &["--", "true"]].concat();
        let next = output(&server, &next);
        assert!(next.status.success(), "{kind:?}: {}", text(&next.stderr));
        // P12: not before.
        assert!(!runs(command), "{kind:?}");
    }
}
