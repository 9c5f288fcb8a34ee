//! The charts of a run.

use super::cells::{Role, words};
use super::judge::Figures;
use super::result::{Contender, Measured, Peers};
use crate::chart::{Chart, Scale, Series, Shape, source};

/// The name of a contender in charts: the product, then the primitive. `None` for those on one thread, which only the tables have.
pub(super) fn label(name: &str) -> Option<String> {
    let (product, rest) = match name {
        "raw" => return Some("bare commands".to_owned()),
        name if name.ends_with("-ct") => return None,
        name => match name.split_once('-') {
            Some((product, rest)) => (product, rest),
            None => (name, ""),
        },
    };
    // A version, and nothing for the lock.
    let kind = rest
        .trim_start_matches(|letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-'));
    let kind = match kind {
        "fair" => "FairLock",
        "read" => "RwLock",
        "semaphore" => "Semaphore",
        "leased" => "LeasedSemaphore",
        _ => "Lock",
    };
    Some(match product {
        "stanchion" => format!("stanchion {kind}"),
        "redisson" => format!("Redisson {kind}"),
        // These have one kind of lock in each cell.
        other => other.to_owned(),
    })
}

impl Peers {
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let contended = ["hand2", "hand16", "hand128", "procs", "gap", "fleet"];
        let alone = ["cycle", "names64", "readers", "sem"];
        let mut charts = vec![
            self.ratios(
                "peers-contended",
                "stanchion compared with each library when tasks compete for one lock",
                &contended,
            ),
            self.ratios(
                "peers-alone",
                "stanchion compared with each library on free locks, readers and permits",
                &alone,
            ),
        ];
        let cell = |name: &str| self.cells.iter().find(|cell| cell.name == name);
        charts.extend(cell("hand16").map(|cell| {
            let chart = self.absolute(cell, |one| Some(one.main(cell.unit)?.median));
            Chart {
                file: "peers-hand-offs".into(),
                title: "Hand-offs of one lock between 16 tasks of a process: more is better".into(),
                unit: "hand-offs per second".into(),
                ..chart
            }
        }));
        charts.extend(cell("names64").map(|cell| {
            let chart = self.absolute(cell, |one| Some(one.main(cell.unit)?.median));
            Chart {
                file: "peers-free-locks".into(),
                title: "64 tasks, each with a free lock of its own: more is better".into(),
                unit: "acquires and releases per second".into(),
                ..chart
            }
        }));
        charts.extend(cell("fleet").map(|cell| {
            let longest = |block: &Figures| Some(block.wait.max / 1e3);
            let block = cell.contenders.iter().find_map(|one| one.blocks.first());
            let seconds = block.map_or(0.0, |block| block.seconds);
            let chart = self.absolute(cell, |one| one.median(longest));
            Chart {
                file: "peers-longest-wait".into(),
                title: "Longest wait of 64 clients for one lock: less is better".into(),
                unit: "milliseconds".into(),
                source: format!(
                    "Each hold lasts 1 ms. A run lasts {seconds:.0} s, so no wait is longer. {}",
                    chart.source
                ),
                ..chart
            }
        }));
        charts
    }

    fn source(&self) -> String {
        source(&self.day, &self.server, self.cores)
    }

    /// A figure of all contenders of a cell that have their own process with several threads.
    fn absolute(&self, cell: &Measured, of: impl Fn(&Contender) -> Option<f64>) -> Chart {
        let series = cell.contenders.iter().filter_map(|one| {
            Some(Series {
                name: label(&one.name)?,
                values: vec![of(one)?],
            })
        });
        Chart {
            file: String::new(),
            title: String::new(),
            unit: String::new(),
            along: String::new(),
            categories: vec![String::new()],
            series: series.collect(),
            scale: Scale::Linear,
            shape: Shape::Bars,
            source: self.source(),
        }
    }

    /// The ratios of stanchion to the peers. A peer that does not take part, or has no hand-offs, has no bar.
    fn ratios(&self, file: &str, title: &str, cells: &[&str]) -> Chart {
        let cells: Vec<&Measured> = cells
            .iter()
            .filter_map(|name| self.cells.iter().find(|cell| cell.name == *name))
            .collect();
        let value = |cell: &Measured, prefix: &str| {
            let ours = cell.contenders.iter().find(|one| one.role == Role::Ours);
            // The newest, if there are several versions of one.
            let ratio = ours.and_then(|ours| {
                let mut peers = cell.contenders.iter();
                let peer = peers
                    .rfind(|peer| peer.name.starts_with(prefix) && peer.beside == ours.name)?;
                cell.ratio(ours, peer)
            });
            ratio.map_or(0.0, |ratio| ratio.median)
        };
        let peers = [
            ("redisson", "Redisson"),
            ("rslock", "rslock"),
            ("rlock", "rlock"),
            ("redsync", "redsync"),
        ];
        let series = peers.map(|(prefix, name)| Series {
            name: name.to_owned(),
            values: cells.iter().map(|cell| value(cell, prefix)).collect(),
        });
        Chart {
            file: file.to_owned(),
            title: title.to_owned(),
            unit: "stanchion is so many times as fast".to_owned(),
            along: String::new(),
            categories: cells
                .iter()
                .map(|cell| words(&cell.name).to_owned())
                .collect(),
            series: series.into(),
            scale: Scale::Ratio,
            shape: Shape::Bars,
            source: self.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::cells::Unit;

    fn contender(name: &str, role: Role, handoffs: usize) -> Contender {
        let block = Figures {
            grants: handoffs,
            handoffs,
            seconds: 1.0,
            ..Figures::default()
        };
        Contender {
            name: name.into(),
            role,
            beside: "stanchion".into(),
            blocks: vec![block],
        }
    }

    fn run() -> Peers {
        Peers {
            day: "2026-11-22".into(),
            server: "redis 7.0.15".into(),
            cores: 2,
            warm_up_millis: 10_000,
            jvm_flags: String::new(),
            about: Vec::new(),
            skipped: Vec::new(),
            cells: vec![Measured {
                name: "hand16".into(),
                title: "sixteen tasks".into(),
                unit: Unit::Handoffs,
                contenders: vec![
                    contender("stanchion", Role::Ours, 100),
                    contender("stanchion-ct", Role::Ours, 90),
                    contender("rslock", Role::Peer, 50),
                ],
                others: vec![0.0],
            }],
        }
    }

    #[test]
    fn ratios_compare_stanchion_with_each_peer() {
        let run = run();
        let charts = run.charts();
        let chart = &charts[0];
        assert_eq!(chart.categories, ["16 tasks, 1 lock"]);
        let of = |name: &str| {
            let mut series = chart.series.iter();
            series.find(|series| series.name == name).unwrap()
        };
        assert_eq!(of("rslock").values, [2.0]);
        assert_eq!(of("redsync").values, [0.0]);
        assert!(chart.source.contains("2026-11-22"), "{}", chart.source);
    }

    #[test]
    fn absolute_figures_show_contenders_by_name() {
        let charts = run().charts();
        let chart = charts.iter().find(|chart| chart.file == "peers-hand-offs");
        let series = &chart.unwrap().series;
        let shown: Vec<_> = series
            .iter()
            .map(|one| (one.name.as_str(), one.values[0]))
            .collect();
        assert_eq!(shown, [("stanchion Lock", 100.0), ("rslock", 50.0)]);
    }

    #[test]
    fn a_label_has_no_code() {
        for (name, words) in [
            ("raw", Some("bare commands")),
            ("raw-ct", None),
            ("stanchion", Some("stanchion Lock")),
            ("stanchion-fair", Some("stanchion FairLock")),
            ("stanchion-leased", Some("stanchion LeasedSemaphore")),
            ("redisson-4.7.0", Some("Redisson Lock")),
            ("redisson-4.7.0-read", Some("Redisson RwLock")),
            ("rlock-read", Some("rlock")),
            ("rlock-read-ct", None),
        ] {
            assert_eq!(label(name).as_deref(), words, "{name}");
        }
    }
}
