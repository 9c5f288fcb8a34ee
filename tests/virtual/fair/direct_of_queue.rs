//! Runs the functions of the fair lock's queue (`queue.lua`) through its scripts: dead and silent processes, calls, Redisson's waiters, and the
//! times at which processes poll. The numbers are those of `docs/protocol.md`.

use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{
    A2, A3, D, JAVA, abandon, attempt, busy, channel, deadline, grant, held, holds, in_ms, join,
    kept, lose, message, note, poll, poll_unheard, queued, release, stored, tend, waiting,
};

const JAVA2: &str = "eeeeeeee-0000-4000-8000-000000000000:2";

fn dead(count: usize) -> Vec<String> {
    let dead = |n| format!("00000000-0000-8000-8000-{n:012}:1");
    (0..count).map(dead).collect()
}

/// A queue of so many dead waiters, and others behind them.
fn behind_dead(desk: Desk, count: usize, others: &[&str]) -> Desk {
    let dead = dead(count);
    let owners: Vec<&str> = dead
        .iter()
        .map(String::as_str)
        .chain(others.iter().copied())
        .collect();
    let mut desk = waiting(desk, &owners);
    for owner in &dead {
        desk.subscribe(&channel(owner), 0);
    }
    desk
}

fn set_deadline(desk: &Desk, owner: &str, ms: u64) {
    desk.command(&["ZADD", "timeouts", &ms.to_string(), owner]);
}

fn deadline_of(desk: &Desk, owner: &str) -> String {
    desk.command(&["ZSCORE", "timeouts", owner])
}

fn notes(desk: &Desk) -> String {
    desk.command(&["ZRANGE", "wake", "0", "-1"])
}

/// The second watch: at most once in 1.5 s the newest waiter polls after a grant by message, too.
#[tokio::test(start_paused = true)]
async fn the_first_and_the_newest_waiter_watch_a_grant() {
    for (ago, watches) in [
        (None, true),
        (Some(1_500_000), true),
        (Some(1_499_999), false),
    ] {
        let desk = waiting(held(A, 9_000), &[B, C, D]);
        if let Some(ago) = ago {
            note(&desk, "watched", ago);
        }
        assert_eq!(release(&desk, A), "1");
        let mut told = vec![grant(&desk, B), message(C, "N", "1500")];
        if watches {
            told.push(message(D, "N", "1550"));
        }
        assert_eq!(desk.messages(), told, "{ago:?}");
        let watched = desk.command(&["ZSCORE", "wake", "watched"]);
        assert_eq!(watched == desk.now().to_string(), watches);
    }
    // The newest waiter is of the process of the first.
    let desk = waiting(held(C, 9_000), &[B, A, A2]);
    assert_eq!(release(&desk, C), "1");
    assert_eq!(desk.messages(), [grant(&desk, B), message(A, "N", "1500")]);
    assert_eq!(notes(&desk), "[]");
    // A whole lease is watched by the first waiter alone.
    let desk = waiting(Desk::new(), &[A, B, C]);
    assert_eq!(poll(&desk, A, "1"), desk.now().to_string());
    assert_eq!(desk.messages(), [message(B, "N", "5000")]);
}

/// F2.
#[tokio::test(start_paused = true)]
async fn a_grant_without_a_receiver_is_undone() {
    let mut desk = waiting(held(A, 9_000), &[B, C, D]);
    desk.subscribe(&channel(B), 0);
    assert_eq!(release(&desk, A), "1");
    let told = [grant(&desk, B), grant(&desk, C), message(D, "N", "1500")];
    assert_eq!(desk.messages(), told);
    let mut expected = vec![format!("fence = {}", desk.now())];
    expected.extend(kept(&desk, Some((C, 1_500)), &[(D, 3)]));
    expected[4] = format!("waiters = {C} 2 {D} 3, TTL 150000");
    assert_eq!(stored(&desk), expected);
    // All waiters of a dead process are removed, with one message. The last one leaves no key.
    let b2 = B.replace(":1", ":2");
    let mut desk = waiting(held(A, 9_000), &[B, &b2]);
    desk.subscribe(&channel(B), 0);
    note(&desk, "watched", 5);
    assert_eq!(release(&desk, A), "0");
    assert_eq!(desk.messages(), [grant(&desk, B)]);
    assert_eq!(stored(&desk), [format!("fence = {}", desk.now())]);
}

