//! P6 and P3 for every kind of hold: a reply is lost after its script ran. The client sends the request again, and both runs together take effect
//! once. What only one kind has (a downgrade, an adoption, an operation on permits) is tested with that kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stanchion::{AcquireError, AcquireOptions};
use stanchion_testkit::eventually;
use stanchion_tests::kinds::{Case, SOON, Target, kinds, served};
use stanchion_tests::{LostReply, World, assert_swept_later, lease, ms, secs, together};
use tokio::time::sleep;

/// Loses the replies to the next `count` scripts.
fn lose(world: &World, way: LostReply, count: usize) {
    let faults = world.faults();
    match way {
        LostReply::Closed => faults.lose_replies("EVALSHA", count),
        LostReply::Silent => faults.lose_replies_silently("EVALSHA", count),
    }
}

/// Runs `check` for each kind and each way to lose a reply, and asserts that nothing is left.
async fn each(check: impl AsyncFn(&Case, LostReply)) {
    for kind in kinds() {
        for way in LostReply::WAYS {
            let case = Case::warm(kind).await;
            check(&case, way).await;
            case.soon_at_rest().await;
        }
    }
}

/// The last fencing token that was minted on the server.
fn last_token(world: &World) -> u64 {
    let script = "local last = 0
        for _, key in ipairs(redis.call('KEYS', 'stanchion_fence:*')) do
            last = math.max(last, redis.call('GET', key))
        end
        return string.format('%.0f', last)";
    world.admin(&["EVAL", script, "0"]).parse().unwrap()
}

/// Asserts that the server counts each name as held `count` times. A semaphore has no such count.
fn assert_count(case: &Case, count: u32) {
    let script = "local count = 0
        for _, value in ipairs(redis.call('HVALS', KEYS[1])) do count = count + (tonumber(value) or 0) end
        return count";
    if matches!(case.theirs(), Target::Any(_)) {
        for name in case.names() {
            let counted = case.world.admin(&["EVAL", script, "1", name]);
            assert_eq!(counted, count.to_string(), "{}: {name}", case.label);
        }
    }
}

/// P6. Another run would count twice, and the release would leave the hold. A multi-lock sends up to three requests.
#[tokio::test(start_paused = true)]
async fn an_acquire_holds_once_and_a_release_frees_it() {
    each(async |case, way| {
        for tries in [false, true] {
            for lost in 1..=3 {
                lose(&case.world, way, lost);
                let held = if tries {
                    case.ours().try_acquire().await.unwrap().unwrap()
                } else {
                    case.ours().acquire().await.unwrap()
                };
                case.world.faults().clear();
                assert!(held.is_held() && case.is_held().await, "{}", case.label);
                assert_count(case, 1);
                if let Some(token) = held.fencing_token() {
                    let last = last_token(&case.world);
                    assert_eq!(token.get(), last, "{}: {way:?} {lost}", case.label);
                }
                lose(&case.world, way, 1);
                held.release().await.unwrap();
                case.world.quiet().await;
                assert!(!case.is_held().await, "{} {way:?} {lost}", case.label);
            }
        }
    })
    .await;
}

/// P6. A second run would count twice, so a release would be missing, or one too many.
#[tokio::test(start_paused = true)]
async fn a_re_entry_and_a_partial_release_count_once() {
    each(async |case, way| {
        for entry in [true, false] {
            let outer = case.ours().acquire().await.unwrap();
            if entry {
                lose(&case.world, way, 1);
            }
            let Some(inner) = outer.reenter().await else {
                case.world.faults().clear();
                return outer.release().await.unwrap();
            };
            assert_count(case, 2);
            if !entry {
                lose(&case.world, way, 1);
            }
            inner.release().await.unwrap();
            case.world.quiet().await;
            assert_count(case, 1);
            assert!(case.is_held().await, "{}: {way:?}, {entry}", case.label);
            outer.release().await.unwrap();
            case.soon_at_rest().await;
        }
    })
    .await;
}

/// P6, P10. The caller renews, and then the watchdog.
#[tokio::test(start_paused = true)]
async fn a_renewal_takes_effect() {
    each(async |case, way| {
        let held = case.ours().acquire().await.unwrap();
        let end = held.valid_until();
        sleep(SOON).await;
        lose(&case.world, way, 1);
        held.renew().await.unwrap();
        case.world.faults().clear();
        assert!(
            end.is_none() || held.valid_until() > end,
            "{}: {way:?}",
            case.label
        );
        held.release().await.unwrap();

        let brief = AcquireOptions::new().lease(lease(secs(3)));
        if let Some(held) = case.ours().acquire_with(brief).await {
            let held = held.unwrap();
            lose(&case.world, way, 1);
            sleep(secs(10)).await;
            assert!(held.is_held() && case.is_held().await, "{}", case.label);
            held.release().await.unwrap();
        }
    })
    .await;
}

