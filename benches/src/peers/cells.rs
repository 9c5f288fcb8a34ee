//! The cells, and the contenders in each.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::judge::Figures;
use super::turns::{Order, Pause, Thing};

/// The figure that a cell is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Grants,
    Handoffs,
    /// From a release to the next holder.
    Gap,
}

impl Unit {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Grants => "grants/s",
            Self::Handoffs => "hand-offs/s",
            Self::Gap => "gap µs",
        }
    }

    /// The figure that a cell is about. The bare scripts have no hand-offs: their cycles, or their releases, count.
    pub(crate) fn figure(self, figures: &Figures, role: Role) -> Option<f64> {
        let rate = |count: usize| Some(count as f64 / figures.seconds);
        match (self, role) {
            (Self::Grants, _) | (Self::Handoffs, Role::Raw) => rate(figures.grants),
            (Self::Handoffs, _) => rate(figures.handoffs),
            (Self::Gap, Role::Raw) => Some(figures.release),
            (Self::Gap, _) => figures.gap,
        }
    }

    /// By how much `ours` is better than `theirs`: above 1 if it is.
    pub(crate) fn ratio(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Self::Grants | Self::Handoffs => ours / theirs,
            Self::Gap => theirs / ours,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Raw,
    Ours,
    Peer,
}

/// A cell of the benchmark, its hold and pause in microseconds.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// A short title for charts and for the users' page.
    words: &'static str,
    pub(crate) unit: Unit,
    tasks: usize,
    names: usize,
    clients: usize,
    pub(crate) processes: usize,
    hold: u64,
    /// `None`: until another task has been granted it.
    pause: Option<u64>,
    /// A single runtime thread as well, for the Rust contenders.
    current_thread: CurrentThread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CurrentThread {
    /// Cells without waiters: for all contenders.
    All,
    /// Polling costs the same on any runtime.
    Ours,
    None,
}

const PERMITS: u32 = 8;

const CELL: Cell = Cell {
    name: "",
    title: "",
    words: "",
    unit: Unit::Handoffs,
    tasks: 1,
    names: 1,
    clients: 1,
    processes: 1,
    hold: 0,
    pause: Some(0),
    current_thread: CurrentThread::Ours,
};

pub(crate) const CELLS: [Cell; 10] = [
    Cell {
        name: "cycle",
        title: "one task: acquire and release",
        words: "1 task, 1 lock",
        unit: Unit::Grants,
        current_thread: CurrentThread::All,
        ..CELL
    },
    Cell {
        name: "names64",
        title: "64 tasks, each with a name of its own",
        words: "64 tasks, 64 locks",
        unit: Unit::Grants,
        tasks: 64,
        names: 64,
        current_thread: CurrentThread::All,
        ..CELL
    },
    Cell {
        name: "hand2",
        title: "one name, 2 tasks of one process that hold for no time",
        words: "2 tasks, 1 lock",
        tasks: 2,
        ..CELL
    },
    Cell {
        name: "hand16",
        title: "one name, 16 tasks of one process that hold for no time",
        words: "16 tasks, 1 lock",
        tasks: 16,
        ..CELL
    },
    Cell {
        name: "hand128",
        title: "one name, 128 tasks of one process that hold for no time",
        words: "128 tasks, 1 lock",
        tasks: 128,
        ..CELL
    },
    Cell {
        name: "procs",
        title: "one name, 4 processes of 8 tasks, hold and pause 1 ms",
        words: "4 processes of 8 tasks, 1 lock",
        tasks: 8,
        processes: 4,
        hold: 1000,
        pause: Some(1000),
        current_thread: CurrentThread::None,
        ..CELL
    },
    Cell {
        name: "gap",
        title: "one name, 2 clients of one task that take turns and hold for 2 ms: from the call of a release to the next holder",
        words: "From a release to the next client's grant",
        unit: Unit::Gap,
        tasks: 2,
        clients: 2,
        hold: 2000,
        pause: None,
        ..CELL
    },
    Cell {
        name: "readers",
        title: "64 readers of one name",
        words: "64 readers, 1 lock",
        unit: Unit::Grants,
        tasks: 64,
        current_thread: CurrentThread::All,
        ..CELL
    },
    Cell {
        name: "sem",
        title: "8 permits, 64 tasks, hold 1 ms",
        words: "64 tasks, 8 permits",
        unit: Unit::Grants,
        tasks: 64,
        hold: 1000,
        current_thread: CurrentThread::None,
        ..CELL
    },
    Cell {
        name: "fleet",
        title: "one name, 64 clients of one task, hold and pause 1 ms",
        words: "64 clients, 1 lock",
        tasks: 64,
        clients: 64,
        hold: 1000,
        pause: Some(1000),
        current_thread: CurrentThread::None,
        ..CELL
    },
];

