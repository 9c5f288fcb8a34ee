//! Starting the program, and looking at what it left.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use stanchion_testkit::{Process, RedisServer, eventually_blocking};

/// More than anything here takes on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The program without the environment of whoever runs the tests.
pub(crate) fn stanchion(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stanchion"));
    for variable in [
        "URL",
        "URL_FILE",
        "PREFIX",
        "TLS_CA",
        "LOG",
        "FENCING_TOKEN",
        "TICK",
        "NAME",
        "RUNTIME_DIR",
    ] {
        command.env_remove(format!("STANCHION_{variable}"));
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// The program with its server.
pub(crate) fn with(server: &RedisServer, args: &[&str]) -> Command {
    let mut command = stanchion(args);
    command.env("STANCHION_URL", server.url());
    command
}

/// Runs it to its end.
pub(crate) fn output(server: &RedisServer, args: &[&str]) -> Output {
    with(server, args).output().unwrap()
}

/// For scripts: does nothing, in small steps between which traps run. Ends by itself, so that a test that fails
/// leaves nothing behind for ever. A signal for all processes ends one step, and not the count of them.
pub(crate) const IDLE: &str =
    "idle() { step=0; while [ $step -lt 1500 ]; do sleep 0.02; step=$((step + 1)); done; }";

/// For scripts: says `ready`, and holds until the end of its standard input.
pub(crate) const HOLD: &str = "echo ready; cat";

/// The status of a name.
pub(crate) fn status(server: &RedisServer, name: &str) -> serde_json::Value {
    json(&output(server, &["status", name, "--json"]).stdout)
}

/// Starts `run` with a shell script as its command, and waits for the script's first line, `ready`.
pub(crate) fn start_script(server: &RedisServer, options: &[&str], script: &str) -> Process {
    let mut args = vec!["run"];
    args.extend(options);
    let script = format!("{IDLE}; {script}");
    args.extend(["--", "sh", "-c", &script]);
    let mut process = Process::spawn(&mut with(server, &args));
    process.wait_for_line(|line| line == "ready", SOON);
    process
}

/// Waits until so many processes wait for `name`.
pub(crate) fn wait_for_waiters(server: &RedisServer, name: &str, waiters: usize) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    eventually_blocking("waiters have subscribed", || {
        server.subscribers(&channel) == waiters
    });
}

pub(crate) fn is_held(server: &RedisServer, name: &str) -> bool {
    server.cli(&["EXISTS", name]).as_int() == 1
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The only line of `bytes`, as JSON.
pub(crate) fn json(bytes: &[u8]) -> serde_json::Value {
    let text = text(bytes);
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Returns whether a process runs. One that has ended and that nobody has waited for does not.
pub(crate) fn runs(pid: u32) -> bool {
    let state = ps("state", pid);
    !state.is_empty() && !state.starts_with('Z')
}

/// The value in a column of `ps` for a process, empty if there is none.
pub(crate) fn ps(column: &str, pid: u32) -> String {
    let asked = Command::new("ps")
        .args(["-o", &format!("{column}="), "-p", &pid.to_string()])
        .output()
        .unwrap();
    text(&asked.stdout).trim().to_owned()
}

/// The numbers in the lines `pid N` of the process's output.
pub(crate) fn pids(process: &mut Process) -> Vec<u32> {
    let lines = process.lines().iter();
    lines
        .filter_map(|line| line.strip_prefix("pid ")?.parse().ok())
        .collect()
}

/// The process that has `pid` for its parent.
pub(crate) fn only_child(pid: u32) -> u32 {
    let listed = Command::new("ps")
        .args(["-A", "-o", "pid=", "-o", "ppid="])
        .output()
        .unwrap();
    let listed = text(&listed.stdout);
    let mut children = listed.lines().filter_map(|line| {
        let (child, parent) = line.trim().split_once(char::is_whitespace)?;
        (parent.trim() == pid.to_string()).then(|| child.parse().unwrap())
    });
    let child = children.next().unwrap();
    assert_eq!(children.next(), None, "more than one child");
    child
}
