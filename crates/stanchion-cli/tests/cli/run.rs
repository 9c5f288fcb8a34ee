//! `run`: exit codes, what the command sees, exclusion, losing the lock.

use std::fs;
use std::process::Child;

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking};

use crate::support::{
    HOLD, SOON, code, is_held, json, output, stanchion, start_script, text, wait_for_waiters, with,
};

#[test]
fn the_exit_code_is_the_commands() {
    let server = RedisServer::start();
    assert_eq!(code(&server, &["run", "job", "--", "true"]), Some(0));
    let seven = ["run", "job", "--", "sh", "-c", "exit 7"];
    assert_eq!(code(&server, &seven), Some(7));
    let killed = ["run", "job", "--", "sh", "-c", "kill -9 $$"];
    assert_eq!(code(&server, &killed), Some(128 + 9));
    assert!(!is_held(&server, "job"));
}

#[test]
fn a_command_that_does_not_start_has_the_codes_of_the_shell_and_frees_the_lock() {
    let server = RedisServer::start();
    let missing = output(&server, &["run", "job", "--", "/nowhere/at-all"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("/nowhere/at-all"));
    assert_eq!(code(&server, &["run", "job", "--", "/dev/null"]), Some(126));
    assert!(!is_held(&server, "job"));
}

#[test]
fn the_commands_arguments_and_output_pass_untouched() {
    let server = RedisServer::start();
    let script = r#"cat; printf '%s|' "$@"; echo err >&2"#;
    let args = [
        "run", "job", "--", "sh", "-c", script, "sh", "--wait", "a b", "",
    ];
    let mut command = with(&server, &args);
    let input = tempfile::NamedTempFile::new().unwrap();
    fs::write(input.path(), "in;").unwrap();
    command.stdin(fs::File::open(input.path()).unwrap());
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "in;--wait|a b||");
    assert_eq!(text(&output.stderr), "err\n");
}

#[test]
fn the_command_needs_no_dashes_as_with_flock() {
    let server = RedisServer::start();
    let script = r#"printf '%s|' "$@""#;
    for command in ["run", "lead"] {
        let args = [
            command, "job", "sh", "-c", script, "sh", "-w", "--all", "--", "a b",
        ];
        let ran = output(&server, &args);
        assert_eq!(
            text(&ran.stdout),
            "-w|--all|--|a b|",
            "{}",
            text(&ran.stderr)
        );
    }
    let both = output(&server, &["run", "job", "echo", "--wait", "5m", "ran"]);
    assert_eq!(
        (both.status.code(), text(&both.stdout).as_str()),
        (Some(2), "")
    );
    let told = text(&both.stderr);
    assert!(
        told.contains("type `stanchion run job --wait 5m echo ran` or"),
        "{told}"
    );
    assert!(
        told.contains("or `stanchion run job -- echo --wait 5m ran`\n"),
        "{told}"
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "another process waits, in real time"
)]
fn a_bare_number_is_seconds_in_every_option() {
    let server = RedisServer::start();
    let _holder = start_script(&server, &["job"], HOLD);
    let begun = std::time::Instant::now();
    let refused = output(
        &server,
        &[
            "run", "-w", "0.2", "--lease", "9", "--grace", "3", "job", "true",
        ],
    );
    assert_eq!(refused.status.code(), Some(75), "{}", text(&refused.stderr));
    assert!(begun.elapsed() >= std::time::Duration::from_millis(200));
    for args in [
        &["run", "once", "--every", "60", "true"][..],
        &["run", "least", "--at-least", "2", "true"],
        &["hold", "held", "--for", "60"],
        &["ls", "--scan", "--budget", "60"],
        &["watch", "job", "--every", "1", "--count", "1"],
        &["top", "--once", "--every", "1"],
    ] {
        let ran = output(&server, args);
        assert_eq!(
            ran.status.code(),
            Some(0),
            "{args:?}: {}",
            text(&ran.stderr)
        );
    }
}

#[test]
fn the_command_sees_a_token_that_grows() {
    let server = RedisServer::start();
    let print = "echo $STANCHION_FENCING_TOKEN $STANCHION_NAME";
    let mut last = 0_u64;
    for _ in 0..5 {
        let output = output(&server, &["run", "job", "--", "sh", "-c", print]);
        let printed = text(&output.stdout);
        let (token, name) = printed.trim().split_once(' ').unwrap();
        let token = token.parse().unwrap();
        assert!(token > last, "{token} after {last}");
        assert_eq!(name, "job");
        last = token;
    }
}

