//! Tests of barriers on real servers and with real processes.

mod servers;

use std::time::Duration;

use stanchion::CyclicBarrier;
use stanchion::barrier::{BrokenBy, Passed};
use stanchion_tests::barrier::*;
