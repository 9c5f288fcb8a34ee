//! stanchion compared with other lock libraries, in the same run, in turns.
//!
//! A contender is a process (its work is described in [`turns`]) that lives for a cell. In each round every contender has a
//! block, the first of the round changing; ratios are taken within a round. [`judge`] judges all of them.

mod cells;
mod charts;
mod judge;
mod ours;
mod process;
mod result;
mod table;
mod turns;
mod users;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use stanchion_testkit::RedisServer;

pub(crate) use self::ours::Contend;
pub(crate) use self::result::Peers;
pub(crate) use self::table::markdown;

use self::cells::{CELLS, Cell, Entrant, Field, JVM_FLAGS};
use self::process::Running;
use self::result::{Contender, Measured};
use crate::report::{cores, today, version};

/// The subcommand.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// How often each contender has a turn in each cell.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Shorter blocks and a shorter warm-up: shows that it works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Only these cells.
    #[arg(long, value_delimiter = ',', value_name = "CELL")]
    cells: Vec<String>,
    /// Only contenders whose names begin so.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Also writes the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where `scripts/peers` has built the others.
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers"))]
    peers: PathBuf,
}

/// The lengths of blocks. Cells with holds have longer blocks, cells without waiters shorter ones.
#[derive(Clone, Copy, Debug)]
struct Plan {
    block: Duration,
    /// Before the first block of a virtual machine; others have a block.
    warm_up: Duration,
}

impl Run {
    pub(crate) fn run(&self) -> Result<()> {
        let plan = if self.quick {
            Plan {
                block: Duration::from_millis(300),
                warm_up: Duration::from_secs(1),
            }
        } else {
            Plan {
                block: Duration::from_millis(1000),
                warm_up: Duration::from_secs(10),
            }
        };
        let field = Field::found(&self.peers);
        let skipped = field.missing();
        for missing in &skipped {
            println!("*** SKIPPED: {missing}: scripts/peers builds it");
        }
        let (run, dropped) = self.measure(plan, &field, skipped)?;
        if let Some(path) = &self.json {
            let text = serde_json::to_string(&run)? + "\n";
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        ensure!(dropped == 0, "{dropped} contenders failed, see above");
        Ok(())
    }

    fn measure(&self, plan: Plan, field: &Field, skipped: Vec<String>) -> Result<(Peers, usize)> {
        for name in &self.cells {
            if !CELLS.iter().any(|cell| cell.name == name) {
                let known: Vec<&str> = CELLS.iter().map(|cell| cell.name).collect();
                bail!("no such cell: {name}; there are {}", known.join(", "));
            }
        }
        let server = RedisServer::start();
        let mut run = Peers {
            day: today(),
            server: version(server.cli(&["INFO", "server"]).as_text()),
            cores: cores(),
            warm_up_millis: plan.warm_up.as_millis(),
            jvm_flags: JVM_FLAGS.join(" "),
            about: Vec::new(),
            skipped,
            cells: Vec::new(),
        };
        println!(
            "server {}, {} cores; {} rounds",
            run.server, run.cores, self.rounds
        );
        let wanted =
            |cell: &&Cell| self.cells.is_empty() || self.cells.iter().any(|name| name == cell.name);
        let mut dropped = 0;
        for cell in CELLS.iter().filter(wanted) {
            let mut entrants = cell.entrants(field);
            entrants.retain(|entrant| {
                self.only.is_empty() || self.only.iter().any(|only| entrant.name.starts_with(only))
            });
            if entrants.is_empty() {
                continue;
            }
            println!("\n{}: {}", cell.name, cell.title);
            let wanted = entrants.len();
            let mut race = Race::start(cell, entrants, &self.peers, &server, plan);
            for round in 0..cell.rounds(self.rounds) {
                race.round(round);
            }
            dropped += wanted - race.runners.len();
            for runner in &race.runners {
                if !run.about.contains(&runner.running.about) {
                    run.about.push(runner.running.about.clone());
                }
            }
            let measured = race.ended();
            table::print(&measured);
            run.cells.push(measured);
        }
        Ok((run, dropped))
    }
}

/// The contenders of a cell at work.
struct Race<'a> {
    cell: &'a Cell,
    server: &'a RedisServer,
    plan: Plan,
    runners: Vec<Runner>,
    others: Vec<f64>,
}

