//! The tables of a run: every number and every bold word is made from its figures.

use std::fmt::Write as _;

use super::cells::{Role, Unit};
use super::judge::Figures;
use super::result::{Contender, Measured, Peers};
use crate::measure::Spread;
use crate::report::digits;

/// A column besides the name, the cell's figure and the ratio.
struct Column {
    title: &'static str,
    of: fn(&Contender) -> Option<f64>,
    more_is_better: bool,
}

const fn column(title: &'static str, of: fn(&Contender) -> Option<f64>) -> Column {
    Column {
        title,
        of,
        more_is_better: false,
    }
}

/// The least CPU that is shown, in seconds: the system counts the CPU of a process in steps of 10 ms.
const TOLD: f64 = 0.05;

/// Microseconds for a grant, of all rounds together.
fn each(contender: &Contender, seconds: fn(&Figures) -> Option<f64>) -> Option<f64> {
    let all: Option<f64> = contender.blocks.iter().map(seconds).sum();
    let grants: usize = contender.blocks.iter().map(|block| block.grants).sum();
    let seconds = all.filter(|seconds| *seconds >= TOLD && grants > 0)?;
    Some(seconds * 1e6 / grants as f64)
}

fn columns(unit: Unit) -> Vec<Column> {
    let mut columns = Vec::new();
    if unit != Unit::Grants {
        columns.push(Column {
            title: "grants/s",
            of: |one| one.median(|block| Some(block.grants as f64 / block.seconds)),
            more_is_better: true,
        });
    }
    columns.extend([
        // Two digits: what a block costs besides its grants is in the third.
        column("commands / grant", |one| {
            one.median(|block| Some((block.commands * 100.0).round() / 100.0))
        }),
        column("wait p50 ms", |one| {
            one.median(|block| Some(block.wait.p50 / 1e3))
        }),
        column("p99", |one| one.median(|block| Some(block.wait.p99 / 1e3))),
        column("longest", |one| {
            one.median(|block| Some(block.wait.max / 1e3))
        }),
    ]);
    if unit == Unit::Handoffs {
        columns.push(column("gap µs", |one| one.median(|block| block.gap)));
    }
    columns.extend([
        column("starved", |one| {
            one.median(|block| Some(block.starved as f64))
        }),
        column("client CPU µs / grant", |one| {
            each(one, |block| block.client_cpu)
        }),
        column("server CPU µs / grant", |one| {
            each(one, |block| Some(block.server_cpu))
        }),
    ]);
    columns
}

/// A number as the page shows it. An infinite number is a division by zero.
fn number(value: f64) -> String {
    match value {
        v if v.is_infinite() => "∞".to_owned(),
        v if v.fract() == 0.0 && v.abs() < 1000.0 => format!("{v:.0}"),
        v if v != 0.0 && v.abs() < 0.01 => format!("{v:.5}"),
        v => digits(v),
    }
}

fn none() -> String {
    "-".to_owned()
}

fn range(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{} [{}..{}]", number(median), number(min), number(max))
}

fn bold(text: String, is: bool) -> String {
    if is { format!("**{text}**") } else { text }
}

/// The cells of a row. A value is bold if it is better than stanchion's in the printed digits.
fn row(cell: &Measured, contender: &Contender, columns: &[Column]) -> Vec<String> {
    let ours = cell.contender(&contender.beside);
    let ours = ours.filter(|_| contender.role == Role::Peer);
    let main = contender.main(cell.unit).map_or_else(none, range);
    let beside = cell
        .contender(&contender.beside)
        .filter(|_| contender.role != Role::Ours);
    let ratio = beside.and_then(|ours| cell.ratio(ours, contender));
    let ahead = ratio.is_some_and(|ratio| ratio.median < 1.0) && ours.is_some();
    let mut cells = vec![
        bold(format!("`{}`", contender.name), ahead),
        bold(main, ahead),
        ratio.map_or_else(none, |ratio| bold(range(ratio), ahead)),
    ];
    for column in columns {
        let Some(value) = (column.of)(contender) else {
            cells.push(none());
            continue;
        };
        let text = number(value);
        let better = ours.and_then(|ours| (column.of)(ours)).is_some_and(|mine| {
            let better = if column.more_is_better {
                value > mine
            } else {
                value < mine
            };
            better && text != number(mine)
        });
        cells.push(bold(text, better));
    }
    let overlaps: usize = contender.blocks.iter().map(|block| block.overlaps).sum();
    cells.push(match (ahead, overlaps) {
        (_, 1..) => format!("**two holders at once, {overlaps} times**"),
        (true, 0) => format!("**ahead of `{}`**", contender.beside),
        (false, 0) => String::new(),
    });
    cells
}

