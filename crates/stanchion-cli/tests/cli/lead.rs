//! Leading: `lead` and `leader`.

use std::path::{Path, PathBuf};
use std::process::Command;

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking};

use crate::support::*;

/// `lead indexer --value VALUE OPTIONS -- sh -c SCRIPT`.
fn command(server: &RedisServer, value: &str, options: &[&str], script: &str) -> Command {
    let mut args = vec!["lead", "indexer", "--value", value];
    args.extend(options);
    let script = format!("{IDLE}; {script}");
    args.extend(["--", "sh", "-c", &script]);
    with(server, &args)
}

fn start(server: &RedisServer, value: &str, options: &[&str], script: &str) -> Process {
    Process::spawn(&mut command(server, value, options, script))
}

fn line(process: &mut Process, wanted: &str) -> String {
    process.wait_for_line(|line| line.starts_with(wanted), SOON)
}

fn leader(server: &RedisServer) -> String {
    text(&output(server, &["leader", "indexer"]).stdout)
}

fn candidates(server: &RedisServer, count: usize) {
    eventually_blocking("they are candidates", || {
        let shown = json(&output(server, &["leader", "indexer", "--json"]).stdout);
        shown["candidates"].as_array().unwrap().len() == count
    });
}

/// A path in a folder of its own, and the folder.
fn ready_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ready");
    (folder, path)
}

#[test]
fn without_a_value_others_see_the_machine_and_the_process() {
    let server = RedisServer::start();
    let script = format!("{IDLE}; {IDLES}");
    let args = ["lead", "indexer", "--", "sh", "-c", &script];
    let mut leading = Process::spawn(&mut with(&server, &args));
    line(&mut leading, "leads");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let expected = format!("{}:{}\n", host.trim(), leading.pid());
    assert_eq!(leader(&server), expected);
}

const IDLES: &str = "echo \"leads $STANCHION_FENCING_TOKEN\"; idle";

#[test]
fn it_leads_while_the_command_runs_and_exits_as_it_did() {
    let server = RedisServer::start();
    let nobody = output(&server, &["leader", "indexer"]);
    assert_eq!((nobody.status.code(), nobody.stdout.len()), (Some(1), 0));
    let (_folder, path) = ready_file();
    std::fs::write(&path, "of a run that was killed").unwrap();
    let ready = path.to_str().unwrap();
    let script = "echo leads $STANCHION_NAME; read go; exit 7";
    let mut leading = start(&server, "a:1", &["--ready-file", ready], script);
    // Its standard input is the command's.
    assert_eq!(line(&mut leading, "leads"), "leads indexer");
    assert_eq!(leader(&server), "a:1\n");
    eventually_blocking("it is ready", || path.exists());
    let shown = json(&output(&server, &["leader", "indexer", "--json"]).stdout);
    assert_eq!(shown["leader"]["value"], "a:1");
    let token = shown["leader"]["token"].to_string();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        format!("{token}\n")
    );
    leading.send_line("go");
    assert_eq!(leading.wait(SOON).code(), Some(7));
    assert!(!path.exists() && !is_held(&server, "indexer"));
}

#[test]
fn after_a_signal_to_one_the_other_leads() {
    let server = RedisServer::start();
    let mut first = start(&server, "first", &[], IDLES);
    let before = line(&mut first, "leads");
    let mut second = start(&server, "second", &["--forever"], IDLES);
    candidates(&server, 1);
    first.signal(Signal::Term);
    assert_eq!(first.wait(SOON).code(), Some(143));
    assert!(line(&mut second, "leads") > before, "tokens of one length");
    assert_eq!(leader(&server), "second\n");
    second.signal(Signal::Term);
    assert_eq!(
        second.wait(SOON).code(),
        Some(143),
        "although it is for ever"
    );
    assert!(!is_held(&server, "indexer"));
}