struct Runner {
    entrant: Entrant,
    running: Running,
    commands: f64,
    contender: Contender,
}

impl<'a> Race<'a> {
    /// Starts the contenders and warms them up. A failed contender is reported and left out.
    fn start(
        cell: &'a Cell,
        entrants: Vec<Entrant>,
        peers: &std::path::Path,
        server: &'a RedisServer,
        plan: Plan,
    ) -> Self {
        let mut race = Self {
            cell,
            server,
            plan,
            runners: Vec::new(),
            others: Vec::new(),
        };
        for entrant in entrants {
            let name = entrant.name.clone();
            match race.warmed(entrant, peers) {
                Ok(runner) => race.runners.push(runner),
                Err(error) => println!("*** FAILED: {name} in {}: {error:#}", cell.name),
            }
        }
        race
    }

    fn warmed(&self, entrant: Entrant, peers: &std::path::Path) -> Result<Runner> {
        let url = self.server.url();
        // Checks that the command can be built, before starting all the processes of the cell.
        entrant.command(peers, &url)?;
        let command = || {
            entrant
                .command(peers, &url)
                .unwrap_or_else(|_| std::process::Command::new("false"))
        };
        let mut running = Running::start(self.cell.processes, command)?;
        let mut order = self.cell.order(&entrant, "warm", self.plan.block);
        if entrant.warms_up() {
            order.block = self.plan.warm_up;
        }
        running.block(self.server, &order)?;
        let order = self.cell.order(&entrant, "count", self.plan.block);
        let commands = running.commands(self.server, &order)?;
        self.server.flush();
        let contender = Contender {
            name: entrant.name.clone(),
            role: entrant.role,
            beside: entrant.beside.clone(),
            blocks: Vec::new(),
        };
        Ok(Runner {
            entrant,
            running,
            commands,
            contender,
        })
    }

    /// A block of each, beginning with another one each time.
    fn round(&mut self, round: usize) {
        let count = self.runners.len();
        let mut failed = Vec::new();
        for turn in 0..count {
            let nth = (round + turn) % count;
            let others = |race: &Self| -> Option<f64> {
                let others = race.runners.iter().enumerate();
                others
                    .filter(|(other, _)| *other != nth)
                    .map(|(_, runner)| runner.running.cpu())
                    .sum()
            };
            let before = others(self);
            let runner = &mut self.runners[nth];
            let order = self
                .cell
                .order(&runner.entrant, &round.to_string(), self.plan.block);
            match runner.running.block(self.server, &order) {
                Ok(mut figures) => {
                    figures.commands = runner.commands;
                    let seconds = figures.seconds;
                    runner.contender.blocks.push(figures);
                    if let Some((before, after)) = before.zip(others(self)) {
                        self.others.push((after - before) / seconds * 100.0);
                    }
                }
                Err(error) => {
                    println!(
                        "*** FAILED: {} in {}: {error:#}",
                        runner.entrant.name, self.cell.name
                    );
                    failed.push(runner.entrant.name.clone());
                }
            }
            self.server.flush();
        }
        self.runners
            .retain(|runner| !failed.contains(&runner.entrant.name));
        println!("  round {} of {count} blocks", round + 1);
    }

    fn ended(self) -> Measured {
        Measured {
            name: self.cell.name.to_owned(),
            title: self.cell.title.to_owned(),
            unit: self.cell.unit,
            contenders: self
                .runners
                .into_iter()
                .map(|runner| runner.contender)
                .collect(),
            others: self.others,
        }
    }
}
