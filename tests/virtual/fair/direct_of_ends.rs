//! Runs the fair lock's scripts that end a hold or a wait.

use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{
    A2, A3, D, JAVA, LIFE, abandon, busy, channel, grant, held, holds, in_ms, kept, message, note,
    queued, release, release_and_acquire, release_one_of, stored, waiting,
};

fn fence(desk: &Desk) -> String {
    format!("fence = {}", desk.now())
}

#[tokio::test(start_paused = true)]
async fn a_release_of_one_of_several_holds_keeps_the_others() {
    for (before, after) in [(60_000, 60_000), (1_000, 30_000)] {
        let desk = held(A, before);
        desk.command(&["HSET", "job", A, "3"]);
        // P6.
        for _ in 0..2 {
            assert_eq!(release_one_of(&desk, A, "3"), "0");
            assert_eq!(stored(&desk), [format!("job = {A} 2, TTL {after}")]);
        }
    }
    let desk = held(B, 9_000);
    let before = desk.keys();
    assert_eq!(release_one_of(&desk, A, "2"), "-2");
    assert_eq!(desk.keys(), before);
    let desk = Desk::new();
    assert_eq!(
        (release_one_of(&desk, A, "2"), desk.keys()),
        ("-2".into(), String::new())
    );
}

/// Without a queue, a release and a clean-up need neither the clock nor the functions for the queue.
#[tokio::test(start_paused = true)]
async fn without_a_queue_the_lock_is_free() {
    for end in [release, abandon] {
        for refused in [&[][..], &["TIME", "HRANDFIELD"]] {
            let mut desk = held(A, 9_000);
            desk.refuse(refused);
            assert_eq!((end(&desk, A), desk.keys()), ("0".into(), String::new()));
            assert_eq!((end(&desk, A), desk.keys()), ("-2".into(), String::new()));
            let mut desk = held(B, 9_000);
            desk.refuse(refused);
            let before = desk.keys();
            assert_eq!((end(&desk, A), desk.keys()), ("-2".into(), before));
        }
    }
}

/// F4: the grant lasts 1.5 s. The holder stays in `waiters` until it releases.
#[tokio::test(start_paused = true)]
async fn a_release_grants_to_the_head_of_the_queue() {
    for end in [release, abandon] {
        let desk = waiting(held(A, 9_000), &[B]);
        desk.command(&["ZADD", "waiters", "0", A]);
        assert_eq!(end(&desk, A), "1");
        assert_eq!(desk.messages(), [grant(&desk, B)]);
        let waiters = format!("waiters = {B} 1, TTL 150000");
        let lock = format!("job = {B} 1, TTL 1500");
        assert_eq!(stored(&desk), [fence(&desk), lock, waiters]);
        // P6.
        assert_eq!(end(&desk, A), "-2");
        assert_eq!((holds(&desk, B), desk.messages()), (true, vec![]));
        // The last one leaves no key.
        assert_eq!(end(&desk, B), "0");
        assert_eq!(
            (stored(&desk), desk.messages()),
            (vec![fence(&desk)], vec![])
        );
    }
}

/// The grant to a waiter of the same client is in the reply. That client knows when its other waiters poll.
#[tokio::test(start_paused = true)]
async fn a_grant_to_the_releasing_client_is_in_the_reply() {
    for (next, told) in [(A3, vec![]), (B, vec![message(B, "N", "1500")])] {
        let desk = waiting(held(A, 9_000), &[A2, next]);
        let us = desk.now();
        let reply = format!("[1 {us} G {A2} {us} {us} 1500 fence]");
        assert_eq!(release(&desk, A), reply);
        assert_eq!(desk.messages(), told);
        assert!(holds(&desk, A2));
        assert_eq!(queued(&desk), format!("[{next}]"));
    }
}

/// P3: the head gives up.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_passes_on_what_it_watched() {
    // While another client holds the lock, the next waiter polls when the lease ends, after 5 s at most.
    for (ttl, soon) in [(900, "900"), (9_000, "5000")] {
        let desk = waiting(held(C, ttl), &[A, B]);
        assert_eq!(abandon(&desk, A), "0");
        let mut told = vec![message(B, "N", soon)];
        assert_eq!(desk.messages(), told);
        assert_eq!(stored(&desk), kept(&desk, Some((C, ttl)), &[(B, 2)]));
        // The holder that was granted by message is in front.
        let desk = waiting(held(C, ttl), &[A, B]);
        desk.command(&["ZADD", "waiters", "0", C]);
        assert_eq!(abandon(&desk, A), "0");
        assert_eq!(desk.messages(), told);
        told.clear();
        // Other waiters watch nothing.
        let desk = waiting(held(C, ttl), &[A, B, D]);
        for owner in [D, B] {
            assert_eq!(abandon(&desk, owner), "0");
            told.clear();
        }
        assert_eq!(stored(&desk), kept(&desk, Some((C, ttl)), &[(A, 1)]));
    }
    let desk = waiting(held(C, 9_000), &[A, B, D]);
    assert_eq!(abandon(&desk, D), "0");
    assert_eq!(desk.messages(), [""; 0]);
    assert_eq!(
        stored(&desk),
        kept(&desk, Some((C, 9_000)), &[(A, 1), (B, 2)])
    );
    // The lock was free.
    let desk = waiting(Desk::new(), &[A, B]);
    assert_eq!(abandon(&desk, A), "1");
    assert_eq!(desk.messages(), [grant(&desk, B)]);
    // It was the only one.
    let desk = waiting(held(C, 9_000), &[A]);
    note(&desk, "watched", 5);
    assert_eq!(abandon(&desk, A), "0");
    assert_eq!(stored(&desk), kept(&desk, Some((C, 9_000)), &[]));
    // Its place had been removed.
    let desk = waiting(held(C, 9_000), &[B]);
    desk.command(&["ZADD", "waiters", "0", A]);
    assert_eq!(abandon(&desk, A), "-2");
    assert_eq!(stored(&desk), kept(&desk, Some((C, 9_000)), &[(B, 1)]));
}

