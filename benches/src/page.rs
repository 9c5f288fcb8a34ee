//! The tables and charts of `docs/benchmarks.md` and `docs/scale.md`, for users, and of `docs/measurements.md`, for maintainers.
//!
//! They are made from what runs and `scripts/peers` wrote with `--json`, never by hand.
//!
//! The text between `<!-- figures: NAME -->` and `<!-- end of figures -->` is made from `docs/figures/NAME.json`, or by [`crate::users`]
//! if the name begins with `users/`. Remarks that a person
//! has written about a row, such as the reason why it misses its target, are in `docs/figures/remarks.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::chart::Chart;
use crate::peers::Peers;
use crate::report::{Row, Run};
use crate::users;

const OPEN: &str = "<!-- figures: ";
const PAGES: [&str; 3] = ["benchmarks.md", "measurements.md", "scale.md"];
const CLOSE: &str = "<!-- end of figures -->";

/// The remarks about rows, by figure and by the text of the row.
type Remarks = BTreeMap<String, BTreeMap<String, String>>;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

pub(crate) fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// The content of a file of `docs/figures`.
enum Measured {
    Run(Run),
    /// That of `scripts/peers`: its figures have more columns.
    Peers(Peers),
}

impl Measured {
    /// Reads `<name>.json`.
    fn read(figures: &Path, name: &str) -> Result<Self> {
        let path = figures.join(name).with_extension("json");
        Ok(match name {
            "peers" => Self::Peers(read(&path)?),
            _ => Self::Run(read(&path)?),
        })
    }

    #[cfg(test)]
    fn rows(&self) -> &[Row] {
        match self {
            Self::Run(run) => &run.rows,
            Self::Peers(_) => &[],
        }
    }

    fn charts(&self) -> Vec<Chart> {
        match self {
            Self::Run(run) => run.charts(),
            Self::Peers(peers) => peers.charts(),
        }
    }

    /// The text on the page. Takes the remarks that it uses.
    fn text(&self, remarks: &mut Remarks) -> String {
        match self {
            Self::Run(run) => table(run, remarks),
            Self::Peers(peers) => peers.text(),
        }
    }
}

/// All that was measured, by its files' names.
fn all() -> Result<Vec<Measured>> {
    let figures = docs().join("figures");
    let mut files: Vec<PathBuf> = fs::read_dir(&figures)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let names = files.iter().filter_map(|path| path.file_stem()?.to_str());
    let names = names.filter(|name| *name != "remarks");
    names.map(|name| Measured::read(&figures, name)).collect()
}

/// Writes the tables and the charts again.
pub(crate) fn write() -> Result<()> {
    for chart in all()?.iter().flat_map(Measured::charts) {
        chart.write(&docs().join("charts"))?;
    }
    for (path, new) in filled(&docs())? {
        let right = new == fs::read_to_string(&path)?;
        let state = if right { "was right" } else { "written" };
        println!("{} {state}", path.display());
        fs::write(path, new)?;
    }
    Ok(())
}

/// The pages with their tables, by their paths.
fn filled(docs: &Path) -> Result<Vec<(PathBuf, String)>> {
    let figures = docs.join("figures");
    let mut remarks: Remarks = read(&figures.join("remarks.json"))?;
    let mut pages = Vec::new();
    for page in PAGES {
        let path = docs.join(page);
        let old = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let new = fill(&old, &figures, &mut remarks)?;
        pages.push((path, new));
    }
    if let Some((figure, rows)) = remarks.iter().find(|(_, rows)| !rows.is_empty()) {
        bail!("remarks on rows of {figure} that no run has: {rows:?}");
    }
    Ok(pages)
}

/// A page with its tables.
fn fill(page: &str, figures: &Path, remarks: &mut Remarks) -> Result<String> {
    let mut new = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (name, after) = after.split_once(" -->").context("a marker is torn")?;
        let (_, after) = after
            .split_once(CLOSE)
            .with_context(|| format!("`{CLOSE}` is missing after {name}"))?;
        let text = match name.strip_prefix("users/") {
            Some(part) => users::text(part, figures)?,
            None => Measured::read(figures, name)?.text(remarks),
        };
        write!(new, "{before}{OPEN}{name} -->\n{text}{CLOSE}")?;
        rest = after;
    }
    new.push_str(rest);
    Ok(new)
}

