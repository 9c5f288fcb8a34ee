//! Events of names, for listeners: see `docs/events.md`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking"
)]

<<<<<<< HEAD
#[macro_use]
extern crate stanchion_tests;
=======
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
>>>>>>> 04f64e82379ebee7eb14e1fd7efe5958416644da

mod cost;
mod faults;
mod kinds;
mod servers;
mod support;
