//! Helpers of the tests of jobs.

pub use crate::{ms, secs};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stanchion::embedded::Reply;
use stanchion::{Client, Job, Tick};
use stanchion_testkit::eventually_async;

use crate::World;

/// Runs each test on the engine in virtual time and on a real server.
#[macro_export]
macro_rules! on_both {
    ($($(#[$doc:meta])* async fn $name:ident($world:ident) $body:block)*) => {
        $(
            mod $name {
                use super::*;

                $(#[$doc])*
                async fn check($world: &$crate::World) $body

                #[tokio::test(start_paused = true)]
                async fn engine() {
                    check(&$crate::World::engine()).await;
                }

                #[tokio::test]
                async fn server() {
                    if let Some(world) = $crate::World::server(stringify!($name)) {
                        check(&world).await;
                    }
                }
            }
        )*
    };
}
/// The record of the job `nightly`.
pub const RECORD: &str = "stanchion_job_last:{nightly}";

/// The job `nightly`. Each client represents a machine.
pub fn nightly(client: &Client) -> Job {
    Job::new(client, "nightly").unwrap()
}

/// The server's clock.
pub fn server_time(world: &World) -> SystemTime {
    let text = match world {
        World::Engine(engine) => match engine.execute(&["TIME"]) {
            Reply::Array(parts) => parts
                .iter()
                .map(|part| match part {
                    Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
                    other => panic!("{other:?}"),
                })
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        },
        World::Server(server) => server
            .cli(&["TIME"])
            .as_array()
            .iter()
            .map(|part| part.as_text().to_owned())
            .collect(),
    };
    let number = |text: &str| text.parse::<u64>().unwrap();
    UNIX_EPOCH + secs(number(&text[0])) + Duration::from_micros(number(&text[1]))
}

/// The last whole minute of the server's clock.
pub fn this_minute(world: &World) -> Tick {
    Tick::rounded_down(server_time(world), secs(60)).unwrap()
}

pub fn after(tick: Tick, time: Duration) -> Tick {
    Tick::at(tick.time() + time).unwrap()
}

/// The TTL of `nightly` in milliseconds. Negative if the key is missing or has no TTL.
pub fn ttl(world: &World) -> i64 {
    world.admin(&["PTTL", "nightly"]).parse().unwrap()
}

pub fn field(world: &World, field: &str) -> String {
    world.admin(&["HGET", RECORD, field])
}

/// Waits until the record of the last run is the only key.
pub async fn only_the_record_is_left(world: &World) {
    eventually_async("only the record is left", async || {
        world.keys().iter().all(|key| key == RECORD)
    })
    .await;
}
