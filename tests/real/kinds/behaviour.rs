//! What every kind of hold does: exclusion (P1), growing tokens (P2), no leftovers (P3), wake-ups (P4), errors (P8), deadlines (P9).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stanchion::{AcquireError, LostReason, Rejection};
use stanchion_testkit::eventually;
use stanchion_tests::kinds::{Case, Held, SOON, Target, served};
use stanchion_tests::{World, ms, secs, spawn_ok, together};

super::table! {
    a_hold_excludes_and_its_release_leaves_nothing,
    the_next_hold_has_a_larger_token,
    a_release_or_a_drop_wakes_a_waiter_of_any_process,
    a_timeout_leaves_nothing,
    a_re_entry_counts_and_the_last_release_frees,
    tasks_never_overlap,
    a_client_that_is_shut_down_acquires_nothing,
    without_memory_acquires_fail_and_holds_are_renewed_and_released,
}

/// P1, P3.
async fn a_hold_excludes_and_its_release_leaves_nothing(case: &Case) {
    for drops in [false, true] {
        let held = case.ours().acquire().await.unwrap();
        assert!(held.is_held());
        for rival in [case.rival_of_ours(), case.theirs()] {
            assert!(rival.try_acquire().await.unwrap().is_none());
        }
        if drops {
            drop(held);
        } else {
            held.release().await.unwrap();
            assert!(!case.is_held().await);
        }
        case.soon_at_rest().await;
        let tried = case.ours().try_acquire().await.unwrap();
        tried.unwrap().release().await.unwrap();
    }
    case.soon_at_rest().await;
    let report = case.clients[0].shutdown(secs(5)).await;
    assert_eq!(report.unfinished, 0);
}

/// P2.
async fn the_next_hold_has_a_larger_token(case: &Case) {
    let mut last = None;
    for target in [case.theirs(), case.rival_of_ours(), case.theirs()] {
        let held = target.acquire().await.unwrap();
        let token = held.fencing_token();
        assert!(token.is_none() || token > last);
        last = token;
        held.release().await.unwrap();
    }
}

/// P4: by a message, long before the next poll. P2: the token of the waiter is larger.
async fn a_release_or_a_drop_wakes_a_waiter_of_any_process(case: &Case) {
    let ours: fn(&Case) -> Target = Case::rival_of_ours;
    for waiter in [ours, Case::theirs] {
        for drops in [false, true] {
            let held = case.ours().acquire().await.unwrap();
            let token = held.fencing_token();
            let waiting = spawn_ok(waiter(case).acquire());
            eventually("the call waits", || {
                case.clients.iter().any(|client| client.waiters() > 0)
            })
            .await;
            case.world.quiet().await;
            assert!(!waiting.is_finished());
            let began = case.clients[0].now();
            if drops {
                drop(held);
            } else {
                held.release().await.unwrap();
            }
            let next = waiting.await.unwrap();
            let took = case.clients[0].now().since(began);
            assert!(took < case.world.limit(SOON), "{took:?}");
            assert!(next.fencing_token() >= token);
            next.release().await.unwrap();
            case.soon_at_rest().await;
        }
    }
}

/// P3, P9. A timeout of zero sends one request.
async fn a_timeout_leaves_nothing(case: &Case) {
    let held = case.ours().acquire().await.unwrap();
    for rival in [case.rival_of_ours(), case.theirs()] {
        for timeout in [Duration::ZERO, ms(100)] {
            match rival.acquire_timeout(timeout).await {
                // A lock is not granted by a message, so nothing is held.
                Err(AcquireError::TimedOut { free_by: None, .. }) => {}
                Err(AcquireError::TimedOut { .. }) if case.label != "lock" => {}
                // A server may need longer than that.
                Err(AcquireError::TimedOut { .. }) if case.is_on_server() => {}
                other => panic!("{}: {other:?}", case.label),
            }
            assert_eq!(case.clients[0].waiters() + case.clients[1].waiters(), 0);
        }
    }
    held.release().await.unwrap();
    // The client removes its queue entry in the background. A grant that precedes the removal is passed on.
    case.soon_at_rest().await;
    if !case.is_on_server() {
        let free = case.theirs().acquire_timeout(Duration::ZERO).await.unwrap();
        free.release().await.unwrap();
    }
    case.soon_at_rest().await;
}