/// Takes the remarks that it uses.
fn table(run: &Run, remarks: &mut Remarks) -> String {
    let mut table = format!(
        "{}, {}, {} cores; median [min..max]\n\n| figure | | target | measured | |\n|---|---|---|---|---|\n",
        run.day, run.server, run.cores
    );
    for row in &run.rows {
        let remark = remarks
            .get_mut(&row.figure)
            .and_then(|rows| rows.remove(&row.what));
        let cells = [
            format!("`{}`", row.figure),
            row.what.clone(),
            row.target.text().replace("<=", "≤").replace(">=", "≥"),
            row.measured(),
            verdict(row, remark),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        table.push_str(&format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |"));
    }
    table
}

fn verdict(row: &Row, remark: Option<String>) -> String {
    let verdict = match row.met {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "",
    };
    let said = match (remark, row.note.as_str()) {
        (Some(remark), "") => remark,
        (Some(remark), note) => format!("{remark} ({note})"),
        (None, note) => note.to_owned(),
    };
    match (verdict, said.as_str()) {
        ("", said) => said.to_owned(),
        (verdict, "") => verdict.to_owned(),
        (verdict, said) => format!("{verdict}: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Spread;
    use crate::report::Target;

    #[test]
    fn the_pages_agree_with_the_figures() {
        for (path, filled) in filled(&docs()).unwrap() {
            let page = fs::read_to_string(&path).unwrap();
            assert!(
                page == filled,
                "{} does not agree with docs/figures; write it with `cargo run -p stanchion-benches -- page`",
                path.display()
            );
            let measured = filled.split(OPEN).skip(1);
            for text in measured.map(|rest| rest.split_once(CLOSE).unwrap().0) {
                let cells = |row: &str| row.replace("\\|", "").matches('|').count();
                let mut head = None;
                for line in text.lines() {
                    if !line.starts_with('|') {
                        head = None;
                        continue;
                    }
                    let wanted = *head.get_or_insert_with(|| cells(line));
                    assert_eq!(cells(line), wanted, "as many as in the head: {line}");
                }
            }
        }
    }

    #[test]
    fn the_users_page_is_short_and_narrow() {
        let page = fs::read_to_string(docs().join("benchmarks.md")).unwrap();
        let hidden = |line: &&str| !line.starts_with("<!--") && !line.starts_with("|---");
        let words = page.lines().filter(hidden).flat_map(str::split_whitespace);
        let words = words.filter(|word| *word != "|").count();
        assert!(words <= 900, "{words} words");
        let rows = page.lines().filter(|line| line.starts_with('|'));
        for row in rows {
            let cells = row.matches('|').count() - 1;
            assert!(cells <= 4, "too wide for a phone: {row}");
        }
    }

    #[test]
    fn every_chart_is_on_a_page_and_every_picture_is_drawn() {
        let pages = PAGES.map(|page| fs::read_to_string(docs().join(page)).unwrap());
        let pages = pages.concat();
        let mut drawn: Vec<String> = all()
            .unwrap()
            .iter()
            .flat_map(Measured::charts)
            .map(|chart| chart.file)
            .collect();
        let pictures = pages.split("](charts/").skip(1);
        let mut shown: Vec<String> = pictures
            .map(|rest| rest.split_once(".svg)").unwrap().0.to_owned())
            .collect();
        drawn.sort();
        shown.sort();
        shown.dedup();
        assert_eq!(drawn, shown);
    }

    #[test]
    fn the_charts_show_what_the_runs_measured() {
        for chart in all().unwrap().iter().flat_map(Measured::charts) {
            let path = chart.path(&docs().join("charts"));
            let drawn = fs::read_to_string(&path).unwrap();
            assert!(drawn == chart.svg().unwrap(), "{}", path.display());
        }
    }

    #[test]
    fn every_missed_target_is_explained() {
        let remarks: Remarks = read(&docs().join("figures/remarks.json")).unwrap();
        for row in all().unwrap().iter().flat_map(Measured::rows) {
            let said = remarks
                .get(&row.figure)
                .and_then(|rows| rows.get(&row.what));
            assert!(
                row.met != Some(false) || said.is_some(),
                "{} {} says nothing",
                row.figure,
                row.what
            );
        }
    }

    #[test]
    fn a_row_has_five_cells_whatever_it_says() {
        let spread = |median| Spread {
            median,
            min: median - 0.5,
            max: median,
        };
        let row = |what: &str, met, note: &str| Row {
            figure: "figure".into(),
            what: what.into(),
            value: spread(2.0),
            target: Target::AtMost(1.5),
            met,
            note: note.into(),
        };
        let run = Run {
            day: "2026-11-21".into(),
            server: "redis 7.0.15".into(),
            cores: 2,
            rows: vec![
                row("a | b", None, ""),
                row("c", Some(true), "x / y"),
                row("d", Some(false), "z"),
            ],
            charts: Vec::new(),
        };
        let remark = BTreeMap::from([("d".to_owned(), "why".to_owned())]);
        let mut remarks = Remarks::from([("figure".to_owned(), remark)]);
        let table = table(&run, &mut remarks);
        let rows: Vec<&str> = table.lines().skip(4).collect();
        assert_eq!(
            rows,
            [
                r"| `figure` | a \| b | ≤ 1.5 | 2.000 [1.500..2.000] | |",
                "| `figure` | c | ≤ 1.5 | 2.000 [1.500..2.000] | met: x / y |",
                "| `figure` | d | ≤ 1.5 | 2.000 [1.500..2.000] | **missed**: why (z) |",
            ]
        );
        assert!(remarks["figure"].is_empty());
    }
}
