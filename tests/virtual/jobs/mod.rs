//! Tests of jobs: one run for each tick despite wrong clocks, the least time, and runs that are dropped, lost or killed.

mod chaos;
mod dropped;
mod least;
mod lost_replies;
mod ticks;

use std::time::Duration;

use stanchion::{Job, Tick};
use stanchion_testkit::eventually_async;
use stanchion_tests::jobs::*;