/// F2: a process that sent a request without a subscription in the last second finds the grant with its next request.
#[tokio::test(start_paused = true)]
async fn a_client_that_polls_is_granted_for_a_second() {
    for (ago, lives) in [(999_999, true), (1_000_000, false)] {
        let mut desk = waiting(held(A, 9_000), &[B]);
        desk.subscribe(&channel(B), 0);
        note(&desk, &B[..36], ago);
        assert_eq!(release(&desk, A), "0");
        assert_eq!(holds(&desk, B), lives);
        // In front of another waiter.
        let mut desk = waiting(held(C, 9_000), &[B, A]);
        desk.subscribe(&channel(B), 0);
        note(&desk, &B[..36], ago);
        let reply = poll(&desk, A, "2");
        let expected = if lives {
            busy(&desk, 15_000, 2, 1)
        } else {
            busy(&desk, 5_000, 2, 0)
        };
        assert_eq!(reply, expected);
        let first = if lives { &format!("{B} ") } else { "" };
        assert_eq!(queued(&desk), format!("[{first}{A}]"));
    }
}

/// F9.
#[tokio::test(start_paused = true)]
async fn a_refused_request_removes_dead_waiters_in_front() {
    for (count, ms, left) in [(1, 5_000, 0), (15, 5_000, 0), (16, 5_000, 0), (17, 25, 1)] {
        for holder_is_first in [false, true] {
            let desk = behind_dead(held(C, 9_000), count, &[A]);
            if holder_is_first {
                desk.command(&["ZADD", "waiters", "0", C]);
            }
            let arrival = count as u64 + 1;
            assert_eq!(
                poll(&desk, A, &arrival.to_string()),
                busy(&desk, ms, arrival, 0)
            );
            assert_eq!(desk.command(&["LLEN", "queue"]), (left + 1).to_string());
            assert_eq!(desk.command(&["ZCARD", "timeouts"]), (left + 1).to_string());
            let places = left + 1 + usize::from(holder_is_first);
            assert_eq!(desk.command(&["ZCARD", "waiters"]), places.to_string());
        }
    }
    // Without the right to count subscribers, each counts as alive.
    let mut desk = behind_dead(held(C, 9_000), 1, &[A]);
    desk.refuse(&["PUBSUB"]);
    assert_eq!(poll(&desk, A, "2"), busy(&desk, 15_000, 2, 1));
}

/// P11: a run removes 64 dead waiters. The newest waiter polls, in case the client that continues has died.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_unfinished_says_so() {
    for (count, is_done) in [(63, true), (64, false), (65, false)] {
        let desk = behind_dead(Desk::new(), count, &[B]);
        let reply = tend(&desk);
        let messages = desk.messages();
        let last = messages.last().unwrap();
        if is_done {
            assert_eq!((reply.as_str(), last), ("-1", &grant(&desk, B)));
        } else {
            assert_eq!(reply, "[tend 0 -1]");
            assert_eq!(last, &message(B, "N", "50"));
        }
        assert_eq!(holds(&desk, B), is_done);
        let left = if is_done { 0 } else { count - 64 + 1 };
        assert_eq!(desk.command(&["LLEN", "queue"]), left.to_string());
    }
    // The same for the other scripts.
    let desk = behind_dead(held(A, 9_000), 65, &[B]);
    assert_eq!(release(&desk, A), "[tend 0 0]");
    let desk = behind_dead(held(A, 9_000), 65, &[B]);
    assert_eq!(abandon(&desk, A), "[tend 0 0]");
    // While the lock is held, there is nothing to poll for.
    let desk = waiting(held(A, 9_000), &[B]);
    for n in 0..65 {
        let owner = format!("{}{n}", &JAVA[..37]);
        desk.command(&["LPUSH", "queue", &owner]);
        set_deadline(&desk, &owner, 5);
    }
    assert_eq!(tend(&desk), "[tend 0 -1]");
    assert_eq!(desk.messages(), [""; 0]);
}

/// F3, F8: a grant by message has ended unused.
#[tokio::test(start_paused = true)]
async fn a_grant_that_ends_unused_is_followed_by_a_call() {
    // The process polls, or a script that another client runs finds it.
    for polls in [true, false] {
        let b2 = B.replace(":1", ":2");
        let desk = waiting(Desk::new(), &[A, B, &b2, JAVA, C]);
        lose(&desk, A);
        if polls {
            assert!(poll(&desk, B, "2").starts_with("[-104 "));
        } else {
            assert_eq!(tend(&desk), "-1");
        }
        let mut told = vec![message(A, "P", "0"), "base:all:stanchion 0".to_owned()];
        if !polls {
            told.push(message(C, "N", "100"));
        }
        assert_eq!(desk.messages(), told);
        assert_eq!(desk.command(&["EXISTS", "job"]), "0");
        assert_eq!(desk.command(&["ZSCORE", "waiters", A]), "nil");
        let called = desk.command(&["ZSCORE", "wake", "called"]);
        assert_eq!(called, desk.now().to_string());
        assert_eq!(queued(&desk), format!("[{B} {b2} {JAVA} {C}]"));
    }
    // After a release there is no call: the lock was in use.
    let desk = waiting(held(D, 9_000), &[A, B]);
    lose(&desk, A);
    assert_eq!(release(&desk, D), "1");
    assert_eq!(desk.messages(), [message(A, "P", "0"), grant(&desk, B)]);
    assert_eq!(notes(&desk), "[]");
    // Nor while another client holds.
    let desk = waiting(held(D, 9_000), &[A, B]);
    lose(&desk, A);
    assert_eq!(poll(&desk, B, "2"), busy(&desk, 5_000, 2, 0));
    assert_eq!(desk.messages(), [message(A, "P", "0")]);
    assert_eq!(stored(&desk), kept(&desk, Some((D, 9_000)), &[(B, 2)]));
    // The holder that was granted by message has no place, either.
    let desk = waiting(held(A, 1_500), &[A, B]);
    lose(&desk, A);
    assert_eq!(tend(&desk), "-1");
    assert_eq!(desk.command(&["ZSCORE", "waiters", A]), "1");
    assert_eq!(desk.messages(), [""; 0]);
}

