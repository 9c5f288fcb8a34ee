//! Tests semaphores on real servers: a restarted server, Redisson's messages, and a stalled executor.

use std::time::Duration;

use stanchion::{LostReason, ReleaseError};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::faults::*;
use stanchion_tests::permits::{CHANNEL, KINDS, Kind, LEASES, LEDGER, NAME, Seat, Seats, TOTAL};
use stanchion_tests::spawn_ok;
use tokio::task::JoinHandle;

async fn seats_of(server: &RedisServer, kind: Kind, lease: Duration) -> Seats {
    let lease = stanchion::Lease::new(lease).unwrap();
    kind.on(&connect(server.url()).await).lease(lease)
}

fn acquiring(seats: &Seats, permits: u32) -> JoinHandle<Seat> {
    let seats = seats.clone();
    spawn_ok(seats.acquire(permits))
}

async fn listening(server: &RedisServer) {
    eventually("a client subscribes", || server.subscribers(CHANNEL) > 0).await;
}

fn free(server: &RedisServer) -> Option<i64> {
    let reply = server.cli(&["EVAL", "return redis.call('GET', KEYS[1]) or ''", "1", NAME]);
    reply.as_text().parse().ok()
}

/// The number of held permits, as the server has it.
fn held(server: &RedisServer, kind: Kind) -> i64 {
    match kind {
        Kind::Plain => {
            let held = server.cli(&["HVALS", LEDGER]).as_texts();
            held.iter().map(|n| n.parse::<i64>().unwrap()).sum()
        }
        Kind::Leased => server.cli(&["ZCARD", LEASES]).as_int(),
    }
}

/// Waits until all permits are free and no other keys are left, long before a lease of [`LONG`] could end.
async fn at_rest(server: &RedisServer, permits: i64) {
    eventually(&format!("all {permits} permits are free"), || {
        let mut keys = server.keys();
        keys.retain(|key| {
            // On a busy machine a hold lasts until the client publishes its record, which outlives this wait.
            !key.starts_with("stanchion_once:")
                && !stanchion_tests::is_record(key)
                && ![TOTAL, Kind::Plain.wake(), Kind::Leased.wake()].contains(&key.as_str())
        });
        keys == [NAME] && free(server) == Some(permits)
    })
    .await;
}

#[tokio::test]
async fn holders_detect_a_restart_without_data_and_waiters_wait_for_new_permits() {
    for kind in KINDS {
        let Some(mut server) = server() else { return };
        let seats = seats_of(&server, kind, ms(900)).await;
        seats.init(2).await.unwrap();
        let seat = seats.acquire(2).await.unwrap();
        let waiter = acquiring(&seats_of(&server, kind, LONG).await, 2);
        listening(&server).await;
        server.restart();
        if let Seat::Leased(permit) = &seat {
            let reason = soon(LONG / 3, permit.lost()).await;
            assert!(matches!(reason, LostReason::Gone | LostReason::Expired));
        }
        eventually("the restarted server has no permits", || {
            free(&server).is_none()
        })
        .await;
        soon(LONG / 3, async { while seats.init(2).await.is_err() {} }).await;
        let next = soon(LONG / 3, waiter).await.unwrap();
        // P8: the old holder's release reports the loss and returns no permits.
        let error = seat.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
        assert_eq!((free(&server), held(&server, kind)), (Some(0), 2));
        next.release().await.unwrap();
        at_rest(&server, 2).await;
    }
}

#[tokio::test]
async fn semaphores_publish_redissons_messages() {
    let Some(server) = server() else { return };
    for kind in KINDS {
        let monitor = server.monitor();
        let seats = seats_of(&server, kind, LONG).await;
        seats.init(5).await.unwrap();
        let seat = seats.acquire(3).await.unwrap();
        seats.add(1).await.unwrap();
        seat.release().await.unwrap();
        seats.reduce(8).await.unwrap();
        seats.acquire_timeout(1, Duration::ZERO).await.unwrap_err();
        seats.add(1).await.unwrap();
        let published: Vec<String> = monitor
            .lines()
            .iter()
            .filter_map(|line| {
                line.split_once("] \"PUBLISH\" ")
                    .map(|(_, rest)| rest.to_owned())
            })
            .collect();
        // Messages of `init`, `add` and `release`. With less than one free permit no message is published.
        let expected = ["5", "3", "6"].map(|n| format!("\"{CHANNEL}\" \"{n}\""));
        assert_eq!(published, expected, "{kind:?}");
        server.flush();
    }
}

/// P10: the executor is blocked for 3 s, which is two leases.
#[test]
fn permits_survive_a_stalled_executor() {
    let Some(server) = server() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let seats = seats_of(&server, Kind::Leased, ms(1500)).await;
        seats.init(3).await.unwrap();
        let Seat::Leased(permit) = seats.acquire(3).await.unwrap() else {
            panic!("not a leased permit")
        };
        stall(ms(3000));
        assert!(permit.is_held());
        permit.release().await.unwrap();
        at_rest(&server, 3).await;
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "blocking the executor is the point"
)]
fn stall(length: Duration) {
    std::thread::sleep(length);
}
