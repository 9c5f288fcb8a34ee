//! The conformance suite: every test runs on the embedded engine, in virtual time, and on a real server.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking"
)]

/// Instantiates each test once for each world.
macro_rules! suite {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        mod engine {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(&stanchion_tests::World::engine()).await;
            })+
        }

        mod server {
            $(#[tokio::test]
            async fn $name() {
                if let Some(world) = stanchion_tests::World::server(stringify!($name)) {
                    super::$name(&world).await;
                }
            })+
        }
    };
}

mod exclusion;
mod expiry;
mod fair;
mod forced;
mod input;
mod latch;
mod layout;
mod leased;
mod multilock;
mod one_name;
mod permits;
mod polling;
mod processes;
mod redlock;
mod reentry;
mod rwlock;
mod semaphore;
mod small_verbs;
mod tokens;
mod waiting;
mod waiting_processes;
