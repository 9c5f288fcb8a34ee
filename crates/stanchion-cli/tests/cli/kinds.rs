//! The family on the command line: `run --fair`, `--read`, `--write`, `--permits`, and what `status` tells of each.

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking};

use crate::support::{HOLD, SOON, code, json, output, start_script, status, text, with};

/// Returns whether a `run` with these options is turned away at once.
fn is_refused(server: &RedisServer, options: &[&str]) -> bool {
    let mut args = vec!["run", "--wait", "0"];
    args.extend(options);
    args.extend(["--", "true"]);
    match code(server, &args) {
        Some(75) => true,
        Some(0) => false,
        other => panic!("{options:?}: {other:?}"),
    }
}

/// Nothing but fence counters.
fn at_rest(server: &RedisServer) -> bool {
    let keys = server.keys();
    keys.iter().all(|key| key.starts_with("stanchion_fence:"))
}

#[test]
fn a_kind_selects_one_of_several_under_a_name() {
    let server = RedisServer::start();
    for pair in [
        ["--fair", "--read"],
        ["--read", "--write"],
        ["--write", "--permits=2"],
    ] {
        let args = ["run", "job", pair[0], pair[1], "--", "true"];
        assert_eq!(code(&server, &args), Some(2), "{pair:?}");
    }
    let none = ["run", "job", "--permits", "0", "--", "true"];
    assert_eq!(code(&server, &none), Some(2));
}

#[test]
fn readers_run_together_and_writers_alone() {
    let server = RedisServer::start();
    let mut readers = [0, 1].map(|_| start_script(&server, &["catalog", "--read"], HOLD));
    assert!(is_refused(&server, &["catalog", "--write"]));
    assert!(!is_refused(&server, &["catalog", "--read"]));
    let seen = status(&server, "catalog");
    assert_eq!(
        (&seen["kind"], &seen["held"], &seen["reader_count"]),
        (&"rwlock".into(), &true.into(), &2.into())
    );
    let shown = text(&output(&server, &["status", "catalog"]).stdout);
    assert!(
        shown.starts_with("catalog: held by 2 readers\n  reader      "),
        "{shown}"
    );
    for reader in &mut readers {
        reader.close_stdin();
        assert_eq!(reader.wait(SOON).code(), Some(0));
    }
    let mut writer = start_script(
        &server,
        &["catalog", "--write"],
        "test -n \"$STANCHION_FENCING_TOKEN\" && echo ready; cat",
    );
    assert!(is_refused(&server, &["catalog", "--read"]));
    assert!(is_refused(&server, &["catalog", "--write"]));
    assert!(status(&server, "catalog")["writer"]["owner"].is_string());
    writer.close_stdin();
    assert_eq!(writer.wait(SOON).code(), Some(0));
    assert!(at_rest(&server), "{:?}", server.keys());
}

#[test]
fn readers_and_permits_have_no_token() {
    let server = RedisServer::start();
    let print = "echo token=$STANCHION_FENCING_TOKEN";
    for kind in ["--read", "--permits=2"] {
        let name = kind.trim_start_matches('-');
        let mut command = with(&server, &["run", name, kind, "--", "sh", "-c", print]);
        // An outer run's token must not be taken for ours.
        command.env("STANCHION_FENCING_TOKEN", "7");
        let shown = command.output().unwrap();
        assert_eq!(text(&shown.stdout), "token=\n", "{kind}");
    }
}

#[test]
fn so_many_run_at_a_time_as_there_are_permits() {
    let server = RedisServer::start();
    let options = ["thumbs", "--permits", "2"];
    let mut running = [0, 1].map(|_| start_script(&server, &options, HOLD));
    let refused = output(
        &server,
        &[
            "run",
            "thumbs",
            "--permits",
            "2",
            "--wait",
            "0",
            "--",
            "true",
        ],
    );
    assert_eq!(refused.status.code(), Some(75));
    assert!(text(&refused.stderr).contains("all permits of thumbs are held by others"));
    let seen = status(&server, "thumbs");
    assert_eq!(
        (&seen["kind"], &seen["available"], &seen["total"]),
        (&"leased-semaphore".into(), &0.into(), &2.into())
    );
    assert_eq!(seen["permits"].as_array().unwrap().len(), 2);
    assert_eq!(code(&server, &["status", "thumbs", "--check"]), Some(1));
    // One that is killed gives its permit back with its lease; one that ends does so at once.
    let [one, two] = &mut running;
    one.close_stdin();
    assert_eq!(one.wait(SOON).code(), Some(0));
    assert!(!is_refused(&server, &options));
    assert_eq!(code(&server, &["status", "thumbs", "--check"]), Some(0));
    two.close_stdin();
    assert_eq!(two.wait(SOON).code(), Some(0));
    let all = json(
        &output(
            &server,
            &["status", "thumbs", "--kind", "leased-semaphore", "--json"],
        )
        .stdout,
    );
    assert_eq!((&all["available"], &all["total"]), (&2.into(), &2.into()));
}

