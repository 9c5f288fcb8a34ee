//! The table, the JSON file and the charts.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use stanchion_testkit::RedisServer;

use crate::chart::Chart;
use crate::measure::Spread;

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    Exactly(f64),
    /// Shown, not judged.
    None,
}

impl Target {
    /// Judges the figure as measured, not as printed.
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(limit) => Some(value <= limit),
            Self::AtLeast(limit) => Some(value >= limit),
            Self::Exactly(wanted) => Some((value - wanted).abs() < f64::EPSILON),
            Self::None => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("<= {limit}"),
            Self::AtLeast(limit) => format!(">= {limit}"),
            Self::Exactly(wanted) => format!("= {wanted}"),
            Self::None => String::new(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    figure: &'static str,
    what: String,
    value: Spread,
    target: Target,
    met: Option<bool>,
    /// The absolute figures behind a ratio. They jump from run to run.
    note: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    server: String,
    cores: usize,
    rows: Vec<Row>,
    #[serde(skip)]
    charts: Vec<Chart>,
}

impl Report {
    pub(crate) fn new(server: &RedisServer) -> Self {
        let info = server.cli(&["INFO", "server"]);
        let version = info
            .as_text()
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"))
            .unwrap_or("unknown")
            .to_owned();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        println!("server {version}, {cores} cores; median [min..max]");
        Self {
            server: version,
            cores,
            rows: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// Adds and prints a row.
    pub(crate) fn row(
        &mut self,
        figure: &'static str,
        what: impl Into<String>,
        value: Spread,
        target: Target,
        note: impl Into<String>,
    ) {
        let met = target.is_met(value.median);
        let row = Row {
            figure,
            what: what.into(),
            value,
            target,
            met,
            note: note.into(),
        };
        let verdict = match met {
            Some(true) => "ok",
            Some(false) => "MISSED",
            None => "",
        };
        let values = if (value.min - value.max).abs() < f64::EPSILON {
            digits(value.median)
        } else {
            format!(
                "{} [{}..{}]",
                digits(value.median),
                digits(value.min),
                digits(value.max)
            )
        };
        println!(
            "{figure:<16} {:<46} {values:<28} {:<9} {verdict:<7} {}",
            row.what,
            target.text(),
            row.note
        );
        self.rows.push(row);
    }

    /// Adds a picture, drawn at the end if pictures are wanted.
    pub(crate) fn chart(&mut self, chart: Chart) {
        self.charts.push(chart);
    }

    pub(crate) fn finish(self, json: Option<&Path>, charts: Option<&Path>) -> Result<()> {
        let judged = self.rows.iter().filter_map(|row| row.met);
        let (met, missed): (Vec<bool>, Vec<bool>) = judged.partition(|met| *met);
        println!("{} met, {} missed", met.len(), missed.len());
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(&self)?;
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(folder) = charts {
            for chart in &self.charts {
                chart.write(folder)?;
            }
            println!("{} charts in {}", self.charts.len(), folder.display());
        }
        Ok(())
    }
}

/// Four significant digits or so.
fn digits(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// A rate, for notes.
pub(crate) fn per_second(rate: Spread) -> String {
    format!("{:.0}/s", rate.median)
}
