//! What the program shows of Redisson's processes. The driver in `tests/redisson` runs Redisson.
//!
//! Without a JDK and Maven the tests are skipped with a message; with `STANCHION_REQUIRE_REDISSON=1` they fail.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use stanchion_testkit::{Process, RedisServer, eventually_blocking, redisson};

use crate::operator::exporter::Exporter;

/// A Java process with one instance of Redisson.
struct Java {
    process: Process,
    /// The number of commands that were sent.
    sent: u64,
}

impl Java {
    /// Starts a process that is connected to the server. Returns `None` after a message if Redisson cannot be run.
    fn start(server: &RedisServer) -> Option<Self> {
        let path = match redisson::build(Path::new(env!("CARGO_TARGET_TMPDIR"))) {
            Ok(path) => path,
            Err(why) => {
                let required = std::env::var("STANCHION_REQUIRE_REDISSON");
                assert!(!required.is_ok_and(|it| it == "1"), "{why}");
                // Not `eprintln!`, which the test harness captures: a skipped test must be seen.
                let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: interop, because {why}\n");
                return None;
            }
        };
        let mut command = Command::new("java");
        command
            .args(["-Xshare:auto", "-XX:+UseSerialGC", "-Xmx256m"])
            .args(["-XX:TieredStopAtLevel=1", "-cp", &path, "interop.Driver"]);
        let process = Process::spawn(&mut command);
        let mut java = Self { process, sent: 0 };
        let address = json!({"kind": "client", "mode": "single", "addresses": [server.url()]});
        java.does("main", "connect", address);
        Some(java)
    }

    /// Starts an operation on a thread of the process, and returns its number.
    fn begins(&mut self, thread: &str, op: &str, mut command: Value) -> u64 {
        self.sent += 1;
        for (field, value) in [("client", "redisson"), ("actor", thread), ("op", op)] {
            command[field] = value.into();
        }
        command["id"] = self.sent.into();
        self.process.send_line(&command.to_string());
        self.sent
    }

    /// Waits until the operation has succeeded. Replies arrive in the order in which the operations end.
    fn ends(&mut self, id: u64) {
        let mut reply = None;
        eventually_blocking(&format!("Java replies to command {id}"), || {
            let lines = self.process.lines().iter();
            let mut replies = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
            reply = replies.find(|reply| reply["id"] == id);
            reply.is_some()
        });
        let reply = reply.unwrap();
        assert!(reply["error"].is_null(), "{reply}");
    }

    fn does(&mut self, thread: &str, op: &str, command: Value) {
        let id = self.begins(thread, op, command);
        self.ends(id);
    }
}

fn object(kind: &str, name: &str) -> Value {
    json!({"kind": kind, "name": name})
}

#[test]
fn the_exporter_counts_holders_and_waiters_of_redisson() {
    let server = RedisServer::start();
    let (Some(mut holder), Some(mut waiter)) = (Java::start(&server), Java::start(&server)) else {
        return;
    };
    holder.does("main", "lock", object("lock", "orders"));
    holder.does("main", "lock", object("fair", "turns"));
    for java in [&mut holder, &mut waiter] {
        java.does("main", "lock", object("read", "catalog"));
    }
    for (kind, name) in [("leased", "slots"), ("semaphore", "plain")] {
        let mut three = object(kind, name);
        three["n"] = 3.into();
        holder.does("main", "init", three);
        holder.does("main", "acquire", object(kind, name));
    }
    let exporter = Exporter::start(&server, &["--names=*"]);
    exporter.shows(&[
        ("up", 1.0),
        ("survey_complete", 1.0),
        // A fair lock without a queue is the same hash as a lock.
        ("names{kind=\"lock\"}", 2.0),
        ("holders{kind=\"lock\"}", 2.0),
        ("waiters{kind=\"lock\"}", 0.0),
        ("holders{kind=\"rwlock\"}", 2.0),
        ("waiters{kind=\"rwlock\"}", 0.0),
        ("holders{kind=\"leased-semaphore\"}", 1.0),
        ("endless_holds{kind=\"lock\"}", 0.0),
        ("dead_holders{kind=\"lock\"}", 0.0),
        ("deadlocks", 0.0),
    ]);

    // Two threads of a process that wait for a lock share a subscription, so they are one waiter. A fair lock has a queue of threads.
    for thread in ["one", "two"] {
        waiter.begins(thread, "lock", object("lock", "orders"));
    }
    for thread in ["three", "four"] {
        waiter.begins(thread, "lock", object("fair", "turns"));
    }
    let writer = waiter.begins("five", "lock", object("write", "catalog"));
    let samples = exporter.shows(&[
        ("holders{kind=\"lock\"}", 1.0),
        ("waiters{kind=\"lock\"}", 1.0),
        ("holders{kind=\"fair\"}", 1.0),
        ("waiters{kind=\"fair\"}", 2.0),
        ("holders{kind=\"rwlock\"}", 2.0),
        ("waiters{kind=\"rwlock\"}", 1.0),
        ("name_waiters{name=\"orders\",kind=\"lock\"}", 1.0),
        ("name_waiters{name=\"turns\",kind=\"fair\"}", 2.0),
        ("name_holders{name=\"catalog\",kind=\"rwlock\"}", 2.0),
        (
            "name_holders{name=\"slots\",kind=\"leased-semaphore\"}",
            1.0,
        ),
    ]);
    // A plain semaphore of Redisson is a number of free permits: it names no holder and no total.
    assert!(
        samples.keys().all(|name| !name.contains("plain")),
        "{samples:?}"
    );

    // The waiters hold after the releases, and the exporter follows.
    for (kind, name) in [("lock", "orders"), ("fair", "turns")] {
        holder.does("main", "unlock", object(kind, name));
    }
    for java in [&mut holder, &mut waiter] {
        java.does("main", "unlock", object("read", "catalog"));
    }
    waiter.ends(writer);
    exporter.shows(&[
        ("holders{kind=\"lock\"}", 1.0),
        ("waiters{kind=\"fair\"}", 1.0),
        ("holders{kind=\"rwlock\"}", 1.0),
        ("waiters{kind=\"rwlock\"}", 0.0),
    ]);
}
