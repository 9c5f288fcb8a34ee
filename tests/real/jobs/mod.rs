//! Tests of jobs on the engine and on real servers, alone and in sets: ticks, the least time, neighbours, failovers.

mod behaviour {
    mod dropped;
    mod least;
    mod neighbours;
    mod ticks;
}
mod servers;

use stanchion::{Job, Tick};
use stanchion_tests::jobs::*;
