//! Holders are shown as processes: the label or the command, the host, the process id.

use stanchion_testkit::{Process, RedisServer, eventually_blocking};

use crate::support::*;

/// `deploy@<host> pid <n>` of the only client with that name.
fn process(server: &RedisServer) -> String {
    let listed = output(server, &["clients", "--json"]);
    let its = json(&listed.stdout);
    assert_eq!(its["app"], "deploy");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(its["host"], host.trim());
    format!("deploy@{} pid {}", host.trim(), its["pid"])
}

fn holder(server: &RedisServer, kind: &[&str]) -> Process {
    let options = [&["job", "--label", "deploy"], kind].concat();
    start_script(server, &options, HOLD)
}

#[test]
fn every_first_line_names_process_host_and_label() {
    let server = RedisServer::start();
    let run = holder(&server, &[]);
    let who = process(&server);
    assert!(who.ends_with(&format!("pid {}", run.pid())), "{who}");

    let waiter = ["run", "job", "--verbose", "--wait", "1s", "--", "true"];
    let told = text(&output(&server, &waiter).stderr);
    let first = told.lines().find(|line| line.contains("waiting for"));
    assert!(
        first.unwrap().contains(&format!("(held by {who}, ")),
        "{told}"
    );
    let last = told.lines().last().unwrap();
    assert!(
        last.contains(&format!("job is held by {who}, ")) && last.contains("; gave up after 1s")
    );

    let hold = ["hold", "job", "--for", "1m", "--wait", "1s"];
    let told = text(&output(&server, &hold).stderr);
    assert!(
        told.contains(&format!("waiting for job (held by {who}, ")),
        "{told}"
    );

    let watched = text(&output(&server, &["watch", "job", "--count", "1"]).stdout);
    assert!(
        watched.trim_end().ends_with(&format!("held by {who}")),
        "{watched}"
    );

    let clients = text(&output(&server, &["clients"]).stdout);
    assert!(
        clients.lines().next().unwrap().starts_with("APP     HOST"),
        "{clients}"
    );

    let forced = text(&output(&server, &["force-release", "job", "--yes"]).stdout);
    assert_eq!(forced, format!("job: released from {who}\n"));
}

#[test]
fn a_process_that_died_is_not_shown_as_alive() {
    let server = RedisServer::start();
    let mut run = holder(&server, &["--lease", "10m"]);
    let who = process(&server);
    let waiter = ["run", "job", "--label", "mail", "--", "true"];
    let mut waiter = Process::spawn(&mut with(&server, &waiter));
    eventually_blocking("hold and wait are published", || {
        let seen = json(&output(&server, &["inspect", "job", "--json"]).stdout);
        let listed = text(&output(&server, &["ls", "--json"]).stdout);
        // Only a record has the age of a hold.
        seen["waiters"][0]["process"].is_string()
            && listed.contains("\"held_ms\":")
            && !listed.contains("\"held_ms\":null")
    });
    // Both at once, so that neither frees the lock. The records stay for 30 s.
    let warden = only_child(run.pid());
    let signal = |kind: &str, pid: u32| {
        let pid = pid.to_string();
        let sent = std::process::Command::new("kill")
            .args([kind, &pid])
            .status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP", run.pid());
    signal("-KILL", warden);
    signal("-KILL", run.pid());
    run.wait(SOON);
    signal("-KILL", waiter.pid());
    waiter.wait(SOON);
    let gone = format!("{who} not seen");
    eventually_blocking("the server has closed the connections", || {
        let shown = text(&output(&server, &["status", "job"]).stdout);
        shown.contains(&format!("process     {gone}"))
    });
    let shown = text(&output(&server, &["inspect", "job"]).stdout);
    assert!(shown.contains(&gone) && shown.contains("mail@"), "{shown}");
    assert_eq!(shown.matches("not seen").count(), 2, "{shown}");
    let listed = text(&output(&server, &["ls"]).stdout);
    assert!(listed.contains(&gone), "{listed}");
    let status = status(&server, "job");
    assert_eq!(status["not_seen"][0], status["holder"]["owner"], "{status}");
}

#[test]
fn a_permit_shows_its_process() {
    let server = RedisServer::start();
    let _run = holder(&server, &["--permits", "2"]);
    let who = process(&server);
    // A hold of 5 s is published.
    eventually_blocking("the process tells of its permit", || {
        let seen = json(&output(&server, &["inspect", "job", "--json"]).stdout);
        seen["holders"][0]["process"] == who.as_str()
    });
}

#[test]
fn hold_and_run_refuse_with_the_same_words() {
    let server = RedisServer::start();
    let _run = holder(&server, &[]);
    let run = output(&server, &["run", "job", "--wait", "0", "--", "true"]);
    let hold = output(&server, &["hold", "job", "--for", "1m", "--wait", "0"]);
    assert_eq!(
        text(&run.stderr),
        "stanchion: job is held by another process\n"
    );
    assert_eq!(text(&hold.stderr), text(&run.stderr));
    assert_eq!(
        (run.status.code(), hold.status.code()),
        (Some(75), Some(75))
    );
}