/// F3: no waiter is granted the lock for 100 ms after a call.
#[tokio::test(start_paused = true)]
async fn live_processes_take_their_places_again_after_a_call() {
    for (ago, left) in [(0, "100"), (40_000, "60"), (99_999, "1")] {
        let desk = waiting(Desk::new(), &[A, B]);
        note(&desk, "called", ago);
        let reply = poll(&desk, A, "1");
        assert_eq!(reply, busy(&desk, left.parse().unwrap(), 1, 0));
        assert_eq!(desk.messages(), [""; 0]);
        for run in [tend, |desk: &Desk| attempt(desk, D)] {
            run(&desk);
            assert_eq!(desk.messages(), [message(B, "N", left)]);
        }
        assert_eq!(desk.command(&["EXISTS", "job"]), "0");
        assert_eq!(queued(&desk), format!("[{A} {B}]"));
    }
    // Redisson's waiter has no process to call.
    let desk = waiting(Desk::new(), &[JAVA]);
    note(&desk, "called", 5);
    assert_eq!((tend(&desk), desk.messages()), ("-1".into(), vec![]));
    // A lock that is held is not waited for.
    let desk = waiting(held(C, 9_000), &[A]);
    note(&desk, "called", 5);
    assert_eq!(poll(&desk, A, "1"), busy(&desk, 5_000, 1, 0));
}

/// F3: for 10 s after a call a process that has not answered loses its places.
#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_answer_a_call_is_skipped() {
    for (answered, is_granted) in [(None, false), (Some(200_001), false), (Some(199_999), true)] {
        let desk = waiting(Desk::new(), &[B, C]);
        note(&desk, "called", 200_000);
        note(&desk, &C[..36], 100_000);
        if let Some(ago) = answered {
            note(&desk, &B[..36], ago);
        }
        assert_eq!(tend(&desk), "-1");
        let told = if is_granted {
            vec![grant(&desk, B), message(C, "N", "1500")]
        } else {
            vec![message(B, "P", "0"), grant(&desk, C)]
        };
        assert_eq!(desk.messages(), told, "{answered:?}");
        let rest = if is_granted { C } else { "" };
        assert_eq!(queued(&desk), format!("[{rest}]"));
        assert_eq!(desk.command(&["ZSCORE", "waiters", B]) != "nil", is_granted);
        assert_eq!(deadline_of(&desk, B), "nil");
    }
    let desk = waiting(Desk::new(), &[B]);
    note(&desk, "called", 10_000_001);
    assert_eq!(tend(&desk), "-1");
    assert!(holds(&desk, B));
}

/// F7: Redisson's waiters keep their places by their deadlines, and acquire for themselves.
#[tokio::test(start_paused = true)]
async fn a_waiter_of_redissons_at_the_head_is_woken() {
    for (before, after) in [(7_000, 7_000), (300_000, 300_000), (300_001, 300_000)] {
        let desk = waiting(held(A, 9_000), &[JAVA, B]);
        let (before, after) = (in_ms(&desk, before), in_ms(&desk, after));
        set_deadline(&desk, JAVA, before);
        assert_eq!(release(&desk, A), "0");
        assert_eq!(desk.messages(), [format!("base:{JAVA} 0")]);
        assert_eq!(deadline_of(&desk, JAVA), after.to_string());
        assert_eq!(queued(&desk), format!("[{JAVA} {B}]"));
        assert_eq!(desk.command(&["EXISTS", "job"]), "0");
    }
    // While the lock is held: the rest of the lease in addition.
    let desk = waiting(held(A, 9_000), &[JAVA, B]);
    assert_eq!(tend(&desk), "-1");
    assert_eq!(deadline_of(&desk, JAVA), in_ms(&desk, 309_000).to_string());
    assert_eq!(desk.messages(), [""; 0]);
    // A second of margin for the clock of its client.
    for (ago, lives) in [(999, true), (1_000, false)] {
        let desk = waiting(held(A, 9_000), &[JAVA, B]);
        set_deadline(&desk, JAVA, in_ms(&desk, 0) - ago);
        release(&desk, A);
        assert_eq!(holds(&desk, B), !lives);
        let told = if lives {
            format!("base:{JAVA} 0")
        } else {
            grant(&desk, B)
        };
        assert_eq!(desk.messages(), [told]);
        assert_eq!(deadline_of(&desk, JAVA) != "nil", lives);
    }
    // Without the right to publish.
    let mut desk = waiting(held(A, 9_000), &[JAVA]);
    desk.refuse(&["PUBLISH"]);
    assert_eq!(release(&desk, A), "-1");
}

