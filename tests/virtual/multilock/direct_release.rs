//! Runs the multi-lock's release, and the script that continues it, directly.

use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{
    D, busy, granted, held, hold, holders, message, notes, queue, queue_dead, queued, release,
    release_without_counters, subscribed, tend,
};

#[tokio::test(start_paused = true)]
async fn a_release_frees_all_locks_and_publishes_for_redisson() {
    let mut desk = held(A);
    assert_eq!(release(&desk, A, "0"), "0");
    assert_eq!(desk.messages(), ["base a 0", "base b 0"]);
    assert_eq!(desk.keys(), "");
    // P6.
    assert_eq!(release(&desk, A, "0"), "-2");
    assert_eq!((desk.messages(), desk.keys()), (vec![], String::new()));
    // The number of subscribers.
    desk.subscribe("base a", 2);
    desk.subscribe("base b", 3);
    hold(&desk, "a", A, 900);
    hold(&desk, "b", A, 900);
    assert_eq!(release(&desk, A, "1"), "5");
    // Without the right to publish the release stands.
    let mut desk = held(A);
    desk.refuse(&["PUBLISH"]);
    assert_eq!(
        (release(&desk, A, "0"), desk.keys()),
        ("-1".into(), String::new())
    );
}

/// R12, R16.
#[tokio::test(start_paused = true)]
async fn a_release_frees_what_the_owner_holds() {
    for waits in [false, true] {
        let desk = busy("a", A);
        hold(&desk, "b", B, 900);
        if waits {
            queue(&desk, "b", &[C]);
        }
        assert_eq!(release(&desk, A, "0"), "-2");
        assert_eq!(desk.messages(), ["base a 0"]);
        assert_eq!(holders(&desk), ["{}".into(), format!("{{{B} 1}}")]);
        assert_eq!(queued(&desk)[1] != "[]", waits);
    }
    let desk = busy("b", A);
    desk.command(&["SET", "a", "x"]);
    assert_eq!(release(&desk, A, "0"), "-2");
    assert_eq!(
        (desk.messages(), desk.keys()),
        (vec!["base b 0".into()], "a = x, TTL -1".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_serves_the_queue_of_each_lock() {
    let mut desk = held(A);
    subscribed(&mut desk, &[("a", B), ("a", C), ("b", C), ("b", D)]);
    queue(&desk, "a", &[B, C]);
    queue(&desk, "b", &[&format!("{C}+"), D]);
    assert_eq!(release(&desk, A, "0"), "2");
    assert_eq!(
        desk.messages(),
        [
            granted(&desk, "a", B, desk.now()),
            message("a", C, "N", "1500"),
            message("b", C, "P", "0"),
            message("b", D, "P", "25")
        ]
    );
    assert_eq!(holders(&desk), [format!("{{{B} 1}}"), "{}".into()]);
    assert_eq!(queued(&desk), [format!("[{C}]"), format!("[{D}]")]);
    // Locks without counters are granted without a token.
    let mut desk = held(A);
    subscribed(&mut desk, &[("a", B)]);
    queue(&desk, "a", &[B]);
    assert_eq!(release_without_counters(&desk, A), "1");
    let now = desk.now();
    assert_eq!(
        desk.messages(),
        [
            message("a", B, "G", &format!("0 {now} 1500 -")),
            "base b 0".into()
        ]
    );
    // One message could not be sent.
    let mut desk = held(A);
    desk.refuse(&["PUBLISH"]);
    queue(&desk, "a", &[B]);
    assert_eq!(release(&desk, A, "0"), "-1");
    assert_eq!(holders(&desk), ["{}", "{}"]);
}

/// P3, L4.
#[tokio::test(start_paused = true)]
async fn giving_up_removes_the_entries_and_passes_the_watch_on() {
    for suffix in ["+", "+?"] {
        let entry = format!("{A}{suffix}");
        let state = |entries: &[&str]| {
            let mut desk = busy("a", B);
            subscribed(&mut desk, &[("a", C), ("b", C)]);
            queue(&desk, "a", entries);
            desk
        };
        let desk = state(&[&entry, C]);
        assert_eq!(release(&desk, A, "1"), "-2");
        let told = vec![message("a", C, "N", "900")];
        assert_eq!(
            (desk.messages(), queued(&desk)[0].clone()),
            (told, format!("[{C}]"))
        );
        // Behind another entry.
        let desk = state(&[C, &entry]);
        assert_eq!(release(&desk, A, "1"), "-2");
        assert_eq!(
            (desk.messages(), queued(&desk)[0].clone()),
            (vec![], format!("[{C}]"))
        );
        // Only if the request says so.
        let desk = state(&[&entry, C]);
        let before = desk.keys();
        assert_eq!(release(&desk, A, "0"), "-2");
        assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
        // The lock is free: the queue is served.
        let mut desk = Desk::new();
        subscribed(&mut desk, &[("b", C)]);
        queue(&desk, "b", &[&entry, C]);
        assert_eq!(release(&desk, A, "1"), "-2");
        assert_eq!(desk.messages(), [granted(&desk, "b", C, desk.now())]);
        assert_eq!(holders(&desk), ["{}".into(), format!("{{{C} 1}}")]);
    }
    // An owner without an entry serves nothing.
    let desk = Desk::new();
    queue(&desk, "a", &[C]);
    let before = desk.keys();
    assert_eq!(release(&desk, A, "1"), "-2");
    assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_last_entry_takes_the_notes_with_it() {
    let entry = format!("{A}+");
    for (entries, stay) in [(&[entry.as_str()][..], false), (&[&entry, C], true)] {
        let desk = busy("a", B);
        queue(&desk, "a", entries);
        notes(&desk, "a", &["turn", "1"]);
        assert_eq!(release(&desk, A, "1"), "-2");
        assert_eq!(desk.command(&["EXISTS", "wake a"]) == "1", stay);
    }
    // R16.
    let desk = busy("a", B);
    queue(&desk, "a", &[&entry]);
    desk.command(&["SET", "wake a", "x"]);
    assert_eq!(release(&desk, A, "1"), "-2");
    assert_eq!(desk.command(&["GET", "wake a"]), "x");
    let desk = held(A);
    desk.command(&["SET", "wake a", "x"]);
    assert_eq!(release(&desk, A, "1"), "0");
    assert_eq!(desk.keys(), "wake a = x, TTL -1");
}

/// P11.
#[tokio::test(start_paused = true)]
async fn a_queue_with_more_dead_processes_is_served_again() {
    // The other queue ends the run.
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut desk = held(A);
        subscribed(&mut desk, &[(second, B)]);
        queue_dead(&desk, first);
        queue(&desk, second, &[B]);
        assert_eq!(release(&desk, A, "0"), "[tend 0 1]");
        assert_eq!(tend(&desk), "-1");
        assert_eq!(queued(&desk), ["[]", "[]"]);

        let mut desk = Desk::new();
        subscribed(&mut desk, &[(second, B)]);
        queue_dead(&desk, first);
        queue(&desk, second, &[B]);
        assert_eq!(tend(&desk), "[tend 0 -1]");
        assert_eq!(tend(&desk), "-1");
        assert_eq!(queued(&desk), ["[]", "[]"]);
    }
}

#[tokio::test(start_paused = true)]
async fn tend_serves_the_queues_of_free_locks() {
    let mut desk = Desk::new();
    subscribed(&mut desk, &[("a", B), ("b", C)]);
    queue(&desk, "a", &[B]);
    queue(&desk, "b", &[C]);
    assert_eq!(tend(&desk), "-1");
    let now = desk.now();
    assert_eq!(
        desk.messages(),
        [granted(&desk, "a", B, now), granted(&desk, "b", C, now + 1)]
    );
    assert_eq!(holders(&desk), [format!("{{{B} 1}}"), format!("{{{C} 1}}")]);
    // A lock that is held stays as it is, and so does one without a queue.
    let mut desk = busy("a", D);
    subscribed(&mut desk, &[("a", B)]);
    queue(&desk, "a", &[B]);
    notes(&desk, "b", &["turn", "1"]);
    let before = desk.keys();
    assert_eq!(tend(&desk), "-1");
    assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
    // R16: a foreign key in the place of a queue does not stop the others.
    let mut desk = Desk::new();
    subscribed(&mut desk, &[("b", C)]);
    desk.command(&["SET", "line a", "x"]);
    queue(&desk, "b", &[C]);
    assert_eq!(tend(&desk), "-1");
    assert_eq!(holders(&desk), ["{}".into(), format!("{{{C} 1}}")]);
}