#[test]
fn lost_it_stops_the_command_and_says_so_by_code_and_file() {
    let server = RedisServer::start();
    for (forever, code) in [(&[][..], Some(73)), (&["--forever"][..], None)] {
        let (_folder, path) = ready_file();
        let mut options = vec!["--ready-file", path.to_str().unwrap()];
        options.extend(forever);
        let script = format!("trap 'echo stopped; exit 5' TERM; {IDLES}");
        let mut leading = start(&server, "v", &options, &script);
        line(&mut leading, "leads");
        eventually_blocking("it is ready", || path.exists());
        eventually_blocking("it is told", || {
            let _ = server.cli(&["DEL", "indexer"]);
            !path.exists()
        });
        line(&mut leading, "stopped");
        if code.is_some() {
            assert_eq!(leading.wait(SOON).code(), code);
        } else {
            line(&mut leading, "leads");
            leading.signal(Signal::Term);
            assert_eq!(leading.wait(SOON).code(), Some(5));
        }
        assert!(!path.exists());
    }
}

#[test]
fn for_ever_it_runs_again_after_each_term() {
    let server = RedisServer::start();
    let script = "echo \"leads $STANCHION_FENCING_TOKEN\"; read code; exit $code";
    let mut leading = start(&server, "v", &["--forever"], script);
    let mut last = line(&mut leading, "leads");
    for code in ["0", "3"] {
        leading.send_line(code);
        let next = line(&mut leading, "leads");
        assert!(next > last);
        last = next;
    }
    leading.signal(Signal::Term);
    assert_eq!(leading.wait(SOON).code(), Some(143));
    let missing = [
        "lead",
        "indexer",
        "--value",
        "v",
        "--forever",
        "--",
        "/none",
    ];
    assert_eq!(code(&server, &missing), Some(127));
}

#[test]
fn a_higher_priority_is_reported_and_may_count_as_a_request() {
    let server = RedisServer::start();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut low = command(&server, "low", &["--on-request", "term"], IDLES);
    let mut low = Process::spawn(low.stderr(log.reopen().unwrap()));
    line(&mut low, "leads");
    let mut high = start(&server, "high", &["--priority", "5"], IDLES);
    line(&mut high, "leads");
    assert_eq!(low.wait(SOON).code(), Some(143));
    let told = std::fs::read_to_string(log.path()).unwrap();
    let wanted = "stanchion: release of indexer requested: a candidate of priority 5 waits\n";
    assert_eq!(told, wanted);
    assert_eq!(leader(&server), "high\n");
}

#[test]
fn changes_are_shown_as_they_come() {
    let server = RedisServer::start();
    let mut plain = Process::spawn(&mut with(&server, &["leader", "indexer", "--watch"]));
    line(&mut plain, "nobody leads");
    let mut lines = Process::spawn(&mut with(&server, &["leader", "indexer", "-w", "--json"]));
    line(&mut lines, "{\"name\":\"indexer\",\"leader\":null}");
    let leading = start(&server, "a\x1b[2Jb", &[], IDLES);
    assert_eq!(line(&mut plain, "a"), "a\\u{1b}[2Jb leads");
    line(&mut lines, "{\"name\":\"indexer\",\"leader\":{\"id\":");
    leading.signal(Signal::Term);
    line(&mut plain, "nobody leads");
    let _ = server.cli(&["SET", "number", "3"]);
    for options in [&["leader", "number"][..], &["leader", "number", "--watch"]] {
        assert_eq!(code(&server, options), Some(78), "{options:?}");
    }
}

#[test]
fn a_readiness_file_that_cannot_be_written_ends_it() {
    let server = RedisServer::start();
    let path = Path::new("/nowhere/at/all");
    let options = ["--ready-file", path.to_str().unwrap()];
    let failed = command(&server, "v", &options, IDLES).output().unwrap();
    assert_eq!(failed.status.code(), Some(74));
    let said = text(&failed.stderr);
    assert!(said.contains("/nowhere/at/all"), "{said}");
    assert!(!is_held(&server, "indexer"));
}