/// The short title of a stored cell.
pub(crate) fn words(name: &str) -> &str {
    let cell = CELLS.iter().find(|cell| cell.name == name);
    cell.map_or(name, |cell| cell.words)
}

/// The programs of a contender.
#[derive(Clone, Debug)]
enum Program {
    /// This one.
    Own(&'static str),
    Rust(&'static str),
    Redsync,
    Redisson(String),
}

/// A contender in a cell.
#[derive(Clone, Debug)]
pub(crate) struct Entrant {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The stanchion contender that it is compared with.
    pub(crate) beside: String,
    program: Program,
    thing: Thing,
    current_thread: bool,
}

/// The contenders that are installed; `scripts/peers` builds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Field {
    pub(crate) rust: bool,
    pub(crate) go: bool,
    /// Versions of Redisson.
    pub(crate) redisson: Vec<String>,
}

impl Field {
    /// Finds the contenders that `folder` has.
    pub(crate) fn found(folder: &Path) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut redisson: Vec<String> = names
            .filter_map(|name| Some(name.strip_prefix("redisson-")?.to_owned()))
            .filter(|version| redisson(folder, version).join("lib").exists())
            .collect();
        redisson.sort();
        Self {
            rust: rust(folder).exists(),
            go: folder.join("redsync").exists(),
            redisson,
        }
    }

    /// The contenders that are missing.
    pub(crate) fn missing(&self) -> Vec<String> {
        let parts = [
            (self.rust, "rslock and rlock (Rust)"),
            (self.go, "redsync (Go)"),
            (!self.redisson.is_empty(), "Redisson (Java)"),
        ];
        let missing = parts.iter().filter(|(there, _)| !there);
        missing.map(|(_, what)| (*what).to_owned()).collect()
    }
}

fn rust(folder: &Path) -> std::path::PathBuf {
    folder.join("rust/release/stanchion-peers")
}

fn redisson(folder: &Path, version: &str) -> std::path::PathBuf {
    folder.join(format!("redisson-{version}"))
}

/// The smallest configuration that options can set; everything else is the machine's default.
pub(crate) const JVM_FLAGS: [&str; 2] = ["-XX:+UseSerialGC", "-Xmx512m"];

impl Entrant {
    /// The command that starts it.
    pub(crate) fn command(&self, folder: &Path, url: &str) -> Result<Command> {
        let mut command = match &self.program {
            Program::Own(who) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["contend", who]);
                command
            }
            Program::Rust(peer) => {
                let mut command = Command::new(rust(folder));
                command.arg(peer);
                command
            }
            Program::Redsync => Command::new(folder.join("redsync")),
            Program::Redisson(version) => {
                let built = redisson(folder, version);
                let (classes, jars) = (built.join("classes"), built.join("lib/*"));
                let mut command = Command::new("java");
                command
                    .args(JVM_FLAGS)
                    .arg(format!("-Dredisson.version={version}"))
                    .arg("-cp")
                    .arg(format!("{}:{}", classes.display(), jars.display()))
                    .arg("interop.Contender");
                command
            }
        };
        command.arg(url);
        if self.current_thread {
            command.arg("--current-thread");
        }
        Ok(command)
    }

    /// Returns whether it runs in a virtual machine, which compiles code that runs often.
    pub(crate) fn warms_up(&self) -> bool {
        matches!(self.program, Program::Redisson(_))
    }
}

/// In cells without waiters, blocks are a quarter as long and four times as many: round trips jump between levels.
const PARTS: u16 = 4;

impl Cell {
    pub(crate) fn rounds(&self, rounds: u16) -> usize {
        usize::from(rounds) * usize::from(self.parts())
    }

    fn parts(&self) -> u16 {
        match self.current_thread {
            CurrentThread::All => PARTS,
            CurrentThread::Ours | CurrentThread::None => 1,
        }
    }

