//! P3, R1 and R2 for every kind of hold: a request that is executed long after its caller gave up, or after its undo, takes and frees nothing.

use stanchion_testkit::eventually;
use stanchion_tests::kinds::{Case, SOON, kinds, served};
use stanchion_tests::{assert_swept_later, manual, secs};
use tokio::time::sleep;

/// P3. The request is written now, and runs at the thaw. While another client holds, a late request would join the queue instead.
#[tokio::test(start_paused = true)]
async fn a_request_that_outlives_its_caller_takes_nothing() {
    for kind in kinds() {
        for held in [false, true] {
            for tries in [false, true] {
                let case = Case::warm(kind).await;
                let held = match held {
                    true => Some(case.theirs().acquire().await.unwrap()),
                    false => None,
                };
                let faults = case.world.faults();
                let frozen = held.is_some().then_some("ours");
                faults.freeze(frozen);
                if tries {
                    let target = case.ours();
                    let trying = tokio::time::timeout(SOON, target.try_acquire());
                    assert!(trying.await.is_err(), "{}", case.label);
                } else {
                    let error = case.ours().acquire_timeout(SOON).await;
                    assert_swept_later(&error.err().unwrap());
                }
                sleep(secs(20)).await;
                let before = case.world.keys();
                faults.thaw(frozen);
                // The request has run by now.
                assert_eq!(case.world.keys(), before, "{}", case.label);
                case.world.quiet().await;
                if let Some(held) = held {
                    assert!(held.is_held());
                    let next = served(case.theirs());
                    sleep(SOON).await;
                    held.release().await.unwrap();
                    let took = next.await.unwrap();
                    // A multi-lock of both clients waits until the other one has reconnected.
                    assert!(took < secs(5), "{}: {took:?}", case.label);
                }
                case.soon_at_rest().await;
                assert!(!case.is_held().await);
            }
        }
    }
}

/// P3. The request is on its way while its undo runs on another connection, and the server still accepts it.
#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_undo_takes_nothing() {
    for kind in kinds() {
        let case = Case::warm(kind).await;
        let faults = case.world.faults();
        faults.hold_requests("EVALSHA", 1);
        let target = case.ours();
        assert!(
            tokio::time::timeout(SOON, target.acquire()).await.is_err(),
            "{}",
            case.label
        );
        let before = case.world.scripts_run();
        // The client closes the connection after 1 s. The request is valid for 2 s.
        eventually("the undo runs", || case.world.scripts_run() > before).await;
        faults.deliver();
        case.soon_at_rest().await;
        sleep(secs(10)).await;
        case.soon_at_rest().await;
        assert!(!case.is_held().await, "{}", case.label);
    }
}

/// R1, P5. The holder is cut off until its lease has ended and another client holds. Its renewal, re-entry and release run after that.
#[tokio::test(start_paused = true)]
async fn late_requests_of_a_former_holder_change_nothing() {
    for kind in kinds() {
        for call in ["renew", "reenter", "release", "drop"] {
            let case = Case::warm(kind).await;
            let options = manual(secs(3));
            let held = match case.ours().acquire_with(options).await {
                Some(held) if !case.needs_both_clients() => held.unwrap(),
                _ => break,
            };
            let faults = case.world.faults();
            faults.freeze(Some("ours"));
            let calling = tokio::spawn(async move {
                match call {
                    "renew" => drop(held.renew().await),
                    "reenter" => drop(held.reenter().await),
                    "release" => drop(held.release().await),
                    _ => drop(held),
                }
            });
            let next = case.theirs().acquire().await.unwrap();
            faults.thaw(Some("ours"));
            calling.await.unwrap();
            sleep(secs(5)).await;
            case.world.quiet().await;
            assert!(next.is_held(), "{}: {call}", case.label);
            next.renew().await.unwrap();
            assert!(case.is_held().await, "{}: {call}", case.label);
            next.release().await.unwrap();
            case.soon_at_rest().await;
        }
    }
}
