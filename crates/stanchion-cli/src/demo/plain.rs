//! The display without a terminal: a line a second.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::DemoArgs;
use super::board::{Board, State};
use super::summary::millis;
use crate::output;

const INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn show(args: &DemoArgs, board: &Board, started: Instant) -> io::Result<()> {
    output::line(&super::summary::headline(args))?;
    output::line(args.primitive.pace())?;
    let mut grants = 0;
    for second in 1..=args.seconds {
        sleep_until(started + INTERVAL * u32::try_from(second).unwrap_or(u32::MAX)).await;
        let counts = board.counts();
        let waits = board.waits();
        let states = board.states();
        let waiting = states.iter().filter(|s| **s == State::Waiting).count();
        output::line(&format!(
            "{second:>3}s  {:>6} grants/s  {waiting:>4} waiting  wait p50 {:>8}  p99 {:>8}  overlaps {}{}",
            counts.grants - grants,
            millis(waits.p50),
            millis(waits.p99),
            counts.overlaps,
            if board.is_out_of_reach() {
                "  SERVER OUT OF REACH"
            } else {
                ""
            },
        ))?;
        grants = counts.grants;
    }
    Ok(())
}