    pub(crate) fn order(&self, entrant: &Entrant, round: &str, block: Duration) -> Order {
        // The bare scripts neither wait nor share: one task, or a name for each of its readers.
        let alone = entrant.role == Role::Raw && self.unit != Unit::Grants;
        let names = if entrant.role == Role::Raw {
            self.tasks
        } else {
            self.names
        };
        Order {
            thing: entrant.thing,
            // A new name in each block, so that leftovers of a block do not matter.
            name: format!("peers:{}:{}:{round}", self.name, entrant.name),
            names: if alone { 1 } else { names },
            clients: if alone { 1 } else { self.clients },
            tasks: if alone { 1 } else { self.tasks },
            permits: PERMITS,
            hold: Duration::from_micros(self.hold),
            pause: match self.pause {
                None if !alone => Pause::Turns,
                pause => Pause::For(Duration::from_micros(pause.unwrap_or(0))),
            },
            // A contender that holds for a while has fewer grants.
            block: if self.hold > 0 {
                block * 2
            } else {
                block / u32::from(self.parts())
            },
        }
    }

    /// The contenders that take part, of those that are installed.
    pub(crate) fn entrants(&self, field: &Field) -> Vec<Entrant> {
        let mut entrants = Vec::new();
        let mut enter = |name: &str, program: &Program, thing: Thing, beside: &str| {
            let (role, threads) = match program {
                Program::Own("raw") => (Role::Raw, self.current_thread != CurrentThread::None),
                Program::Own(_) => (Role::Ours, self.current_thread != CurrentThread::None),
                Program::Rust(_) => (Role::Peer, self.current_thread == CurrentThread::All),
                Program::Redsync | Program::Redisson(_) => (Role::Peer, false),
            };
            for current_thread in [false, true] {
                if current_thread && !(threads && thing != Thing::Fair) {
                    continue;
                }
                let suffix = if current_thread { "-ct" } else { "" };
                entrants.push(Entrant {
                    name: format!("{name}{suffix}"),
                    role,
                    beside: format!("{beside}{suffix}"),
                    program: program.clone(),
                    thing,
                    current_thread,
                });
            }
        };
        let versions = || {
            field
                .redisson
                .iter()
                .map(|v| (v, Program::Redisson(v.clone())))
        };
        let (ours, raw) = (Program::Own("stanchion"), Program::Own("raw"));
        let named = |version: &str, kind: &str| format!("redisson-{version}{kind}");
        match self.name {
            "readers" => {
                enter("raw", &raw, Thing::Lock, "stanchion-read");
                enter("stanchion-read", &ours, Thing::Read, "stanchion-read");
                if field.rust {
                    enter(
                        "rlock-read",
                        &Program::Rust("rlock"),
                        Thing::Read,
                        "stanchion-read",
                    );
                }
                for (version, program) in versions() {
                    enter(
                        &named(version, "-read"),
                        &program,
                        Thing::Read,
                        "stanchion-read",
                    );
                }
            }
            "sem" => {
                for thing in [Thing::Semaphore, Thing::Leased] {
                    let beside = format!("stanchion-{}", thing.word());
                    enter(&beside, &ours, thing, &beside);
                    for (version, program) in versions() {
                        let name = named(version, &format!("-{}", thing.word()));
                        enter(&name, &program, thing, &beside);
                    }
                }
            }
            _ => {
                if !matches!(self.name, "procs" | "fleet") {
                    enter("raw", &raw, Thing::Lock, "stanchion");
                }
                enter("stanchion", &ours, Thing::Lock, "stanchion");
                enter("stanchion-fair", &ours, Thing::Fair, "stanchion-fair");
                if field.rust {
                    enter("rslock", &Program::Rust("rslock"), Thing::Lock, "stanchion");
                    enter("rlock", &Program::Rust("rlock"), Thing::Lock, "stanchion");
                }
                if field.go {
                    enter("redsync", &Program::Redsync, Thing::Lock, "stanchion");
                }
                for (version, program) in versions() {
                    enter(&named(version, ""), &program, Thing::Lock, "stanchion");
                    enter(
                        &named(version, "-fair"),
                        &program,
                        Thing::Fair,
                        "stanchion-fair",
                    );
                }
            }
        }
        entrants
    }
}
