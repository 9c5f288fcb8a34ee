//! Alternating blocks, and the statistics of their ratios.

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The durations and the numbers of the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// One block of one contender.
    pub(crate) block: Duration,
    /// Pairs of blocks.
    pub(crate) pairs: usize,
    /// Runs that cannot be cut into blocks: how often, and how long each.
    pub(crate) runs: usize,
    pub(crate) run: Duration,
    /// The number of waiters, or of held locks, for figures with many of them.
    pub(crate) many: usize,
}

impl Plan {
    pub(crate) fn full() -> Self {
        Self {
            block: Duration::from_millis(60),
            pairs: 41,
            runs: 5,
            run: Duration::from_secs(2),
            many: 10_000,
        }
    }

    pub(crate) fn quick() -> Self {
        Self {
            block: Duration::from_millis(40),
            pairs: 15,
            runs: 3,
            run: Duration::from_millis(500),
            many: 2_000,
        }
    }
}

/// A median, and the range of the blocks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let nth = |n: usize| values.get(n).copied().unwrap_or(f64::NAN);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            nth(middle)
        } else {
            f64::midpoint(nth(middle.wrapping_sub(1)), nth(middle))
        };
        Self {
            median,
            min: nth(0),
            max: nth(values.len().wrapping_sub(1)),
        }
    }

    pub(crate) fn one(value: f64) -> Self {
        Self {
            median: value,
            min: value,
            max: value,
        }
    }
}

/// The result of pairs of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    /// Subject's rate over reference's rate, pair by pair.
    pub(crate) ratio: Spread,
    /// The rates themselves, for the reader.
    pub(crate) subject: Spread,
    pub(crate) reference: Spread,
}

impl Compared {
    /// The ratio of times instead of rates.
    pub(crate) fn cost(&self) -> Spread {
        Spread {
            median: self.ratio.median.recip(),
            min: self.ratio.max.recip(),
            max: self.ratio.min.recip(),
        }
    }
}

/// Runs `subject` and `reference` in turns, the first of a pair changing each time. Both return a rate.
///
/// # Errors
/// The first of either.
pub(crate) async fn compare(
    plan: Plan,
    mut subject: impl AsyncFnMut(Duration) -> Result<f64>,
    mut reference: impl AsyncFnMut(Duration) -> Result<f64>,
) -> Result<Compared> {
    // The first blocks load scripts and warm caches.
    subject(plan.block).await?;
    reference(plan.block).await?;
    let mut pairs = Vec::with_capacity(plan.pairs);
    for n in 0..plan.pairs {
        let pair = if n % 2 == 0 {
            let subject = subject(plan.block).await?;
            (subject, reference(plan.block).await?)
        } else {
            let reference = reference(plan.block).await?;
            (subject(plan.block).await?, reference)
        };
        pairs.push(pair);
    }
    Ok(Compared {
        ratio: Spread::of(
            pairs
                .iter()
                .map(|(subject, reference)| subject / reference)
                .collect(),
        ),
        subject: Spread::of(pairs.iter().map(|pair| pair.0).collect()),
        reference: Spread::of(pairs.iter().map(|pair| pair.1).collect()),
    })
}

/// Waits for `time` while a lock is held. A runtime's timer has steps of a millisecond and wakes up to one too late: with
/// it a hold of 1 ms lasts about 2.1 ms. A thread's sleep is exact to some 70 us.
pub(crate) async fn hold(time: Duration) {
    if !time.is_zero() {
        // Fails only while the runtime ends.
        let _ = tokio::task::spawn_blocking(move || std::thread::sleep(time)).await;
    }
}

/// The runtimes that users have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    CurrentThread,
    MultiThread,
}

impl Flavor {
    pub(crate) const ALL: [Self; 2] = [Self::CurrentThread, Self::MultiThread];

    pub(crate) fn runtime(self) -> std::io::Result<tokio::runtime::Runtime> {
        let mut builder = match self {
            Self::CurrentThread => tokio::runtime::Builder::new_current_thread(),
            Self::MultiThread => tokio::runtime::Builder::new_multi_thread(),
        };
        builder.enable_all().build()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CurrentThread => "current_thread",
            Self::MultiThread => "multi_thread",
        }
    }
}
