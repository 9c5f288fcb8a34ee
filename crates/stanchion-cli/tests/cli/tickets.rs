//! `hold` and `release`: a lock that is held between two commands.

use stanchion_testkit::{Process, RedisServer, Signal, Value, eventually_blocking};

use crate::support::*;

fn ticket_of(server: &RedisServer, args: &[&str]) -> String {
    let held = output(server, args);
    assert_eq!(held.status.code(), Some(0), "{}", text(&held.stderr));
    text(&held.stdout).trim_end().to_owned()
}

#[test]
fn a_lock_is_held_from_hold_to_release() {
    let server = RedisServer::start();
    for fair in [&[][..], &["--fair"]] {
        let args = [&["hold", "deploy", "--for", "30m"], fair].concat();
        let ticket = ticket_of(&server, &args);
        let Value::Int(left) = server.cli(&["PTTL", "deploy"]) else {
            panic!("a number");
        };
        assert!(left > 29 * 60_000, "{left} ms");
        let taken = [&["hold", "deploy", "--for", "1m", "--wait", "0"], fair].concat();
        assert_eq!(code(&server, &taken), Some(75));
        let done = output(&server, &["release", &ticket]);
        assert_eq!(
            (done.status.code(), text(&done.stdout).as_str()),
            (Some(0), "deploy: released\n")
        );
        assert!(!is_held(&server, "deploy"));
        let again = output(&server, &["release", &ticket]);
        assert_eq!(again.status.code(), Some(1));
        assert_eq!(text(&again.stdout), "deploy: this hold had ended\n");
    }
}

#[test]
fn a_ticket_comes_from_standard_input_and_goes_out_as_json() {
    let server = RedisServer::start();
    let args = ["hold", "job", "--for", "1m", "--json", "--prefix", "shop:"];
    let held = output(&server, &args);
    let line = json(&held.stdout);
    assert_eq!(line["lease_ms"], 60_000);
    assert!(line["fencing_token"].as_u64() > Some(0));
    let ticket = line["ticket"].as_str().unwrap();
    assert!(ticket.ends_with("/shop:job"), "{ticket}");
    // The prefix of the ticket's name is that of the user.
    assert_eq!(
        code(&server, &["release", ticket, "--prefix", "other:"]),
        Some(2)
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{ticket}\n")).unwrap();
    let mut release = with(&server, &["release", "-", "--json"]);
    let done = release.stdin(file.reopen().unwrap()).output().unwrap();
    assert_eq!(
        json(&done.stdout)["released"],
        true,
        "{}",
        text(&done.stderr)
    );
}

#[test]
fn an_invalid_ticket_is_refused_with_the_rule() {
    let server = RedisServer::start();
    let refused = output(&server, &["release", "deploy"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(
        said.contains("not the ticket of a hold: it begins with stanchion2/"),
        "{said}"
    );
    assert_eq!(code(&server, &["hold", "deploy"]), Some(2), "how long?");
}

#[test]
fn an_interrupted_hold_leaves_the_queue() {
    let server = RedisServer::start();
    let waiting = |name: &str| status(&server, name)["waiting_processes"].as_u64();
    for (name, fair) in [("deploy", &[][..]), ("tickets", &["--fair"])] {
        let args = [&["hold", name, "--for", "30m"], fair].concat();
        let _ticket = ticket_of(&server, &args);
        for (signal, code) in [(Signal::Int, 130), (Signal::Term, 143)] {
            let mut hold = Process::spawn(&mut with(&server, &args));
            eventually_blocking("it waits", || waiting(name) == Some(1));
            hold.signal(signal);
            assert_eq!(hold.wait(SOON).code(), Some(code));
            assert!(hold.lines().is_empty(), "no ticket");
            assert_eq!(waiting(name), Some(0), "{name}");
        }
    }
}