/// A waiter that asserts for 3 s that it holds alone.
fn alone(target: Target, inside: &Arc<AtomicU32>) -> tokio::task::JoinHandle<()> {
    let inside = Arc::clone(inside);
    tokio::spawn(async move {
        let held = target.acquire().await.unwrap();
        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "P1");
        // The client has sent the request again by the end.
        sleep(secs(3)).await;
        assert!(held.is_held());
        inside.fetch_sub(1, Ordering::Relaxed);
        held.release().await.unwrap();
    })
}

/// P1, P6. The release frees the name or hands it to a waiter. The second run must not free the next holder.
#[tokio::test(start_paused = true)]
async fn a_release_grants_to_one_waiter() {
    each(async |case, way| {
        let ours: fn(&Case) -> Target = Case::rival_of_ours;
        for waiters in [[ours, ours], [ours, Case::theirs], [Case::theirs, ours]] {
            let held = case.ours().acquire().await.unwrap();
            let inside = Arc::default();
            let mut waiting = Vec::new();
            for waiter in waiters {
                waiting.push(alone(waiter(case), &inside));
                sleep(SOON).await;
            }
            case.world.quiet().await;
            lose(&case.world, way, 1);
            held.release().await.unwrap();
            let served = async {
                together(waiting).await;
            };
            // P4: long before a lease ends.
            let served = tokio::time::timeout(secs(20), served).await;
            assert!(served.is_ok(), "{}: {way:?}", case.label);
            case.soon_at_rest().await;
        }
    })
    .await;
}

/// P3, P6.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_dropped_guard_is_sent_until_it_is_answered() {
    each(async |case, way| {
        let held = case.ours().acquire().await.unwrap();
        lose(&case.world, way, 2);
        drop(held);
        case.soon_at_rest().await;
        assert!(!case.is_held().await);
    })
    .await;
}

/// P4, P6: a waiter that was queued twice, or that stayed queued, would block the next one.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_queued_once_and_leaves_once() {
    each(async |case, way| {
        for leaves in [false, true] {
            let held = case.theirs().acquire().await.unwrap();
            if !leaves {
                lose(&case.world, way, 1);
            }
            let first = served(case.ours());
            sleep(secs(4)).await;
            let second = served(case.rival_of_ours());
            sleep(SOON).await;
            case.world.quiet().await;
            if leaves {
                lose(&case.world, way, 1);
                first.abort();
                sleep(secs(4)).await;
            }
            case.world.faults().clear();
            let began = tokio::time::Instant::now();
            held.release().await.unwrap();
            if !leaves {
                first.await.unwrap();
            }
            second.await.unwrap();
            let took = began.elapsed();
            let limit = secs(1);
            assert!(took < limit, "{}: {way:?} {leaves}: {took:?}", case.label);
            case.soon_at_rest().await;
        }
    })
    .await;
}

/// P3, P9: each request runs and each reply is lost until long after the deadline. R2: no late request leaves anything, either.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_gives_up_leaves_nothing() {
    each(async |case, way| {
        for (lost, patience) in [(1, 50), (100, 300)] {
            lose(&case.world, way, lost);
            let patience = ms(patience);
            let outcome = case.ours().acquire_timeout(patience).await;
            match (way, outcome) {
                (LostReply::Silent, Err(error)) => assert_swept_later(&error),
                (LostReply::Closed, Err(AcquireError::Ambiguous { .. })) => {}
                (LostReply::Closed, Err(error)) => assert_swept_later(&error),
                // The resend was answered in time.
                (LostReply::Closed, Ok(held)) if lost == 1 => held.release().await.unwrap(),
                (_, Ok(_)) => panic!("{}: {way:?} {lost}", case.label),
            }
            case.world.faults().clear();
            case.soon_at_rest().await;
            sleep(secs(20)).await;
            case.soon_at_rest().await;
            assert!(!case.is_held().await);
        }
    })
    .await;
}

/// P3.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_leaves_nothing() {
    each(async |case, way| {
        let before = case.world.scripts_run();
        lose(&case.world, way, 1);
        let target = case.ours();
        let acquiring = tokio::spawn(async move { target.acquire().await.map(drop) });
        eventually("the script runs", || case.world.scripts_run() > before).await;
        acquiring.abort();
        case.soon_at_rest().await;
        assert!(!case.is_held().await);
    })
    .await;
}
