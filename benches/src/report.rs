//! The results of a run: printed as they are measured, then written as JSON and as charts.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use stanchion_testkit::RedisServer;

use crate::chart::{Chart, source};
use crate::fleet;
use crate::measure::Spread;

/// The target of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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

    pub(crate) fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("<= {limit}"),
            Self::AtLeast(limit) => format!(">= {limit}"),
            Self::Exactly(wanted) => format!("= {wanted}"),
            Self::None => String::new(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) figure: String,
    pub(crate) what: String,
    pub(crate) value: Spread,
    pub(crate) target: Target,
    pub(crate) met: Option<bool>,
    /// The absolute figures behind a ratio. They jump from run to run.
    pub(crate) note: String,
}

impl Row {
    /// The median, and how far the runs strayed if they did.
    pub(crate) fn measured(&self) -> String {
        let Spread { median, min, max } = self.value;
        if (min - max).abs() < f64::EPSILON {
            digits(median)
        } else {
            format!("{} [{}..{}]", digits(median), digits(min), digits(max))
        }
    }
}

/// The saved results of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The day it was begun, in UTC.
    pub(crate) day: String,
    pub(crate) server: String,
    pub(crate) cores: usize,
    pub(crate) rows: Vec<Row>,
    pub(crate) charts: Vec<Chart>,
}

impl Run {
    /// The charts that the run has stored and those that its rows make, with the day, the server and the machine.
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let mut charts = self.charts.clone();
        charts.extend(fleet::chart(&self.rows));
        let about = source(&self.day, &self.server, self.cores);
        for chart in &mut charts {
            chart.source = format!("{} {about}", chart.source).trim().to_owned();
        }
        charts
    }

    pub(crate) fn row(&self, figure: &str, what: &str) -> Result<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.figure == figure && row.what == what)
            .with_context(|| format!("no row `{figure}` {what}"))
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    run: Run,
}

/// `redis 7.0.15`, `valkey 9.1.2`. A Valkey also has a `redis_version`, which is that of the Redis it came from.
pub(crate) fn version(info: &str) -> String {
    let field = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
    };
    match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("valkey {version}"),
        (None, Some(version)) => format!("redis {version}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// The day, in UTC.
pub(crate) fn today() -> String {
    let mut day = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    day.truncate("2026-01-01".len());
    day
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

impl Report {
    pub(crate) fn new(server: &RedisServer) -> Self {
        let server = version(server.cli(&["INFO", "server"]).as_text());
        let (day, cores) = (today(), cores());
        println!("server {server}, {cores} cores; median [min..max]");
        Self {
            run: Run {
                day,
                server,
                cores,
                rows: Vec::new(),
                charts: Vec::new(),
            },
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
            figure: figure.to_owned(),
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
        println!(
            "{figure:<16} {:<46} {:<28} {:<9} {verdict:<7} {}",
            row.what,
            row.measured(),
            target.text(),
            row.note
        );
        self.run.rows.push(row);
    }

    /// Adds a picture, drawn at the end if pictures are wanted.
    pub(crate) fn chart(&mut self, chart: Chart) {
        self.run.charts.push(chart);
    }

    pub(crate) fn finish(self, json: Option<&Path>, charts: Option<&Path>) -> Result<()> {
        let judged = self.run.rows.iter().filter_map(|row| row.met);
        let (met, missed): (Vec<bool>, Vec<bool>) = judged.partition(|met| *met);
        println!("{} met, {} missed", met.len(), missed.len());
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(&self.run)? + "\n";
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(folder) = charts {
            let charts = self.run.charts();
            for chart in &charts {
                chart.write(folder)?;
            }
            println!("{} charts in {}", charts.len(), folder.display());
        }
        Ok(())
    }
}

/// Four significant digits or so.
pub(crate) fn digits(value: f64) -> String {
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

#[test]
fn a_valkey_is_told_by_its_own_version() {
    let redis = "# Server\r\nredis_version:7.0.15\r\n";
    let valkey =
        "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
    assert_eq!(version(redis), "redis 7.0.15");
    assert_eq!(version(valkey), "valkey 9.1.2");
    assert_eq!(version(""), "unknown");
}
