//! Tests of jobs: one run for each tick despite wrong clocks, the least time, and runs that are dropped, lost or killed.

mod dropped;
mod least;
mod lost_replies;
mod ticks;

use std::time::Duration;

use stanchion::Tick;
use stanchion_tests::jobs::*;
