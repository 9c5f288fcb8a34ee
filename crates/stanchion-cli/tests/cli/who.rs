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

#[test]
fn a_process_that_died_is_not_shown_as_alive() {
    let server = RedisServer::start();
    let options = ["job", "--label", "deploy", "--lease", "10m"];
    let mut run = start_script(&server, &options, HOLD);
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
