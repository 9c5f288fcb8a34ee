//! Runs the multi-lock's acquire directly: in states that clients rarely cause, with rights that are missing, and on a server at maxmemory.

use stanchion_multilock::scripts::ACQUIRE;
use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{
    IN_TIME, KEYS, LATE, acquire, acquire_within, both, busy, granted, held, hold, holders, lines,
    message, queue, queue_dead, queued, subscribed,
};

/// P2, R5, R6.
#[tokio::test(start_paused = true)]
async fn free_locks_are_taken_together_with_one_token() {
    let desk = Desk::new();
    let now = desk.now();
    for (last, ahead) in [
        (String::new(), 0),
        ("2".to_owned(), 0),
        ((now - 1).to_string(), 0),
        (now.to_string(), 1),
        ((now + 9).to_string(), 10),
    ] {
        // Without and with a queue.
        for ask in ["new", "ask 1"] {
            let desk = Desk::new();
            if !last.is_empty() {
                desk.command(&["SET", "fence", &last]);
            }
            if ask != "new" {
                queue(&desk, "b", &[&format!("{A}+")]);
            }
            assert_eq!(acquire(&desk, A, ask), (now + ahead).to_string());
            assert_eq!(
                (desk.keys(), desk.messages()),
                (
                    lines([
                        format!("a = {A} 1, TTL 30000"),
                        format!("b = {A} 1, TTL 30000"),
                        format!("fence = {}, TTL -1", now + ahead),
                    ]),
                    vec![]
                )
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_token_is_above_that_of_every_counter() {
    let run = |desk: &Desk, counters: [&str; 2], fences: &[&str]| {
        let not_after = (desk.now() + IN_TIME).to_string();
        let keys = [&KEYS[..6], fences].concat();
        let args = [
            A, "30000", &not_after, "2", "PUBLISH", "new", "base a", "base b",
        ];
        desk.run((ACQUIRE.text(), &keys, &[&args[..], &counters].concat()))
    };
    let desk = Desk::new();
    let last = (desk.now() + 9).to_string();
    desk.command(&["SET", "fence 1", &last]);
    desk.command(&["SET", "fence 2", "7"]);
    let token = (desk.now() + 10).to_string();
    assert_eq!(run(&desk, ["1", "2"], &["fence 1", "fence 2"]), token);
    for fence in ["fence 1", "fence 2"] {
        assert_eq!(desk.command(&["GET", fence]), token);
    }
    // Locks without counters have no token.
    let desk = Desk::new();
    assert_eq!(run(&desk, ["0", "0"], &[]), "0");
    assert_eq!(holders(&desk), both(A));
}

/// R17.
#[tokio::test(start_paused = true)]
async fn a_fence_that_is_no_token_is_an_error_and_changes_nothing() {
    for last in ["x", "1.5", "9007199254740991"] {
        for queues in [false, true] {
            let desk = Desk::new();
            desk.command(&["SET", "fence", last]);
            if queues {
                queue(&desk, "a", &[C]);
            }
            let before = desk.keys();
            assert!(acquire(&desk, A, "ask 1").starts_with("error WRONGTYPE"));
            assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
        }
    }
}

/// P6, R3.
#[tokio::test(start_paused = true)]
async fn a_replay_of_an_acquire_never_shortens_a_lease() {
    let desk = held(A);
    hold(&desk, "b", A, 900);
    let token = acquire(&desk, A, "new");
    assert_eq!(token, desk.now().to_string());
    assert_eq!(
        desk.keys(),
        lines([
            format!("a = {A} 1, TTL 50000"),
            format!("b = {A} 1, TTL 30000"),
            format!("fence = {token}, TTL -1"),
        ])
    );
}

/// P3.
#[tokio::test(start_paused = true)]
async fn a_late_acquire_takes_nothing_and_is_not_queued() {
    for state in [Desk::new, || busy("b", B)] {
        for entries in [&[][..], &[C]] {
            let desk = state();
            queue(&desk, "a", entries);
            let before = desk.keys();
            for ask in ["new", "ask", "look"] {
                assert_eq!(acquire_within(&desk, A, ask, LATE), "-1");
            }
            assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_has_one_entry_in_the_queue_of_a_busy_lock() {
    for (lock, index) in [("a", 1), ("b", 2)] {
        let desk = busy(lock, B);
        let now = desk.now();
        assert_eq!(acquire(&desk, A, "try"), format!("[-904 {now} {index}]"));
        assert_eq!(
            acquire(&desk, A, "new"),
            format!("[-904 {now} {index} {now} 0 0 0]")
        );
        let entry = format!("line {lock} = {A}+ {now}, TTL 22500");
        let mut expected = [format!("{lock} = {B} 1, TTL 900"), entry];
        expected.sort();
        assert_eq!((desk.keys(), desk.messages()), (lines(expected), vec![]));
        // A process whose entry was removed keeps its order.
        desk.command(&["DEL", &format!("line {lock}")]);
        assert_eq!(
            acquire(&desk, A, "look 7"),
            format!("[-904 {now} {index} 7 0 0 0]")
        );
    }
    // Of several busy locks the first; a lock without a TTL is polled every 5 s.
    let desk = held(B);
    desk.command(&["PERSIST", "a"]);
    assert_eq!(acquire(&desk, A, "try"), format!("[-3 {} 1]", desk.now()));
    assert!(acquire(&desk, A, "new").starts_with("[-5004 "));
    assert_eq!(queued(&desk), [format!("[{A}+]"), "[]".into()]);
}

/// L6.
#[tokio::test(start_paused = true)]
async fn a_new_request_does_not_overtake_a_queue() {
    for (lock, index) in [("a", 1), ("b", 2)] {
        let polls = format!("{A}+?");
        for (ask, entries, takes) in [
            ("new", &[C][..], false),
            ("ask 7", &[C], true),
            ("look 7", &[C], true),
            ("try", &[C], true),
            ("ask 7 0 ?", &[C, &polls], false),
            ("ask 7 0 ?", &[&polls, C], true),
            ("look 7 0 ?", &[C, &polls], true),
        ] {
            let mut desk = Desk::new();
            subscribed(&mut desk, &[(lock, C)]);
            queue(&desk, lock, entries);
            let reply = acquire(&desk, A, ask);
            assert_eq!(holders(&desk) == both(A), takes, "{ask}: {reply}");
            if !takes {
                let now = desk.now();
                let refused = if ask == "new" {
                    format!("[-54 {now} {index} {now} 0 0 1]")
                } else {
                    format!("[-54 {now} {index} 7 0 0 0]")
                };
                assert_eq!(reply, refused);
                assert_eq!(holders(&desk), ["{}", "{}"]);
            }
        }
    }
}

/// L4: the next process in the queue of each lock polls when the lease ends.
#[tokio::test(start_paused = true)]
async fn the_queues_of_taken_locks_are_told_when_the_lease_ends() {
    let entry = format!("{A}+");
    let mut desk = Desk::new();
    subscribed(&mut desk, &[("a", B), ("b", C)]);
    queue(&desk, "a", &[&entry, B]);
    queue(&desk, "b", &[C, &entry]);
    let token = acquire(&desk, A, "ask 1");
    assert_eq!(
        desk.messages(),
        [message("a", B, "N", "30000"), message("b", C, "N", "30000")]
    );
    assert_eq!(
        desk.keys(),
        lines([
            format!("a = {A} 1, TTL 30000"),
            format!("b = {A} 1, TTL 30000"),
            format!("fence = {token}, TTL -1"),
            format!("line a = {B} 2, TTL 150000"),
            format!("line b = {C} 1, TTL 150000"),
        ])
    );
    // L3: the poll found a silent holder of the lock in whose queue it waited.
    let mut desk = Desk::new();
    subscribed(&mut desk, &[("a", B), ("b", C)]);
    queue(&desk, "a", &[&entry, B]);
    queue(&desk, "b", &[C]);
    acquire(&desk, A, "look 1");
    assert_eq!(
        desk.messages(),
        [message("a", B, "P", "0"), message("b", C, "N", "30000")]
    );
    assert_eq!(queued(&desk), ["[]".into(), format!("[{C}]")]);
    // A replay: the lock was held before.
    let desk = held(A);
    queue(&desk, "a", &[&entry, B]);
    acquire(&desk, A, "ask 1");
    assert_eq!(
        (desk.messages(), queued(&desk)),
        (vec![], [format!("[{B}]"), "[]".into()])
    );
    // A try changes no queue.
    let desk = Desk::new();
    queue(&desk, "a", &[B]);
    acquire(&desk, A, "try");
    assert_eq!(
        (desk.messages(), queued(&desk)),
        (vec![], [format!("[{B}]"), "[]".into()])
    );
}

/// R12.
#[tokio::test(start_paused = true)]
async fn a_refused_request_releases_what_its_owner_has() {
    for ask in ["try", "new", "ask 7"] {
        let mut desk = busy("b", B);
        hold(&desk, "a", A, 9_000);
        subscribed(&mut desk, &[("a", C)]);
        queue(&desk, "a", &[C]);
        let reply = acquire(&desk, A, ask);
        assert!(reply.starts_with(&format!("[-904 {} 2", desk.now())));
        assert_eq!(
            desk.messages(),
            [granted(&desk, "a", C, desk.now())],
            "{ask}"
        );
        assert_eq!(holders(&desk), [format!("{{{C} 1}}"), format!("{{{B} 1}}")]);
        let entry = if ask == "try" {
            "[]".to_owned()
        } else {
            format!("[{A}+]")
        };
        assert_eq!(queued(&desk), ["[]".into(), entry]);
        // Without a queue it is announced to Redisson's clients.
        let desk = busy("a", B);
        hold(&desk, "b", A, 9_000);
        acquire(&desk, A, ask);
        assert_eq!(desk.messages(), ["base b 0"]);
        assert_eq!(holders(&desk), [format!("{{{B} 1}}"), "{}".into()]);
    }
    // P11: more dead processes are in the queue of that lock. A late request releases, too.
    for (ask, life, reply) in [
        ("try", IN_TIME, "[-904 "),
        ("ask 7", IN_TIME, "[-904 "),
        ("ask 7", LATE, "-1]"),
    ] {
        let desk = busy("b", B);
        hold(&desk, "a", A, 9_000);
        queue_dead(&desk, "a");
        let got = acquire_within(&desk, A, ask, life);
        assert!(got.starts_with(&format!("[tend 0 {reply}")), "{got}");
    }
}

/// P4: the process was notified of a free lock, and another one is busy.
#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_use_its_turn_passes_it_on() {
    for (ask, passes) in [
        ("ask 7", true),
        ("ask", true),
        ("ask 7", true),
        ("new 7", true),
        ("new", false),
        ("try", false),
    ] {
        let mut desk = busy("a", B);
        subscribed(&mut desk, &[("b", C)]);
        queue(&desk, "b", &[C]);
        acquire(&desk, A, ask);
        let told = if passes {
            vec![granted(&desk, "b", C, desk.now())]
        } else {
            vec![]
        };
        assert_eq!(desk.messages(), told, "{ask}");
        assert_eq!(queued(&desk)[1] == "[]", passes);
    }
    // Its entry there is removed, too.
    let entry = format!("{A}+");
    let mut desk = busy("b", B);
    subscribed(&mut desk, &[("a", C)]);
    queue(&desk, "a", &[&entry, C]);
    acquire(&desk, A, "ask 7");
    assert_eq!(desk.messages(), [granted(&desk, "a", C, desk.now())]);
    assert_eq!(queued(&desk), ["[]".into(), format!("[{entry}]")]);
    // Without other entries nothing is published.
    let desk = busy("b", B);
    queue(&desk, "a", &[&entry]);
    acquire(&desk, A, "ask 7");
    assert_eq!(
        (desk.messages(), queued(&desk)),
        (vec![], ["[]".into(), format!("[{entry}]")])
    );
    // L4: the next process in the queue of another lock that is held must poll.
    for (entries, told) in [([entry.as_str(), C], true), ([C, entry.as_str()], false)] {
        let mut desk = held(B);
        subscribed(&mut desk, &[("b", C)]);
        queue(&desk, "b", &entries);
        acquire(&desk, A, "look 1");
        let expected = if told {
            vec![message("b", C, "N", "50000")]
        } else {
            vec![]
        };
        assert_eq!(desk.messages(), expected);
        assert_eq!(queued(&desk), [format!("[{entry}]"), format!("[{C}]")]);
    }
}

/// R8: a multi-lock of one lock. With several, the removal of other entries comes first, and passes.
#[tokio::test(start_paused = true)]
async fn at_maxmemory_a_process_waits_without_an_entry() {
    let mut desk = busy("b", B);
    desk.fill(true);
    let before = desk.keys();
    let not_after = (desk.now() + IN_TIME).to_string();
    let keys = ["b", "line b", "wake b", "fence"];
    let args = [A, "30000", &not_after, "1", "PUBLISH", "new", "base b", "1"];
    let reply = desk.run((ACQUIRE.text(), &keys, &args));
    assert_eq!(reply, format!("[-904 {} 1]", desk.now()));
    assert_eq!(desk.keys(), before);
}

/// R9.
#[tokio::test(start_paused = true)]
async fn without_a_right_an_acquire_takes_nothing() {
    for right in ["PEXPIRE", "HSET"] {
        let mut desk = Desk::new();
        desk.refuse(&[right]);
        assert!(acquire(&desk, A, "new").starts_with("error NOPERM"));
        assert_eq!(holders(&desk), ["{}", "{}"]);
        let told: &[&str] = if right == "HSET" { &[] } else { &["base a 0"] };
        assert_eq!(desk.messages(), told);
        // With a queue.
        let mut desk = Desk::new();
        desk.refuse(&[right]);
        queue(&desk, "b", &[&format!("{A}+")]);
        assert!(acquire(&desk, A, "ask 1").starts_with("error NOPERM"));
        assert_eq!(holders(&desk), ["{}", "{}"]);
    }
    // The first lock has a longer lease, so that only the second fails: both are released.
    let mut desk = busy("b", A);
    hold(&desk, "a", A, 60_000);
    desk.refuse(&["PEXPIRE"]);
    assert!(acquire(&desk, A, "new").starts_with("error NOPERM"));
    assert_eq!(holders(&desk), ["{}", "{}"]);
    assert_eq!(desk.messages(), ["base a 0", "base b 0"]);
    // No queue without a TTL.
    let mut desk = busy("b", B);
    desk.refuse(&["PEXPIRE"]);
    let before = desk.keys();
    assert!(acquire(&desk, A, "new").starts_with("error NOPERM"));
    assert_eq!(desk.keys(), before);
}

/// R16.
#[tokio::test(start_paused = true)]
async fn a_read_write_lock_among_the_locks_is_an_error() {
    let desk = busy("a", A);
    desk.command(&["HSET", "b", "mode", "read", B, "1"]);
    let before = desk.keys();
    for ask in ["new", "ask 1", "try"] {
        assert!(acquire(&desk, A, ask).starts_with("error WRONGTYPE"));
    }
    assert_eq!(desk.keys(), before);
    let desk = Desk::new();
    desk.command(&["SET", "b", "x"]);
    assert!(acquire(&desk, A, "new").starts_with("error WRONGTYPE"));
    assert_eq!(desk.keys(), "b = x, TTL -1");
}
