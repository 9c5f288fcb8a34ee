//! Tests of `CyclicBarrier` and `DoubleBarrier`.

mod breaks;
mod double;
mod dropped;
mod lost;
mod rounds;

use std::time::Duration;

use stanchion::barrier::{BrokenBy, OnLeave, WaitOptions};
use stanchion::{AcquireError, BarrierError, Client, CyclicBarrier};
use stanchion_tests::World;
use stanchion_tests::barrier::*;
use tokio::task::JoinHandle;
