//! Questions of an operator: `ping`, `ls`, `inspect`, `doctor`; to single servers, sentinels, clusters, and with few rights.

mod doctor;
mod events;
pub(crate) mod exporter;
mod incident;
mod ls;
mod partial;
#[cfg(target_os = "linux")]
mod top;

use std::process::{Command, Output};

use stanchion_testkit::RedisServer;

use crate::support::{stanchion, text};

/// A Redisson instance, as its holds and waiters name it.
pub(crate) const JAVA: &str = "9f1c0000-0000-4000-8000-000000000001";

/// Runs a command that must succeed.
pub(crate) fn done(server: &RedisServer, args: &[&str]) {
    let reply = server.cli(args);
    assert!(!reply.is_error(), "{args:?}: {reply}");
}

/// A lock that a Redisson process holds, as it writes it.
pub(crate) fn hold_as_java(server: &RedisServer, name: &str, thread: &str, lease_ms: &str) {
    assert!(
        !server
            .cli(&["HSET", name, &format!("{JAVA}:{thread}"), "1"])
            .is_error()
    );
    assert_eq!(server.cli(&["PEXPIRE", name, lease_ms]).as_int(), 1);
}

/// The program at another URL.
pub(crate) fn at(url: &str, args: &[&str]) -> Output {
    command_at(url, args).output().unwrap()
}

pub(crate) fn command_at(url: &str, args: &[&str]) -> Command {
    let mut command = stanchion(args);
    command.env("STANCHION_URL", url);
    command
}

/// The lines of standard output, each as JSON.
pub(crate) fn lines(output: &Output) -> Vec<serde_json::Value> {
    let said = text(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 2), "{said}");
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