/// R15: a queue that cannot be served does not change the release. The next waiter polls soon.
#[tokio::test(start_paused = true)]
async fn an_error_in_the_queue_does_not_undo_a_release() {
    for foreign in ["x", "9007199254740991"] {
        let desk = waiting(held(A, 9_000), &[B]);
        desk.command(&["SET", "fence", foreign]);
        assert_eq!(release(&desk, A), "-1");
        assert_eq!(desk.messages(), [message(B, "N", "500")]);
        let mut expected = vec![format!("fence = {foreign}")];
        expected.extend(kept(&desk, None, &[(B, 1)]));
        assert_eq!(stored(&desk), expected);
        // An owner that had nothing.
        assert_eq!(release(&desk, A), "-2");
    }
    // R9.
    let mut desk = waiting(held(A, 9_000), &[B, C]);
    desk.refuse(&["PEXPIRE"]);
    assert_eq!(release(&desk, A), "-1");
    assert_eq!(desk.command(&["EXISTS", "job"]), "0");
    // No waiter of stanchion's.
    let desk = waiting(held(A, 9_000), &[JAVA]);
    desk.command(&["ZADD", "waiters", "1", A]);
    assert_eq!(release(&desk, A), "0");
    assert_eq!(desk.messages(), [format!("base:{JAVA} 0")]);
}

#[tokio::test(start_paused = true)]
async fn a_release_and_an_acquire_are_one_request() {
    // No other waiter.
    let desk = held(A, 9_000);
    desk.command(&["ZADD", "waiters", "0", A]);
    let token = desk.now();
    assert_eq!(release_and_acquire(&desk, LIFE), format!("[0 {token}]"));
    let lock = format!("job = {A2} 1, TTL 30000");
    assert_eq!(stored(&desk), [fence(&desk), lock]);
    // The first owner holds nothing.
    let reply = release_and_acquire(&desk, LIFE);
    assert_eq!(reply, format!("[-2 {}]", token + 1));
    // Another process waits.
    let desk = waiting(held(A, 9_000), &[B]);
    let place = busy(&desk, 1_550, desk.now(), 0);
    assert_eq!(release_and_acquire(&desk, LIFE), format!("[0 {place}]"));
    assert_eq!(desk.messages(), [grant(&desk, B), message(A2, "N", "1500")]);
    assert!(holds(&desk, B));
    assert_eq!(queued(&desk), format!("[{A2}]"));
    // Another waiter of the same client is first.
    let desk = waiting(held(A, 9_000), &[A3, B]);
    let us = desk.now();
    let own = format!("[0 {us} G {A3} {us} {us} 1500 fence]");
    let place = format!("[-1554 {us} {us} 0 0 0  0 0]");
    let reply = release_and_acquire(&desk, LIFE);
    assert_eq!(reply, format!("[{own} {place}]"));
    assert!(holds(&desk, A3));
    assert_eq!(queued(&desk), format!("[{B} {A2}]"));
    let told = [message(B, "N", "1500"), message(A2, "N", "1550")];
    assert_eq!(desk.messages(), told);
}

/// P3, R15.
#[tokio::test(start_paused = true)]
async fn a_late_or_failed_acquire_does_not_undo_the_release() {
    let desk = waiting(held(A, 9_000), &[B]);
    desk.command(&["ZADD", "waiters", "0", A]);
    assert_eq!(release_and_acquire(&desk, 0), "[1 -1]");
    assert_eq!(desk.messages(), [grant(&desk, B)]);
    let lock = format!("job = {B} 1, TTL 1500");
    let waiters = format!("waiters = {B} 1, TTL 150000");
    assert_eq!(stored(&desk), [fence(&desk), lock, waiters]);
    // Of a client whose own waiter is next.
    let desk = waiting(held(A, 9_000), &[A3]);
    let us = desk.now();
    let own = format!("[1 {us} G {A3} {us} {us} 1500 fence]");
    assert_eq!(release_and_acquire(&desk, 0), format!("[{own} -1]"));
    let desk = waiting(held(A, 9_000), &[B]);
    desk.command(&["SET", "fence", "x"]);
    assert_eq!(release_and_acquire(&desk, LIFE), "[-1 nil]");
    assert_eq!(desk.command(&["EXISTS", "job"]), "0");
}

/// A waiter that gives up removes its own place, wherever it is.
#[tokio::test(start_paused = true)]
async fn a_waiter_gives_up_its_own_place() {
    for (index, owner) in [A, B, D, A2].into_iter().enumerate() {
        let mut desk = waiting(held(C, 9_000), &[A, B, D, A2]);
        for (n, it) in [A, B, D, A2].into_iter().enumerate() {
            let ends = in_ms(&desk, 600_000 + n as u64).to_string();
            desk.command(&["ZADD", "timeouts", &ends, it]);
        }
        desk.subscribe(&channel(A), 1);
        assert_eq!(abandon(&desk, owner), "0");
        let mut left = vec![A, B, D, A2];
        left.remove(index);
        assert_eq!(queued(&desk), format!("[{}]", left.join(" ")));
        let timeouts = desk.command(&["ZRANGE", "timeouts", "0", "-1"]);
        assert_eq!(timeouts, format!("[{}]", left.join(" ")));
    }
}