#[test]
fn a_held_lock_is_not_acquired_within_the_wait() {
    let server = RedisServer::start();
    let _holder = start_script(&server, &["job"], HOLD);
    for wait in ["0", "100ms"] {
        let refused = output(
            &server,
            &["run", "job", "--wait", wait, "--", "echo", "ran"],
        );
        assert_eq!(refused.status.code(), Some(75), "--wait {wait}");
        assert_eq!(text(&refused.stdout), "");
        let said = text(&refused.stderr);
        // P8: on a busy machine the end of a wait may not be confirmed in time.
        let is_unconfirmed = wait != "0" && said.contains("what it may have left");
        assert!(
            said.contains("held by another process") || is_unconfirmed,
            "{said}"
        );
    }
    let own_code = ["run", "job", "--wait", "0", "-E", "9", "--", "true"];
    assert_eq!(code(&server, &own_code), Some(9));
    let quiet = output(
        &server,
        &["run", "job", "--wait", "0", "-E", "0", "--", "true"],
    );
    assert_eq!(
        (quiet.status.code(), text(&quiet.stderr)),
        (Some(0), String::new())
    );
    let other_prefix = ["run", "job", "--wait", "0", "--prefix", "p:", "--", "true"];
    assert_eq!(code(&server, &other_prefix), Some(0));
}

#[test]
fn a_waiting_run_names_the_holder() {
    let server = RedisServer::start();
    let mut holder = start_script(&server, &["job"], "echo ready; read line");
    let log = tempfile::NamedTempFile::new().unwrap();
    let args = [
        "run",
        "job",
        "--verbose",
        "--label",
        "nightly",
        "--",
        "true",
    ];
    let mut command = with(&server, &args);
    let mut waiting = Process::spawn(command.stderr(log.reopen().unwrap()));
    eventually_blocking("a message", || {
        let told = fs::read_to_string(log.path()).unwrap();
        told.contains("stanchion: nightly: waiting for job (held by ") && told.contains("s left)")
    });
    holder.send_line("go on");
    assert!(holder.wait(SOON).success());
    assert!(waiting.wait(SOON).success());
}

#[test]
fn an_unreachable_server_and_bad_configuration_differ() {
    let server = RedisServer::builder().password("hunter2").start();
    let run = |url: &str| {
        let output = stanchion(&["run", "job", "--wait", "0", "--url", url, "--", "true"]).output();
        let output = output.unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let port = server.addr().port();
    assert_eq!(run("redis://127.0.0.1:1/").0, Some(69));
    assert_eq!(run(&format!("redis://127.0.0.1:{port}/")).0, Some(78));
    assert_eq!(run("http://127.0.0.1/").0, Some(78));
    let (code, message) = run("memory://");
    assert_eq!(code, Some(78));
    assert!(message.contains("inside one process"), "{message}");
    // A password may change, so this may pass.
    let (code, message) = run(&format!("redis://:wrong-secret@127.0.0.1:{port}/"));
    assert_eq!(code, Some(69));
    assert!(!message.contains("wrong-secret"), "{message}");
    assert_eq!(run(&server.url()).0, Some(0));
}

#[test]
fn usage_errors_are_claps() {
    let server = RedisServer::start();
    assert_eq!(code(&server, &["run"]), Some(2));
    assert_eq!(
        code(&server, &["run", "job", "--lease", "1ms", "--", "true"]),
        Some(2)
    );
    assert_eq!(
        code(&server, &["run", "job", "--wait", "soon", "--", "true"]),
        Some(2)
    );
}

#[test]
fn a_lost_lock_stops_the_command() {
    let server = RedisServer::start();
    let script = "trap 'echo stopped; exit 0' TERM; echo ready; idle";
    let mut run = start_script(&server, &["job", "--lease", "1s"], script);
    assert_eq!(server.cli(&["DEL", "job"]).as_int(), 1);
    run.wait_for_line(|line| line == "stopped", SOON);
    assert_eq!(run.wait(SOON).code(), Some(73));
}

#[test]
fn a_command_that_ignores_term_is_killed_after_the_grace() {
    let server = RedisServer::start();
    let script = "trap '' TERM; echo ready; exec sleep 30";
    let options = ["job", "--lease", "300ms", "--grace", "200ms"];
    let mut run = start_script(&server, &options, script);
    assert_eq!(server.cli(&["DEL", "job"]).as_int(), 1);
    assert_eq!(run.wait(SOON).code(), Some(73));
}

#[test]
fn a_lock_that_was_gone_when_the_command_ended_counts_as_lost() {
    let server = RedisServer::start();
    let mut run = start_script(&server, &["job"], "echo ready; read line");
    assert_eq!(server.cli(&["DEL", "job"]).as_int(), 1);
    run.send_line("end");
    assert_eq!(run.wait(SOON).code(), Some(73));
}

#[test]
fn runs_exclude_each_other() {
    const RUNS: usize = 4;
    const ROUNDS: usize = 15;
    let server = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let script = format!(
        "echo begin $$ >>{0}; sleep 0.005; echo end $$ >>{0}",
        log.display()
    );
    let args = ["run", "job", "--", "sh", "-c", &script];
    for _ in 0..ROUNDS {
        let start = |_| with(&server, &args).spawn().unwrap();
        let children: Vec<Child> = (0..RUNS).map(start).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
    }
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 2 * RUNS * ROUNDS);
    for pair in lines.chunks(2) {
        let who = pair[0]
            .strip_prefix("begin ")
            .unwrap_or_else(|| panic!("{pair:?}"));
        assert_eq!(pair[1], format!("end {who}"));
    }
}

