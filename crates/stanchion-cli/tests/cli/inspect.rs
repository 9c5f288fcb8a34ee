//! `status`, `force-release`, `completions` and the help.

use stanchion_testkit::{Process, RedisServer, eventually_blocking};

use crate::support::{
    HOLD, code, is_held, json, output, stanchion, start_script, status, text, wait_for_waiters,
    with,
};

#[test]
fn status_of_a_free_lock() {
    let server = RedisServer::start();
    let free = output(&server, &["status", "job"]);
    assert_eq!(
        (free.status.code(), text(&free.stdout)),
        (Some(0), "job: free, there is no such key\n".into())
    );
    assert_eq!(code(&server, &["status", "job", "--check"]), Some(0));
    let line = status(&server, "job");
    assert_eq!(line["held"], false);
    assert!(line["holder"].is_null() && line["last_token"].is_null());
}

#[test]
fn status_of_a_held_lock() {
    let server = RedisServer::start();
    let _holder = start_script(&server, &["job", "--prefix", "p:"], HOLD);
    let held = output(&server, &["status", "job", "--prefix", "p:"]);
    assert_eq!(held.status.code(), Some(0));
    let shown = text(&held.stdout);
    assert!(shown.starts_with("p:job: held\n  owner       "), "{shown}");
    assert!(
        shown.contains("hold count  1\n") && shown.contains("s left\n"),
        "{shown}"
    );
    let args = ["status", "p:job", "--json", "--check"];
    let held = output(&server, &args);
    assert_eq!(held.status.code(), Some(1));
    let line = json(&held.stdout);
    assert_eq!(
        (&line["name"], &line["held"]),
        (&"p:job".into(), &true.into())
    );
    assert_eq!(line["holder"]["hold_count"], 1);
    let remaining = line["holder"]["remaining_ms"].as_u64().unwrap();
    assert!((1..=30_000).contains(&remaining), "{remaining}");
    assert!(line["last_token"].as_u64().unwrap() > 0);
}

#[test]
fn status_names_the_holders_process_and_how_many_wait() {
    let server = RedisServer::start();
    let holder = start_script(&server, &["job"], HOLD);
    let _waiter = Process::spawn(&mut with(&server, &["run", "job", "--", "true"]));
    wait_for_waiters(&server, "job", 1);
    let mut shown = String::new();
    eventually_blocking("it is in the line", || {
        shown = text(&output(&server, &["status", "job"]).stdout);
        shown.contains("  waiting     1 process")
    });
    assert!(shown.contains("\n  process     sh@"), "{shown}");
    assert!(
        shown.contains(&format!(" pid {}\n", holder.pid())),
        "{shown}"
    );
    let line = status(&server, "job");
    let owner = line["holder"]["owner"].as_str().unwrap();
    let process = line["processes"][owner].as_str().unwrap();
    assert!(process.starts_with("sh@"), "{line}");
}

#[test]
fn a_name_that_belongs_to_something_else_is_refused_and_left_alone() {
    let server = RedisServer::start();
    assert!(!server.cli(&["SET", "job", "precious"]).is_error());
    assert_eq!(code(&server, &["status", "job"]), Some(78));
    assert_eq!(code(&server, &["force-release", "job", "--yes"]), Some(78));
    assert_eq!(server.cli(&["GET", "job"]).as_text(), "precious");
}

#[test]
fn force_release_needs_a_confirmation() {
    let server = RedisServer::start();
    let _holder = start_script(&server, &["job"], HOLD);
    let refused = output(&server, &["force-release", "job"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--yes"));
    assert!(is_held(&server, "job"));
}

#[test]
fn force_release_says_what_it_found() {
    let server = RedisServer::start();
    let _holder = start_script(&server, &["job"], HOLD);
    let released = output(&server, &["force-release", "job", "--yes", "--json"]);
    assert_eq!(released.status.code(), Some(0));
    let line = json(&released.stdout);
    assert_eq!(
        (&line["name"], &line["released"]),
        (&"job".into(), &true.into())
    );
    assert_eq!(line["holder"]["hold_count"], 1);
    assert!(!is_held(&server, "job"));
    let free = output(&server, &["force-release", "job", "--yes"]);
    assert_eq!(
        (free.status.code(), text(&free.stdout)),
        (Some(1), "job: was free\n".into())
    );
}

#[test]
fn memory_and_unreachable_servers_are_refused() {
    for command in ["status", "force-release"] {
        let run = |url| {
            stanchion(&[command, "job", "--url", url])
                .arg(if command == "status" {
                    "--check"
                } else {
                    "--yes"
                })
                .output()
        };
        let memory = run("memory://x").unwrap();
        assert_eq!(memory.status.code(), Some(78), "{command}");
        assert!(text(&memory.stderr).contains("inside one process"));
        assert_eq!(
            run("redis://127.0.0.1:1").unwrap().status.code(),
            Some(69),
            "{command}"
        );
    }
}

#[test]
fn completions_and_version_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&stanchion(&["completions", shell]).output().unwrap().stdout);
        assert!(script.contains("force-release"), "{shell}");
        assert!(
            !script.contains("__launch"),
            "{shell}: an inner command is offered"
        );
    }
    let version = text(&stanchion(&["--version"]).output().unwrap().stdout);
    assert_eq!(
        version,
        format!("stanchion {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn man_writes_a_page_for_each_command_of_the_help() {
    let folder = tempfile::tempdir().unwrap();
    let written = stanchion(&["man", folder.path().to_str().unwrap()]).output();
    assert_eq!(written.unwrap().status.code(), Some(0));
    let commands = |of: &[&str]| -> Vec<String> {
        let help = text(
            &stanchion(&[of, &["--help"]].concat())
                .output()
                .unwrap()
                .stdout,
        );
        let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let lines = lines.take_while(|line| !line.is_empty());
        // Not the lines on which a description continues.
        let lines = lines.filter(|line| !line.starts_with("   "));
        let names = lines.filter_map(|line| line.split_whitespace().next());
        names
            .filter(|name| *name != "help")
            .map(str::to_owned)
            .collect()
    };
    let mut pages = vec!["stanchion.1".to_owned()];
    for name in commands(&[]) {
        let inner = commands(&[&name]).into_iter();
        pages.extend(inner.map(|inner| format!("stanchion-{name}-{inner}.1")));
        pages.push(format!("stanchion-{name}.1"));
    }
    let found = std::fs::read_dir(folder.path()).unwrap();
    let mut found: Vec<_> = found
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    found.sort();
    assert_eq!(pages, found);

    let missing = stanchion(&["man", "/nonexistent"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(74));
    assert!(text(&missing.stderr).contains("/nonexistent: No such file"));
}

#[test]
fn help_does_not_show_the_password_of_the_environment() {
    let help = stanchion(&["run", "--help"])
        .env("STANCHION_URL", "redis://:hunter2@h/")
        .output();
    let help = text(&help.unwrap().stdout);
    assert!(
        help.contains("STANCHION_URL") && !help.contains("hunter2"),
        "{help}"
    );
}
