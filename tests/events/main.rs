//! What happens to a name, for those who listen: see `docs/events.md`.
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
                super::$name(&$crate::support::engine()).await;
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

mod cost;
mod faults;
mod kinds;
mod servers;
mod support;
