//! The rows of the fleet: its own, and comparisons with others.

use super::{Figures, SIZES, What};
use crate::measure::Spread;
use crate::report::{Report, Target};

pub(super) fn spread(runs: &[Figures], of: impl Fn(&Figures) -> f64) -> Spread {
    Spread::of(runs.iter().map(of).collect())
}

/// The figures of the bare fleet of plain permits, and the ratio of stanchion's figures to them.
pub(super) fn beside_bare(report: &mut Report, ours: &[Vec<Figures>], bare: &[Vec<Figures>]) {
    for ((size, ours), bare) in SIZES.into_iter().zip(ours).zip(bare) {
        report.row(
            "fleet",
            format!("bare: plain permits, {size}: commands"),
            spread(bare, |f| f.commands),
            Target::None,
            note(bare),
        );
        let rates = ours
            .iter()
            .zip(bare)
            .map(|(ours, bare)| ours.rate / bare.rate);
        report.row(
            "fleet",
            format!("Semaphore, 8 permits, {size}: grants/s / bare"),
            Spread::of(rates.collect()),
            Target::None,
            "",
        );
    }
    let pairs = bare[2].iter().zip(&bare[0]);
    let ratio = Spread::of(pairs.map(|(a, b)| a.commands / b.commands).collect());
    report.row(
        "fleet",
        "bare: plain permits: commands, 64 / 2",
        ratio,
        Target::None,
        "",
    );
}

/// The figures next to the commands, in words.
fn note(runs: &[Figures]) -> String {
    let of = |f: fn(&Figures) -> f64| spread(runs, f).median;
    let (rate, gap, longest) = (of(|f| f.rate), of(|f| f.gap), of(|f| f.longest));
    // Redisson's fleet does not report the gap.
    let gap = if gap.is_nan() {
        String::new()
    } else {
        format!("gap {gap:.2} ms, ")
    };
    format!(
        "{rate:.0} grants/s, {gap}longest wait {longest:.0} ms, mean {:.1} ms, {:.0} us of the server",
        of(|f| f.mean),
        of(|f| f.server_micros)
    )
}

/// The figures of Redisson's fleet, and the ratio of stanchion's figures to them.
pub(super) fn beside(
    report: &mut Report,
    what: What,
    ours: &[Vec<Figures>],
    theirs: &[Vec<Figures>],
) {
    let title = what.title();
    for ((size, ours), theirs) in SIZES.into_iter().zip(ours).zip(theirs) {
        report.row(
            "fleet",
            format!("Redisson: {title}, {size}: commands"),
            spread(theirs, |f| f.commands),
            Target::None,
            note(theirs),
        );
        let rates = ours
            .iter()
            .zip(theirs)
            .map(|(ours, theirs)| ours.rate / theirs.rate.max(0.1));
        report.row(
            "fleet",
            format!("{title}, {size}: grants/s / Redisson's"),
            Spread::of(rates.collect()),
            Target::None,
            "",
        );
    }
}

pub(super) fn rows(report: &mut Report, what: What, runs: &[Vec<Figures>]) {
    let title = what.title();
    let most = if what == What::Lock {
        2.3
    } else {
        f64::INFINITY
    };
    for (size, runs) in SIZES.into_iter().zip(runs) {
        let target = if most.is_finite() {
            Target::AtMost(most)
        } else {
            Target::None
        };
        report.row(
            "fleet",
            format!("{title}, {size}: commands"),
            spread(runs, |f| f.commands),
            target,
            note(runs),
        );
    }
    let ratio = |a: usize, b: usize, of: fn(&Figures) -> f64| {
        let pairs = runs[a].iter().zip(&runs[b]);
        Spread::of(pairs.map(|(a, b)| of(a) / of(b)).collect())
    };
    if what == What::Lock {
        report.row(
            "fleet",
            "Lock: grants/s, 256 / 2",
            ratio(3, 0, |f| f.rate),
            Target::AtLeast(0.8),
            "",
        );
        report.row(
            "fleet",
            "Lock: server time of a grant, 256 / 2",
            ratio(3, 0, |f| f.server_micros),
            Target::AtMost(2.0),
            "",
        );
        for n in [1, 2] {
            let wait = spread(&runs[n], |f| f.longest / f.mean);
            report.row(
                "fleet",
                format!("Lock, {}: longest wait / mean", SIZES[n]),
                wait,
                Target::AtMost(5.0),
                "",
            );
        }
    } else if what != What::Fair {
        report.row(
            "fleet",
            format!("{title}: commands, 64 / 2"),
            ratio(2, 0, |f| f.commands),
            Target::AtMost(1.3),
            "",
        );
    }
}