pub(crate) fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cell = |text: &String| {
            if text.is_empty() {
                " |".to_owned()
            } else {
                format!(" {text} |")
            }
        };
        format!("|{}\n", cells.iter().map(cell).collect::<String>())
    };
    let head: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
    let mut table = line(&head) + &"|---".repeat(head.len()) + "|\n";
    rows.iter().for_each(|row| table.push_str(&line(row)));
    table
}

fn table(cell: &Measured) -> String {
    let columns = columns(cell.unit);
    let mut head = vec!["contender", cell.unit.title(), "stanchion / it"];
    head.extend(columns.iter().map(|column| column.title));
    head.push("");
    let rows: Vec<_> = cell
        .contenders
        .iter()
        .map(|contender| row(cell, contender, &columns))
        .collect();
    let mut text = format!(
        "#### `{}`: {}\n\n{}",
        cell.name,
        cell.title,
        markdown(&head, &rows)
    );
    let held: Vec<f64> = cell
        .contenders
        .iter()
        .flat_map(|contender| &contender.blocks)
        .map(|block| block.held / 1e3)
        .collect();
    let rounds = cell.contenders.iter().map(|one| one.blocks.len()).max();
    let block = Spread::of(
        cell.contenders
            .iter()
            .filter_map(|one| one.median(|block| Some(block.seconds)))
            .collect(),
    );
    let _ = write!(
        text,
        "\n{} rounds of blocks of {} s.",
        rounds.unwrap_or(0),
        number(block.median)
    );
    let (held, others) = (Spread::of(held), Spread::of(cell.others.clone()));
    if held.median > 0.1 {
        let _ = write!(text, " Held for {} ms.", range(held));
    }
    if !cell.others.is_empty() {
        let others = range(others);
        let _ = write!(
            text,
            " CPU of the contenders that were not measured: {others} % of a core."
        );
    }
    text + "\n"
}

/// The result of each stanchion contender in each cell.
fn summary(cells: &[Measured]) -> String {
    let mut rows = Vec::new();
    for cell in cells {
        for ours in cell.contenders.iter().filter(|one| one.role == Role::Ours) {
            let base = ours.name.trim_end_matches("-ct");
            let of = |role: Role, names: &[&str]| {
                let mut known = cell.contenders.iter().filter(|other| other.role == role);
                known.rfind(|other| names.contains(&other.beside.as_str()))
            };
            let raw = of(Role::Raw, &[&ours.name]).or_else(|| of(Role::Raw, &["stanchion"]));
            let mut peers = cell.contenders.iter().filter(|other| other.beside == base);
            let redisson = peers.rfind(|other| other.name.starts_with("redisson"));
            let best = cell.best_peer();
            let to = |other: Option<&Contender>| {
                let ratio = other.and_then(|other| Some((cell.ratio(ours, other)?, other.role)));
                ratio.map_or_else(none, |(ratio, role)| {
                    bold(range(ratio), role == Role::Peer && ratio.median < 1.0)
                })
            };
            rows.push(vec![
                format!("`{}`", cell.name),
                format!("`{}`", ours.name),
                ours.main(cell.unit).map_or_else(none, range),
                cell.unit.title().to_owned(),
                to(raw),
                to(redisson),
                to(best),
                best.map_or_else(none, |best| format!("`{}`", best.name)),
            ]);
        }
    }
    let head = [
        "cell",
        "",
        "median",
        "",
        "/ raw",
        "/ Redisson",
        "/ best peer",
        "which is",
    ];
    markdown(&head, &rows)
}

/// Prints a cell as soon as it is measured.
pub(crate) fn print(cell: &Measured) {
    println!("{}", table(cell));
}

impl Peers {
    /// The text of the page between its markers.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{}, {}, {} cores; median [min..max] of the rounds. A virtual machine (`{}`) warms up for {} s.\n\n",
            self.day,
            self.server,
            self.cores,
            self.jvm_flags,
            self.warm_up_millis / 1000
        );
        let _ = writeln!(text, "Contenders: {}.", self.about.join("; "));
        for skipped in &self.skipped {
            let _ = writeln!(text, "\n**Missing: {skipped}.**");
        }
        let _ = write!(text, "\n{}", summary(&self.cells));
        for cell in &self.cells {
            let _ = write!(text, "\n{}", table(cell));
        }
        text
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