#[test]
fn a_semaphore_that_has_another_number_of_permits_keeps_it_and_says_so() {
    let server = RedisServer::start();
    assert_eq!(
        code(&server, &["run", "thumbs", "--permits", "1", "--", "true"]),
        Some(0)
    );
    let more = output(&server, &["run", "thumbs", "--permits", "5", "--", "true"]);
    assert_eq!(more.status.code(), Some(0));
    assert!(
        text(&more.stderr).contains("thumbs has 1 permits, not 5"),
        "{}",
        text(&more.stderr)
    );
}

#[test]
fn a_permit_of_a_killed_run_comes_back_with_its_lease() {
    let server = RedisServer::start();
    let options = ["thumbs", "--permits", "1", "--lease", "500ms"];
    let mut holder = start_script(&server, &options, HOLD);
    holder.signal(Signal::Kill);
    holder.wait(SOON);
    let next = ["run", "thumbs", "--permits", "1", "--", "true"];
    assert_eq!(code(&server, &next), Some(0));
}

#[test]
fn a_fair_run_is_served_in_line() {
    let server = RedisServer::start();
    let mut holder = start_script(&server, &["job", "--fair"], HOLD);
    let print = |word: &str| {
        let script = format!("echo {word}");
        with(
            &server,
            &["run", "job", "--fair", "--", "sh", "-c", &script],
        )
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap()
    };
    let waiting = |count: i64| {
        eventually_blocking("it stands in line", || {
            server.cli(&["LLEN", "redisson_lock_queue:{job}"]).as_int() == count
        });
    };
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap();
    let mut line = Vec::new();
    for (place, word) in ["first", "second", "third"].into_iter().enumerate() {
        let script = format!("echo {word} >> {path}");
        line.push(Process::spawn(&mut with(
            &server,
            &["run", "job", "--fair", "--", "sh", "-c", &script],
        )));
        waiting(i64::try_from(place).unwrap() + 1);
    }
    let seen = status(&server, "job");
    assert_eq!(
        (&seen["kind"], &seen["queue_len"]),
        (&"fair".into(), &3.into())
    );
    holder.close_stdin();
    for waiter in &mut line {
        assert_eq!(waiter.wait(SOON).code(), Some(0));
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        "first\nsecond\nthird\n"
    );
    let last = print("last").wait_with_output().unwrap();
    assert_eq!(text(&last.stdout), "last\n");
    assert!(at_rest(&server), "{:?}", server.keys());
}

#[test]
fn a_name_is_for_one_kind() {
    let server = RedisServer::start();
    let mut holder = start_script(&server, &["job"], HOLD);
    for other in [&["job", "--read"][..], &["job", "--permits", "2"]] {
        let mut args = vec!["run", "--wait", "0"];
        args.extend(other);
        args.extend(["--", "true"]);
        assert_eq!(code(&server, &args), Some(78), "{other:?}");
    }
    holder.close_stdin();
    assert_eq!(holder.wait(SOON).code(), Some(0));
}

#[test]
fn readers_are_released_by_force() {
    let server = RedisServer::start();
    let mut readers =
        [0, 1].map(|_| start_script(&server, &["catalog", "--read", "--lease", "600ms"], HOLD));
    let freed = output(&server, &["force-release", "catalog", "--yes"]);
    assert_eq!(
        (freed.status.code(), text(&freed.stdout)),
        (Some(0), "catalog: released from 2 readers\n".into())
    );
    for reader in &mut readers {
        assert_eq!(reader.wait(SOON).code(), Some(73), "they are told");
    }
}

#[test]
fn a_semaphore_is_not_released_as_a_whole() {
    let server = RedisServer::start();
    assert_eq!(
        code(&server, &["run", "thumbs", "--permits", "2", "--", "true"]),
        Some(0)
    );
    let refused = output(&server, &["force-release", "thumbs", "--yes"]);
    assert_eq!(refused.status.code(), Some(78));
    assert!(text(&refused.stderr).contains("not held as a whole"));
}

#[test]
fn a_number_is_reported_as_of_unknown_kind() {
    let server = RedisServer::start();
    assert!(!server.cli(&["SET", "count", "3"]).is_error());
    let shown = text(&output(&server, &["status", "count"]).stdout);
    assert!(
        shown.starts_with("count: 3\n") && shown.contains("--kind"),
        "{shown}"
    );
    let latch = output(&server, &["status", "count", "--kind", "latch"]);
    assert_eq!(text(&latch.stdout), "count: closed, 3 to go\n");
    let open = output(&server, &["status", "none", "--kind", "latch", "--check"]);
    assert_eq!(
        (open.status.code(), text(&open.stdout)),
        (Some(0), "none: open, there is no such key\n".into())
    );
}