/// F7: a deadline has time for each of Redisson's waiters, and is set again by each request.
#[tokio::test(start_paused = true)]
async fn a_deadline_has_time_for_redissons_waiters() {
    for holder_waits in [false, true] {
        let desk = waiting(held(C, 9_000), &[JAVA, JAVA2]);
        desk.command(&["ZREM", "waiters", JAVA2]);
        if holder_waits {
            desk.command(&["ZADD", "waiters", "0", C]);
        }
        let (reply, at) = (join(&desk, A), desk.now());
        assert_eq!(reply, format!("[-1004 {at} {at} 0 0 0  0 1]"));
        assert_eq!(deadline_of(&desk, A), deadline(&desk, 2).to_string());
        // A new waiter changes nothing for the waiters ahead.
        assert_eq!(deadline_of(&desk, JAVA), deadline(&desk, 0).to_string());
        set_deadline(&desk, A, 5);
        let reply = poll(&desk, A, &at.to_string());
        assert_eq!(reply, format!("[-1004 {at} {at} 0 0 0  0 1]"));
        assert_eq!(deadline_of(&desk, A), deadline(&desk, 2).to_string());
        assert_eq!(deadline_of(&desk, JAVA), in_ms(&desk, 309_000).to_string());
    }
    // A client of Redisson's holds.
    let desk = waiting(held(JAVA, 9_000), &[A]);
    let reply = format!("[-1004 {} 1 0 0 0  0 1]", desk.now());
    assert_eq!(poll(&desk, A, "1"), reply);
    assert_eq!(deadline_of(&desk, A), deadline(&desk, 0).to_string());
}

/// L4, L8, and the second watch.
#[tokio::test(start_paused = true)]
async fn the_reply_has_the_time_of_the_next_poll() {
    // The first waiter polls at the end of the lease, and at least every 5 s.
    for (ttl, ms) in [(900, 900), (5_000, 5_000), (5_001, 5_000)] {
        let desk = waiting(held(C, ttl), &[A]);
        assert_eq!(poll(&desk, A, "1"), busy(&desk, ms, 1, 0));
    }
    let desk = waiting(held(C, 900), &[A]);
    desk.command(&["PERSIST", "job"]);
    assert_eq!(poll(&desk, A, "1"), busy(&desk, 5_000, 1, 0));
    // Another waiter of the first one's process.
    let desk = waiting(held(C, 900), &[A, A2]);
    assert_eq!(poll(&desk, A2, "2"), busy(&desk, 900, 2, 0));
    // The newest waiter watches a grant by message. Its message may have been missed.
    for (ttl, ms, spread) in [(700, 750, 0), (1_500, 1_550, 0), (1_501, 15_000, 1)] {
        let desk = waiting(held(C, ttl), &[B, A]);
        assert_eq!(poll(&desk, A, "2"), busy(&desk, ms, 2, spread));
        // A new one does not.
        let desk = waiting(held(C, ttl), &[B]);
        let at = desk.now();
        assert_eq!(join(&desk, A), busy(&desk, 15_000, at, 1));
        // Nor one in the middle.
        let desk = waiting(held(C, ttl), &[B, A, D]);
        assert_eq!(poll(&desk, A, "2"), busy(&desk, 22_500, 2, 1));
    }
    // A process whose request has granted to another one watches that grant.
    let desk = waiting(Desk::new(), &[B, A]);
    assert_eq!(poll_unheard(&desk, A, "2"), busy(&desk, 1_550, 2, 0));
    assert_eq!(desk.messages(), [grant(&desk, B), message(A, "N", "1500")]);
    // Another waiter of this client holds.
    let desk = waiting(held(A3, 900), &[A]);
    let at = desk.now();
    assert_eq!(poll(&desk, A, "1"), format!("[-904 {at} 1 0 0 0 {A3} 0 0]"));
    assert_eq!(join(&desk, A2), busy(&desk, 900, at, 0));
}
