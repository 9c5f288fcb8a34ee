//! P8 and P9 for every kind of hold: servers that refuse for now, that have lost the scripts, or whose clock steps.

use stanchion::embedded::Switch;
use stanchion::{AcquireError, ReleaseError, RenewError};
use stanchion_tests::kinds::{Case, SOON, kinds, served};
use stanchion_tests::{World, ms, secs};
use tokio::time::{Instant, sleep};

/// P8, P9. The error of an acquire that gives up names the refusal.
#[tokio::test(start_paused = true)]
async fn an_acquire_waits_for_a_server_that_is_loading_or_read_only() {
    type Refuse = fn(&World, Switch);
    let loading: Refuse = |w, s| w.faults().loading(s);
    let read_only: Refuse = |w, s| w.faults().read_only(s);
    for kind in kinds() {
        for (code, refuse) in [("LOADING", loading), ("READONLY", read_only)] {
            let case = Case::warm(kind).await;
            refuse(&case.world, Switch::On);
            let timeout = ms(300);
            let error = case.ours().acquire_timeout(timeout).await.err().unwrap();
            assert!(matches!(error, AcquireError::Unavailable { .. }), "{error}");
            assert!(error.to_string().contains(code), "{}: {error}", case.label);
            let waiting = served(case.ours());
            sleep(secs(2)).await;
            assert!(!waiting.is_finished());
            refuse(&case.world, Switch::Off);
            waiting.await.unwrap();
            case.soon_at_rest().await;
        }
    }
}

/// P8.
#[tokio::test(start_paused = true)]
async fn a_flushed_script_cache_is_filled_again_without_an_error() {
    for kind in kinds() {
        let case = Case::warm(kind).await;
        let flush = || case.world.faults().flush_scripts();
        for waiter in [None, Some(case.rival_of_ours()), Some(case.theirs())] {
            flush();
            let held = case.ours().acquire().await.unwrap();
            flush();
            if let Some(again) = held.reenter().await {
                flush();
                again.release().await.unwrap();
            }
            flush();
            held.renew().await.unwrap();
            flush();
            let waiter = waiter.map(served);
            sleep(SOON).await;
            flush();
            held.release().await.unwrap();
            if let Some(waiter) = waiter {
                waiter.await.unwrap();
            }
            flush();
            case.soon_at_rest().await;
        }
    }
}

/// P9. After a step forward the first request is late. After a step back none is. A release is never refused.
#[tokio::test(start_paused = true)]
async fn a_step_of_the_server_clock_costs_one_refusal() {
    for kind in kinds() {
        for (step, refusals) in [(3_600_000, 1), (-1_800_000, 0)] {
            let case = Case::warm(kind).await;
            let requests = async || {
                let before = case.world.scripts_run();
                let held = case.ours().acquire().await.unwrap();
                (held, case.world.scripts_run() - before)
            };
            let (held, usual) = requests().await;
            held.release().await.unwrap();
            case.world.faults().step_clock(step);
            let began = Instant::now();
            let (held, scripts) = requests().await;
            assert!(began.elapsed() < secs(1), "{}", case.label);
            // Each client of a multi-lock has its own clock.
            let clients = if case.needs_both_clients() { 2 } else { 1 };
            let expected = usual..=usual + refusals * clients;
            assert!(
                expected.contains(&scripts),
                "{} {step}: {scripts}",
                case.label
            );
            let before = case.world.scripts_run();
            held.release().await.unwrap();
            assert!(case.world.scripts_run() - before <= usual, "{}", case.label);
            case.soon_at_rest().await;
        }
    }
}

/// P1, P2, P4, P5. A step forward ends leases that end before the new time, and makes the requests of that moment late. A step back ends none.
#[tokio::test(start_paused = true)]
async fn a_step_of_the_server_clock_ends_the_leases_before_the_new_time_only() {
    for kind in kinds() {
        for step in [31_000, 10_000, -60_000] {
            let case = Case::warm(kind).await;
            let held = case.ours().acquire().await.unwrap();
            let token = held.fencing_token();
            if held.valid_until().is_none() {
                break;
            }
            let waiters = [served(case.rival_of_ours()), served(case.theirs())];
            sleep(SOON).await;
            case.world.quiet().await;
            case.world.faults().step_clock(step);
            if step > 30_000 {
                // By the client's clock the lease is still valid.
                assert!(held.is_held(), "{}", case.label);
                let renewed = held.renew().await;
                let is_lost = matches!(renewed, Err(RenewError::Lost(_)));
                // A permit can be renewed until another request takes it back.
                assert!(is_lost || case.label.starts_with("leased"), "{renewed:?}");
                let released = held.release().await;
                assert_eq!(matches!(released, Err(ReleaseError::Lost(_))), is_lost);
            } else {
                held.renew().await.unwrap();
                assert!(case.is_held().await, "{}", case.label);
                held.release().await.unwrap();
            }
            for waiter in waiters {
                let took = waiter.await.unwrap();
                assert!(took < secs(20), "{}: {took:?}", case.label);
            }
            let next = case.ours().acquire().await.unwrap();
            assert!(next.fencing_token() > token || token.is_none(), "P2");
            next.release().await.unwrap();
            case.soon_at_rest().await;
        }
    }
}