#[test]
fn a_killed_run_frees_the_lock_within_its_lease_and_takes_its_command_along() {
    let server = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let stopped = dir.path().join("stopped");
    let script = format!(
        "trap 'touch {}; exit' TERM; echo ready; idle",
        stopped.display()
    );
    let mut run = start_script(&server, &["job", "--lease", "1s"], &script);
    let mut next = Process::spawn(&mut with(&server, &["run", "job", "--", "echo", "ready"]));
    wait_for_waiters(&server, "job", 1);
    run.signal(Signal::Kill);
    run.wait(SOON);
    // No message tells the waiter: the lease ends, and it asks again at that time.
    next.wait_for_line(|line| line == "ready", SOON);
    assert!(next.wait(SOON).success());
    if cfg!(target_os = "linux") {
        eventually_blocking("the command was stopped", || stopped.exists());
    }
}

#[test]
fn json_contains_the_outcome_in_one_line() {
    let server = RedisServer::start();
    let ran = output(
        &server,
        &["run", "job", "--json", "--", "sh", "-c", "exit 3"],
    );
    let line = json(&ran.stderr);
    assert_eq!(line["name"], "job");
    assert_eq!(
        (&line["outcome"], &line["exit_code"]),
        (&"exited".into(), &3.into())
    );
    assert!(line["fencing_token"].as_u64().unwrap() > 0);
    assert!(line["waited_ms"].is_u64() && line["held_ms"].is_u64());

    let _holder = start_script(&server, &["job"], HOLD);
    let refused = output(
        &server,
        &["run", "job", "--json", "--wait", "0", "--", "true"],
    );
    let line = json(&refused.stderr);
    assert_eq!(
        (&line["outcome"], &line["exit_code"]),
        (&"not_acquired".into(), &75.into())
    );

    let failed = output(
        &server,
        &[
            "run",
            "job",
            "--json",
            "--wait",
            "0",
            "--url",
            "redis://127.0.0.1:1",
            "--",
            "true",
        ],
    );
    assert_eq!(json(&failed.stderr)["outcome"], "failed");
}

/// Ends a process without a chance to clean up.
fn kill(pid: u32) {
    let pid = pid.to_string();
    let killed = std::process::Command::new("kill")
        .args(["-KILL", &pid])
        .status();
    assert!(killed.unwrap().success());
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
        let command = crate::support::pids(&mut run)[0];
        kill(run.pid());
        // A reader would not wait for another one.
        let other = match kind {
            ["--read"] => &["--write"][..],
            kind => kind,
        };
        let next = [&["run", &*name, "--verbose"], other, &["--", "true"]].concat();
        let next = output(&server, &next);
        assert!(next.status.success(), "{kind:?}: {}", text(&next.stderr));
        // P12: not before.
        assert!(!crate::support::runs(command), "{kind:?}");
    }
}

#[test]
fn without_a_command_it_holds_until_a_signal() {
    let server = RedisServer::start();
    for (verb, name) in [("run", "job"), ("lead", "leader")] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = with(&server, &[verb, name]);
        let mut holder = Process::spawn(command.stderr(log.reopen().unwrap()));
        let told = format!("stanchion: holding {name}: Ctrl-C releases it\n");
        eventually_blocking("it says so", || {
            fs::read_to_string(log.path()).unwrap() == told
        });
        assert!(is_held(&server, name));
        let clients = text(&output(&server, &["clients"]).stdout);
        assert!(clients.contains("\nrun "), "{clients}");
        let pid = holder.pid().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status();
        assert!(sent.unwrap().success());
        assert_eq!(holder.wait(SOON).code(), Some(130));
        assert!(!is_held(&server, name));
    }
}

#[test]
fn a_run_that_would_wait_for_itself_is_refused() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_stanchion");
    let told = |kind: &[&str]| {
        let inner = [&[program, "run", "a"], kind, &["--", "true"]].concat();
        let between = [&[program, "run", "b", "--"], &*inner].concat();
        let outer = [&["run", "a"], kind, &["--"], &*between].concat();
        let refused = output(&server, &outer);
        (refused.status.code(), text(&refused.stderr))
    };
    for kind in [&[][..], &["--permits", "1"]] {
        let (code, told) = told(kind);
        assert_eq!(code, Some(78), "{told}");
        assert!(
            told.contains("a is held by the `run` that started"),
            "{told}"
        );
        assert_eq!(output(&server, &["status", "a"]).status.code(), Some(0));
        let _ = server.cli(&["DEL", "a"]);
    }
    // Another permit, another reader: no wait.
    for kind in [&["--permits", "2"][..], &["--read"]] {
        assert_eq!(told(kind).0, Some(0), "{kind:?}");
        server.flush();
    }
}