/// P1, P4. A re-entry does not queue behind a waiter, and both guards have one token.
async fn a_re_entry_counts_and_the_last_release_frees(case: &Case) {
    for inner_first in [true, false] {
        let outer = case.ours().acquire().await.unwrap();
        let waiter = served(case.theirs());
        eventually("the call waits", || {
            case.clients.iter().any(|client| client.waiters() > 0)
        })
        .await;
        case.world.quiet().await;
        let Some(inner) = outer.reenter().await else {
            outer.release().await.unwrap();
            waiter.await.unwrap();
            return;
        };
        assert_eq!(inner.fencing_token(), outer.fencing_token());
        let (first, last) = if inner_first {
            (inner, outer)
        } else {
            (outer, inner)
        };
        first.release().await.unwrap();
        assert!(last.is_held());
        last.renew().await.unwrap();
        case.world.quiet().await;
        assert!(!waiter.is_finished());
        last.release().await.unwrap();
        waiter.await.unwrap();
        case.soon_at_rest().await;
    }
}

/// The share of a thousand that a hold takes. Holds that exclude each other take more than a thousand together.
fn share(case: &Case, ours: bool) -> u32 {
    match case.label {
        "read side" | "deferring read side" if ours => 1,
        "plain permit" | "leased permit" if ours => 500,
        _ => 1000,
    }
}

/// P1, P4.
async fn tasks_never_overlap(case: &Case) {
    let held = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|i| {
            let held = Arc::clone(&held);
            let (target, share) = match i % 4 {
                0 => (case.theirs(), share(case, false)),
                1 => (case.rival_of_ours(), share(case, false)),
                _ => (case.ours(), share(case, true)),
            };
            tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = target.acquire().await.unwrap();
                    let before = held.fetch_add(share, Ordering::SeqCst);
                    assert!(before + share <= 1000, "P1");
                    tokio::task::yield_now().await;
                    held.fetch_sub(share, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    together(tasks).await;
    case.soon_at_rest().await;
}

/// P5, P8. The work under the hold may still run, so the hold stays on the server until its lease ends.
async fn a_client_that_is_shut_down_acquires_nothing(case: &Case) {
    let held = case.ours().acquire().await.unwrap();
    let target = case.rival_of_ours();
    let waiter = tokio::spawn(async move { target.acquire().await.map(drop) });
    eventually("the call waits", || case.clients[0].waiters() > 0).await;
    case.world.quiet().await;
    let report = case.clients[0].shutdown(secs(5)).await;
    assert!(!report.abandoned.is_empty(), "{report:?}");
    for refused in [
        waiter.await.unwrap(),
        case.ours().acquire().await.map(drop),
        case.ours().try_acquire().await.map(drop),
    ] {
        assert!(
            matches!(refused, Err(AcquireError::Shutdown { .. })),
            "{}: {refused:?}",
            case.label
        );
    }
    if let Held::Any(guard) = &held {
        assert_eq!(guard.lost().await, LostReason::Shutdown);
        assert!(!held.is_held());
    }
    if !case.needs_both_clients() {
        assert!(case.is_held().await);
    }
}

/// P8, P10, R8.
async fn without_memory_acquires_fail_and_holds_are_renewed_and_released(case: &Case) {
    let refused = |outcome: Result<(), AcquireError>| match outcome {
        Err(AcquireError::Rejected {
            rejection: Rejection::OutOfMemory { .. },
            ..
        }) => {}
        other => panic!("{}: {other:?}", case.label),
    };
    let full = |on: bool| match &case.world {
        World::Engine(engine) if on => engine
            .faults()
            .out_of_memory(stanchion::embedded::Switch::On),
        World::Engine(engine) => engine.faults().clear(),
        server @ World::Server(_) => {
            let limit = if on { "1" } else { "0" };
            let _ = server.admin(&["CONFIG", "SET", "maxmemory", limit]);
        }
    };
    let held = case.ours().acquire().await.unwrap();
    full(true);
    held.renew().await.unwrap();
    if let Some(again) = held.reenter().await {
        again.release().await.unwrap();
    }
    case.world.quiet().await;
    let before = case.world.keys();
    assert!(case.rival_of_ours().acquire_timeout(SOON).await.is_err());
    case.world.quiet().await;
    assert_eq!(case.world.keys(), before, "no queue entry");
    held.release().await.unwrap();
    refused(case.ours().acquire().await.map(drop));
    refused(case.ours().try_acquire().await.map(drop));
    full(false);
    case.soon_at_rest().await;
    assert!(!case.is_held().await);

    // A waiter from before gets the hold that is dropped, or the reason why not.
    let held = case.ours().acquire().await.unwrap();
    let waiter = tokio::spawn(case.rival_of_ours().acquire());
    eventually("the call waits", || case.clients[0].waiters() > 0).await;
    case.world.quiet().await;
    full(true);
    drop(held);
    match waiter.await.unwrap() {
        Ok(next) => next.release().await.unwrap(),
        Err(error) => {
            let needs_no_memory = ["lock", "fair lock", "locks of one client"];
            assert!(!needs_no_memory.contains(&case.label), "{}", case.label);
            refused(Err(error));
        }
    }
    full(false);
    case.soon_at_rest().await;
}
