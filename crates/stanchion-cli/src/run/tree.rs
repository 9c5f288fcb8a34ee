//! The descendants of a process: finding them and ending them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::Instant;

/// The first pause before KILL is sent again; it grows up to [`SLOWEST`].
const QUICKEST: Duration = Duration::from_millis(10);
const SLOWEST: Duration = Duration::from_secs(1);

/// An entry of the system's process list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    parent: i32,
    state: char,
    pub(super) name: String,
}

impl Process {
    /// True if the process has ended and its parent has not yet reaped it.
    pub(super) fn is_over(&self) -> bool {
        self.state == 'Z'
    }

    pub(super) fn send(&self, signal: Signal) -> io::Result<()> {
        send(self.pid, signal)
    }
}

/// All descendants of `root`, parents before their children, without `except` and their descendants.
pub(super) fn below(root: i32, except: &[i32]) -> io::Result<Vec<Process>> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all()? {
        if !except.contains(&process.pid) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut generation = children.remove(&root).unwrap_or_default();
    while !generation.is_empty() {
        let next = generation
            .iter()
            .filter_map(|parent| children.remove(&parent.pid))
            .flatten()
            .collect();
        found.append(&mut generation);
        generation = next;
    }
    Ok(found)
}

/// Sends a signal to one process. A process that has ended is no error.
pub(super) fn send(pid: i32, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(pid) else {
        return Ok(());
    };
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(target_os = "linux")]
fn all() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse() else {
            continue;
        };
        // The process may have ended since the directory was read.
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        found.extend(parse_stat(pid, &String::from_utf8_lossy(&stat)));
    }
    Ok(found)
}

/// `pid (name) state parent …`; a name may contain anything.
#[cfg(target_os = "linux")]
fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = after.split_whitespace();
    Some(Process {
        pid,
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        name: name.to_owned(),
    })
}

#[cfg(any(not(target_os = "linux"), test))]
fn all_by_ps() -> io::Result<Vec<Process>> {
    let columns = [
        "-A", "-o", "pid=", "-o", "ppid=", "-o", "state=", "-o", "comm=",
    ];
    let listed = std::process::Command::new("ps").args(columns).output()?;
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        Some(Process {
            pid: fields.next()?.parse().ok()?,
            parent: fields.next()?.parse().ok()?,
            state: fields.next()?.chars().next()?,
            name: fields.collect::<Vec<_>>().join(" "),
        })
    };
    let listed = String::from_utf8_lossy(&listed.stdout);
    Ok(listed.lines().filter_map(parse).collect())
}

#[cfg(not(target_os = "linux"))]
fn all() -> io::Result<Vec<Process>> {
    all_by_ps()
}

/// The end of a set of processes: TERM for all, and KILL at a given time for those that still run.
#[derive(Debug)]
pub(super) struct Ending {
    kill_at: Instant,
    next: Instant,
    pause: Duration,
    refused: BTreeSet<i32>,
}

impl Ending {
    /// Sends TERM to `all` that have not got it yet: some programs take a second TERM as a request to hurry.
    pub(super) fn begin(all: &[Process], asked: &BTreeSet<i32>, kill_at: Instant) -> Self {
        for process in all {
            if !asked.contains(&process.pid) {
                // OK: a process that may not be signalled is reported when it should be killed.
                let _ = process.send(Signal::TERM);
            }
            if process.state == 'T' {
                let _ = process.send(Signal::CONT);
            }
        }
        Self {
            kill_at,
            next: kill_at,
            pause: QUICKEST,
            refused: BTreeSet::new(),
        }
    }

    /// Moves the time of KILL to `kill_at` if that is earlier.
    pub(super) fn not_later_than(&mut self, kill_at: Instant) {
        self.kill_at = self.kill_at.min(kill_at);
        self.next = self.next.min(self.kill_at);
    }

    /// The time of the next call of `kill`.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Kills the processes that still run. Returns those that may not be killed, each once.
    pub(super) fn kill(&mut self, left: &[Process]) -> Vec<Process> {
        // A process may start others before it dies: the next call finds these.
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(SLOWEST);
        left.iter()
            .filter(|process| process.send(Signal::KILL).is_err())
            .filter(|process| self.refused.insert(process.pid))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_what_it_has_started() {
        let me = i32::try_from(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let has_sleep = |found: &[Process]| {
            let shell = found.iter().position(|process| process.pid == pid);
            let sleep = found
                .iter()
                .position(|p| p.parent == pid && p.name == "sleep");
            shell.zip(sleep).is_some_and(|(shell, sleep)| shell < sleep)
        };
        let mut rounds = 0..10_000;
        while !has_sleep(&below(me, &[]).unwrap()) {
            rounds.next().expect("the shell starts it soon");
        }
        let mut listed = all_by_ps().unwrap();
        listed.retain(|process| process.pid == pid || process.parent == pid);
        assert!(has_sleep(&listed), "{listed:?}");
        assert_eq!(
            below(me, &[pid]).unwrap().iter().find(|p| p.parent == pid),
            None
        );

        let found = below(me, &[]).unwrap();
        let ours: Vec<_> = found
            .into_iter()
            .filter(|p| p.pid == pid || p.parent == pid)
            .collect();
        Ending::begin(&[], &BTreeSet::new(), Instant::now()).kill(&ours);
        child.wait().unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_name_may_contain_anything() {
        let process = parse_stat(7, "7 (a) b (c) T 3 7 7 0").unwrap();
        assert_eq!(
            (process.name.as_str(), process.state, process.parent),
            ("a) b (c", 'T', 3)
        );
        assert_eq!(parse_stat(7, ""), None);
    }
}
