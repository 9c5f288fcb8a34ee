//! Runs the semaphores' scripts where a request for several permits has its turn, and where permits are kept for the queue.

use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{free, plain};
use super::direct_of_line::{
    D, acquire, in_ms, message, note, notes, queue, queued, release, stored, subscribe, tend,
    waiting,
};

const E: &str = "eeeeeeee-0000-8000-8000-000000000000:1";
const F: &str = "ffffffff-0000-8000-8000-000000000000:1";
const G: &str = "abababab-0000-8000-8000-000000000000:1";

fn after(desk: &Desk, ms: u64) -> String {
    (desk.now() + 1000 * ms).to_string()
}

/// One free permit, and a queue in which B wants two, and the others one each.
fn behind_b(others: &[&str]) -> Desk {
    let mut desk = plain(1);
    let one = others.iter().map(|it| format!("{it}=1"));
    let entries: Vec<String> = [format!("{B}=2")].into_iter().chain(one).collect();
    queue(&desk, &entries);
    subscribe(&mut desk, &[B]);
    subscribe(&mut desk, others);
    desk
}

/// The same while the turn of B goes on for `ms`.
fn in_turn(others: &[&str], ms: u64) -> Desk {
    let desk = behind_b(others);
    notes(
        &desk,
        &["waits", &format!("{B}=2"), "ends", &after(&desk, ms)],
    );
    desk
}

fn holds(desk: &Desk, owner: &str) -> bool {
    desk.command(&["HEXISTS", "held", owner]) == "1"
}

#[tokio::test(start_paused = true)]
async fn a_turn_begins_and_the_head_and_four_entries_watch_its_end() {
    let desk = behind_b(&[C, D, E, F, G]);
    let line = stored(&desk)[2].clone();
    let ends = after(&desk, 3_000);
    assert_eq!(tend(&desk), "-1");
    let told = [
        (C, "3025"),
        (D, "3050"),
        (E, "3075"),
        (F, "3100"),
        (B, "3000"),
    ];
    assert_eq!(desk.messages(), told.map(|(it, ms)| message(it, "N", ms)));
    let held = format!("held = {A} 1");
    let wake = format!("wake = waits {B}=2 ends {ends}, TTL 60000");
    assert_eq!(stored(&desk), ["free = 1", &held, &line, &wake]);
    // Once for each turn.
    assert_eq!(tend(&desk), "-1");
    assert_eq!(desk.messages(), [""; 0]);
    assert_eq!(stored(&desk), ["free = 1", &held, &line, &wake]);
    // Their polls find the end of the turn, too. Others poll at random.
    for (owner, arrival, wanted, reply, spread) in [
        (C, 2, "1", 3025, 0),
        (F, 5, "1", 3100, 0),
        (G, 6, "1", 45_000, 1),
        (B, 1, "2", 3000, 0),
    ] {
        let ask = format!("look {arrival} 0");
        assert_eq!(
            acquire(&desk, owner, wanted, &ask),
            format!("[-{} {} {arrival} 1 {spread} 0]", reply + 4, desk.now()),
        );
    }
    assert_eq!(desk.messages(), [""; 0]);
    assert_eq!(free(&desk), "1");
}

