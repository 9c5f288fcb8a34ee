//! A saved run of the benchmark `peers`: the figures of each block, from which everything else is computed.

use serde::{Deserialize, Serialize};

use super::cells::{Role, Unit};
use super::judge::Figures;
use crate::measure::Spread;

/// A run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Peers {
    /// The day it was begun, in UTC.
    pub(crate) day: String,
    pub(crate) server: String,
    pub(crate) cores: usize,
    pub(crate) warm_up_millis: u128,
    pub(crate) jvm_flags: String,
    /// The contenders' descriptions of themselves.
    pub(crate) about: Vec<String>,
    /// The contenders that did not take part, with the reason.
    pub(crate) skipped: Vec<String>,
    pub(crate) cells: Vec<Measured>,
}

/// A cell.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) contenders: Vec<Contender>,
    /// The CPU of the contenders that were not measured, for each block, in percent of a core.
    pub(crate) others: Vec<f64>,
}

/// A contender in a cell, with a block for each round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) beside: String,
    pub(crate) blocks: Vec<Figures>,
}

impl Contender {
    /// Of the blocks that have the figure.
    pub(crate) fn spread(&self, of: impl Fn(&Figures) -> Option<f64>) -> Option<Spread> {
        let values: Vec<f64> = self.blocks.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| Spread::of(values))
    }

    pub(crate) fn median(&self, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        self.spread(of).map(|spread| spread.median)
    }

    /// The figure that the cell is about.
    pub(crate) fn main(&self, unit: Unit) -> Option<Spread> {
        self.spread(|figures| unit.figure(figures, self.role))
    }
}

impl Measured {
    pub(crate) fn contender(&self, name: &str) -> Option<&Contender> {
        self.contenders.iter().find(|known| known.name == name)
    }

    /// The ratio of `ours` to `theirs`, round by round: above 1 if `ours` is better.
    pub(crate) fn ratio(&self, ours: &Contender, theirs: &Contender) -> Option<Spread> {
        let pairs = ours.blocks.iter().zip(&theirs.blocks);
        let ratios: Vec<f64> = pairs
            .filter_map(|(mine, other)| {
                let mine = self.unit.figure(mine, ours.role)?;
                // A contender without hand-offs has no gap: any gap is better.
                let Some(other) = self.unit.figure(other, theirs.role) else {
                    return Some(f64::INFINITY);
                };
                Some(self.unit.ratio(mine, other))
            })
            .collect();
        (!ratios.is_empty()).then(|| Spread::of(ratios))
    }

    /// The peer that is best by the median of the figure that the cell is about.
    pub(crate) fn best_peer(&self) -> Option<&Contender> {
        let peers = self
            .contenders
            .iter()
            .filter(|known| known.role == Role::Peer);
        let median = |peer: &&Contender| peer.main(self.unit).map(|spread| spread.median);
        let rated = peers.filter_map(|peer| Some((median(&peer)?, peer)));
        let best = rated.max_by(|a, b| match self.unit {
            Unit::Gap => b.0.total_cmp(&a.0),
            Unit::Grants | Unit::Handoffs => a.0.total_cmp(&b.0),
        });
        best.map(|(_, peer)| peer)
    }
}
