//! Tables over every kind of hold, on the engine and on a real server. A new primitive is a row of `stanchion_tests::kinds`.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use stanchion_tests::World;
use stanchion_tests::kinds::{Case, Kind, kinds};
use tokio::sync::{Mutex, MutexGuard};

mod behaviour;
mod foreign_keys;
mod leases;
mod lost_replies;

/// Instantiates each test as `engine::NAME`, in virtual time, and as `server::NAME`, with one server for each kind.
macro_rules! table {
    ($($name:ident),+ $(,)?) => {
        mod engine {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                $crate::kinds::on_engines(super::$name).await;
            })+
        }

        mod server {
            $(#[tokio::test]
            async fn $name() {
                $crate::kinds::on_servers(super::$name).await;
            })+
        }
    };
}
use table;

async fn on_engines(check: impl AsyncFn(&Case)) {
    for kind in kinds() {
        check(&Case::new(kind, World::engine()).await).await;
    }
}

/// Only one table at a time has its servers: the machine that starts hundreds at once does not answer other tests in time.
static TURN: Mutex<()> = Mutex::const_new(());

/// A server for each kind, and the turn to have them. All of them first: a start blocks the thread, on which the leases of other kinds would end.
async fn servers() -> (MutexGuard<'static, ()>, Vec<(Kind, World)>) {
    let turn = TURN.lock().await;
    let start = |kind| Some((kind, World::server("all kinds")?));
    (turn, kinds().into_iter().filter_map(start).collect())
}

/// Checks all kinds at the same time, because the checks wait.
async fn on_servers(check: impl AsyncFn(&Case)) {
    let (_turn, servers) = servers().await;
    let failed = join_all(servers.into_iter().map(async |(kind, world)| {
        let checking = async { check(&Case::new(kind, world).await).await };
        let checked = AssertUnwindSafe(checking).catch_unwind().await;
        checked.is_err().then_some(kind.0)
    }))
    .await;
    let failed: Vec<_> = failed.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{failed:?}");
}