/// The reply to the request that begins a turn has its end, so its process gets no message.
#[tokio::test(start_paused = true)]
async fn a_watcher_whose_request_begins_the_turn_gets_no_message() {
    let desk = behind_b(&[C, D]);
    let reply = acquire(&desk, C, "1", "look 2 0");
    assert_eq!(reply, format!("[-3029 {} 2 1 0 0]", desk.now()));
    assert_eq!(
        desk.messages(),
        [message(D, "N", "3050"), message(B, "N", "3000")]
    );
    // The head itself.
    let desk = behind_b(&[C]);
    let reply = acquire(&desk, B, "2", "look 1 0");
    assert_eq!(reply, format!("[-3004 {} 1 1 0 0]", desk.now()));
    assert_eq!(desk.messages(), [message(C, "N", "3025")]);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_one_permit_has_no_turn() {
    let desk = waiting(plain(0), &[B, C]);
    let before = desk.keys();
    assert_eq!(tend(&desk), "-1");
    assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
}

/// L6. During a turn the free permits are kept for the head.
#[tokio::test(start_paused = true)]
async fn a_turn_keeps_the_free_permits() {
    for ask in ["try", "new", "look 9", "ask 9"] {
        let desk = in_turn(&[], 2_000);
        let reply = acquire(&desk, D, "1", ask);
        assert_eq!((free(&desk), holds(&desk, D)), ("1".into(), false));
        if ask == "try" {
            assert_eq!(reply, "-3");
            assert_eq!(queued(&desk), format!("[{B}=2]"));
        } else {
            let arrival = ask.split(' ').nth(1);
            let arrival = arrival.map_or_else(|| desk.now().to_string(), str::to_owned);
            let expected = format!("[-2029 {} {arrival} 1 0 0]", desk.now());
            assert_eq!(reply, expected, "{ask}");
            assert_eq!(
                desk.command(&["ZSCORE", "line", &format!("{D}=1")]),
                arrival
            );
        }
    }
    // The request of the head takes them when they suffice, and the turn goes on until then.
    let desk = in_turn(&[C], 2_000);
    assert_eq!(release(&desk, A), "1");
    assert!(holds(&desk, B) && !holds(&desk, C));
    assert_eq!(
        (free(&desk), queued(&desk)),
        ("0".into(), format!("[{C}=1]"))
    );
    let desk = in_turn(&[C], 2_000);
    desk.command(&["SET", "free", "2"]);
    assert_eq!(acquire(&desk, B, "2", "ask 1"), "0");
    assert_eq!(
        (free(&desk), queued(&desk)),
        ("0".into(), format!("[{C}=1]"))
    );
}

/// The turn of a client that polls, or whose subscription ends, goes on while its own request is served.
#[tokio::test(start_paused = true)]
async fn the_own_request_of_the_head_proves_that_it_lives() {
    for mut desk in [behind_b(&[C]), in_turn(&[C], 2_000)] {
        desk.subscribe(&super::direct::channel(B), 0);
        acquire(&desk, B, "2", "look 1");
        assert_eq!(queued(&desk), format!("[{B}=2 {C}=1]"));
        assert_eq!(free(&desk), "1");
    }
}

/// A dead process has no turn.
#[tokio::test(start_paused = true)]
async fn a_dead_head_is_removed_before_its_turn_and_during_it() {
    for mut desk in [behind_b(&[C]), in_turn(&[C], 2_000)] {
        desk.subscribe(&super::direct::channel(B), 0);
        assert_eq!(tend(&desk), "-1");
        assert_eq!((free(&desk), queued(&desk)), ("0".into(), "[]".into()));
        assert!(holds(&desk, C));
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_turn_a_request_rests_ten_times_as_long() {
    for (turn, next, rests) in [
        (None, "6000", 30_000),
        (Some("4000"), "8000", 40_000),
        (Some("200000"), "300000", 2_000_000),
    ] {
        let desk = in_turn(&[C, D], 0);
        if let Some(turn) = turn {
            desk.command(&["HSET", "wake", "turns", turn]);
        }
        assert_eq!(tend(&desk), "-1");
        // B moves to the end, and C is served.
        let told = [
            message(C, "P", "0"),
            message(D, "N", "500"),
            message(B, "N", "550"),
        ];
        assert_eq!(desk.messages(), told);
        assert_eq!(queued(&desk), format!("[{D}=1 {B}=2]"));
        let at = desk.now().to_string();
        assert_eq!(desk.command(&["ZSCORE", "line", &format!("{B}=2")]), at);
        assert_eq!((free(&desk), holds(&desk, C)), ("0".into(), true));
        for (name, value) in [
            ("waits", ""),
            ("turns", next),
            ("rests", &after(&desk, rests)),
        ] {
            assert_eq!(note(&desk, name), value);
        }
        let lives = (rests + 150_000).to_string();
        assert_eq!(desk.command(&["PTTL", "wake"]), lives);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_rests_holds_no_other_up() {
    let rest = |desk: &Desk, ms: u64| {
        notes(
            desk,
            &["waits", "", "turns", "6000", "rests", &after(desk, ms)],
        );
    };
    for ask in ["try", "new"] {
        // Every request in the queue rests.
        let desk = behind_b(&[]);
        queue(&desk, &[format!("{B}=2"), format!("{C}=3")]);
        rest(&desk, 5_000);
        assert_eq!(acquire(&desk, D, "1", ask), "0");
        assert_eq!(queued(&desk), format!("[{B}=2 {C}=3]"));
        assert_eq!((free(&desk), holds(&desk, D)), ("0".into(), true));
        assert_eq!(desk.messages(), [""; 0]);
        // A request with enough permits is in front of a new one.
        let desk = behind_b(&[C]);
        rest(&desk, 5_000);
        acquire(&desk, D, "1", ask);
        assert_eq!((holds(&desk, C), holds(&desk, D)), (true, false));
        let first = if ask == "try" { "" } else { &format!(" {D}=1") };
        assert_eq!(queued(&desk), format!("[{B}=2{first}]"));
    }
    // The next turn is longer.
    let desk = behind_b(&[]);
    rest(&desk, 0);
    tend(&desk);
    assert_eq!(desk.messages(), [message(B, "N", "6000")]);
    assert_eq!(note(&desk, "ends"), after(&desk, 6_000));
}

/// L6: `new` and `try` do not pass a head for which there are enough permits. A process that was notified does.
#[tokio::test(start_paused = true)]
async fn a_new_request_does_not_overtake() {
    for (ask, passes) in [
        ("ask 9", true),
        ("look 9", true),
        ("new", false),
        ("ask 9 0?", false),
    ] {
        let desk = waiting(plain(1), &[B]);
        let reply = acquire(&desk, D, "1", ask);
        assert_eq!(holds(&desk, D), passes, "{ask}: {reply}");
        assert_eq!(holds(&desk, B), !passes, "{ask}");
        assert_eq!(free(&desk), "0");
    }
    // The permits that the queue leaves are free for all.
    for ask in ["try", "new"] {
        let desk = waiting(plain(2), &[B]);
        assert_eq!(acquire(&desk, D, "1", ask), "0");
        assert!(holds(&desk, B) && holds(&desk, D), "{ask}");
        assert_eq!((free(&desk), queued(&desk)), ("0".into(), "[]".into()));
        // The other permits go to a waiter that needs them all.
        let desk = waiting(plain(1), &[B]);
        let reply = acquire(&desk, D, "1", ask);
        assert!(holds(&desk, B) && !holds(&desk, D), "{ask}");
        if ask == "try" {
            assert_eq!((reply.as_str(), queued(&desk)), ("-3", "[]".into()));
        }
        assert_eq!(free(&desk), "0");
    }
    // Behind a process that has died.
    let mut desk = waiting(plain(1), &[B]);
    desk.subscribe(&super::direct::channel(B), 0);
    assert_eq!(acquire(&desk, D, "1", "new"), "0");
    assert_eq!((free(&desk), queued(&desk)), ("0".into(), "[]".into()));
    assert!(holds(&desk, D) && !holds(&desk, B));
}

/// A request that takes a permit out of order leaves the rest of them to the queue.
#[tokio::test(start_paused = true)]
async fn a_request_that_takes_a_permit_serves_the_queue() {
    let desk = waiting(plain(2), &[B, C]);
    assert_eq!(acquire(&desk, C, "1", "ask 2"), "0");
    assert_eq!(desk.messages(), [message(B, "P", "0")]);
    let granted = format!("granted = {B} {}", in_ms(&desk, 500));
    let held = format!("held = {A} 1 {C} 1 {B} 1");
    assert_eq!(stored(&desk), ["free = 0", &granted, &held]);
}

/// The count of releases until the turn of Redisson's clients goes on, and no turn of theirs was unused.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_queue_leaves_the_notes() {
    let desk = plain(1);
    notes(&desk, &["turn", "0"]);
    assert_eq!(acquire(&desk, C, "1", "new"), "0");
    let held = format!("held = {A} 1 {C} 1");
    assert_eq!(
        stored(&desk),
        ["free = 0", &held, "wake = turn 0, TTL 60000"]
    );
}

/// R8: a server at maxmemory refuses the entry. The process polls.
#[tokio::test(start_paused = true)]
async fn at_maxmemory_a_refused_request_waits_without_an_entry() {
    let mut desk = plain(0);
    desk.fill(true);
    let before = desk.keys();
    assert_eq!(acquire(&desk, C, "1", "new"), "-3");
    assert_eq!(desk.keys(), before);
}
