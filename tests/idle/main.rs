//! What ends when nobody uses it.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

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

mod latch;
mod semaphore;
mod semaphore_time;
mod support;
