//! The tables of the users' page about other libraries.

use super::cells::{Role, words};
use super::charts::label;
use super::result::{Contender, Measured, Peers};
use super::table::markdown;

/// A ratio with two digits, or without digits when they would say nothing.
fn times(ratio: f64) -> String {
    match ratio {
        infinite if infinite.is_infinite() => "∞".to_owned(),
        large if large >= 99.5 => format!("{large:.0}"),
        medium if medium >= 9.95 => format!("{medium:.1}"),
        small => format!("{small:.2}"),
    }
}

impl Measured {
    /// The first of stanchion's contenders, and its ratio to each peer that does the same.
    fn against_peers(&self) -> Option<(&Contender, Vec<(&Contender, f64)>)> {
        let ours = self.contenders.iter().find(|one| one.role == Role::Ours)?;
        let same = |peer: &&Contender| peer.role == Role::Peer && peer.beside == ours.name;
        let peers = self.contenders.iter().filter(same);
        let ratios = peers.filter_map(|peer| Some((peer, self.ratio(ours, peer)?.median)));
        Some((ours, ratios.collect()))
    }
}

impl Peers {
    /// How many times as fast stanchion is as Redisson, and as the fastest other library.
    pub(crate) fn ratios_for_users(&self) -> String {
        let mut rows = Vec::new();
        for cell in &self.cells {
            let Some((_, ratios)) = cell.against_peers() else {
                continue;
            };
            let is_redisson = |peer: &Contender| peer.name.starts_with("redisson");
            let redisson = ratios.iter().rfind(|(peer, _)| is_redisson(peer));
            let others = ratios.iter().filter(|(peer, _)| !is_redisson(peer));
            let best = others.min_by(|one, other| one.1.total_cmp(&other.1));
            let text = |ratio: f64| {
                let text = times(ratio);
                if ratio < 1.0 {
                    format!("**{text}**")
                } else {
                    text
                }
            };
            rows.push(vec![
                words(&cell.name).to_owned(),
                redisson.map_or_else(String::new, |(_, ratio)| text(*ratio)),
                best.map_or_else(String::new, |(peer, ratio)| {
                    let name = label(&peer.name).unwrap_or_default();
                    format!("{} ({name})", text(*ratio))
                }),
            ]);
        }
        markdown(&["workload", "÷ Redisson", "÷ fastest other"], &rows)
    }

    /// Every peer that is faster than stanchion, on several threads and on one.
    pub(crate) fn ahead_for_users(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for cell in &self.cells {
            for peer in cell.contenders.iter().filter(|one| one.role == Role::Peer) {
                let Some(name) = label(&peer.name) else {
                    continue;
                };
                let ratio = |name: &str| {
                    let peer = cell.contender(name)?;
                    let ours = cell.contender(&peer.beside)?;
                    Some(cell.ratio(ours, peer)?.median)
                };
                let many = ratio(&peer.name);
                let one = ratio(&format!("{}-ct", peer.name));
                if many.into_iter().chain(one).all(|ratio| ratio >= 1.0) {
                    continue;
                }
                let text =
                    |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| times(1.0 / ratio));
                rows.push(vec![
                    format!("{name}: {}", words(&cell.name)),
                    text(many),
                    text(one),
                ]);
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::cells::Unit;
    use crate::peers::judge::Figures;

    fn contender(name: &str, role: Role, beside: &str, grants: usize) -> Contender {
        let block = Figures {
            grants,
            handoffs: grants,
            seconds: 1.0,
            ..Figures::default()
        };
        Contender {
            name: name.into(),
            role,
            beside: beside.into(),
            blocks: vec![block],
        }
    }

    fn run() -> Peers {
        Peers {
            day: String::new(),
            server: String::new(),
            cores: 2,
            warm_up_millis: 0,
            jvm_flags: String::new(),
            about: Vec::new(),
            skipped: Vec::new(),
            cells: vec![Measured {
                name: "names64".into(),
                title: String::new(),
                unit: Unit::Grants,
                contenders: vec![
                    contender("raw", Role::Raw, "stanchion", 300),
                    contender("stanchion", Role::Ours, "stanchion", 100),
                    contender("stanchion-ct", Role::Ours, "stanchion-ct", 100),
                    contender("stanchion-fair", Role::Ours, "stanchion-fair", 10),
                    contender("rslock", Role::Peer, "stanchion", 125),
                    contender("rslock-ct", Role::Peer, "stanchion-ct", 200),
                    contender("rlock", Role::Peer, "stanchion", 80),
                    contender("redisson-4.7.0", Role::Peer, "stanchion", 50),
                    contender("redisson-4.7.0-fair", Role::Peer, "stanchion-fair", 5),
                ],
                others: Vec::new(),
            }],
        }
    }

    #[test]
    fn users_read_ratios_of_the_same_primitive_on_the_same_runtime() {
        let table = run().ratios_for_users();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(rows, ["| 64 tasks, 64 locks | 2.00 | **0.80** (rslock) |"]);
    }

    #[test]
    fn users_read_of_every_faster_library() {
        let rows = run().ahead_for_users();
        assert_eq!(rows, [["rslock: 64 tasks, 64 locks", "1.25", "2.00"]]);
    }
}
