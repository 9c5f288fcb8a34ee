//! Runs the scripts of semaphores that end when they are not used.

use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{
    IDS, channel, leased, leased_acquire_of, leased_release, leased_tend, plain, plain_acquire_of,
    plain_release,
};
use super::direct_of_line::{
    acquire, in_ms, message, notes, release, stored, subscribe, tend, waiting,
};

/// The TTL while a plain permit is held: ten years.
const HELD: &str = "315360000000";
const LIFE: u64 = 9_000_000;

/// Lets a semaphore end after a second without a use. `note`: the content of the idle key.
fn ending(desk: Desk, note: &str, ttl: &str) -> Desk {
    desk.command(&["SET", "idle", note]);
    for key in ["free", "idle"] {
        desk.command(&["PEXPIRE", key, ttl]);
    }
    desk
}

/// A holds the only permit.
fn ending_held() -> Desk {
    ending(plain(0), "1000 1 0", HELD)
}

fn unheld() -> Desk {
    let desk = ending(plain(1), "1000 1 0", "1000");
    desk.command(&["DEL", "held"]);
    desk
}

fn ended_leases() -> Desk {
    let desk = ending(leased(1), "1000", "1000");
    desk.command(&["DEL", "held"]);
    desk
}

fn free(count: u64, ttl: &str) -> String {
    format!("free = {count}, TTL {ttl}")
}

fn idle(note: &str, ttl: &str) -> String {
    format!("idle = {note}, TTL {ttl}")
}

#[tokio::test(start_paused = true)]
async fn a_missing_semaphore_is_made() {
    for queued in [false, true] {
        let desk = Desk::new();
        // Holders of a former semaphore of this name.
        desk.command(&["HSET", "held", A, "1", B, "2"]);
        if queued {
            notes(&desk, &["turn", "1"]);
        }
        assert_eq!(plain_acquire_of(&desk, A, "1", "new", LIFE, "1000 3"), "0");
        let kept = [
            free(2, HELD),
            format!("held = {A} 1"),
            idle("1000 3 0", HELD),
        ];
        assert_eq!(stored(&desk)[..3], kept);
        let desk = Desk::new();
        let ends = in_ms(&desk, 500).to_string();
        desk.command(&["ZADD", "held", &ends, IDS[0]]);
        let taken = leased_acquire_of(&desk, A, &IDS[..1], "new", LIFE, "1000 3");
        assert_eq!(taken, "0");
        let held = format!("held = {} {}, TTL 10000", IDS[0], in_ms(&desk, 9_000));
        assert_eq!(
            stored(&desk),
            [free(2, "10000"), held, idle("1000", "10000")]
        );
    }
    // Only a missing one.
    let desk = plain(2);
    notes(&desk, &["turn", "1"]);
    assert_eq!(plain_acquire_of(&desk, B, "1", "new", LIFE, "1000 5"), "0");
    let held = format!("held = {A} 1 {B} 1");
    assert_eq!(stored(&desk)[..2], ["free = 1", &held]);
    let desk = leased(2);
    notes(&desk, &["turn", "1"]);
    let taken = leased_acquire_of(&desk, B, &IDS[2..3], "new", LIFE, "1000 5");
    assert_eq!((taken, stored(&desk)[0].as_str()), ("0".into(), "free = 1"));
}

/// R16, R15: a foreign key in place of the idle key stops requests, and no release.
#[tokio::test(start_paused = true)]
async fn a_foreign_key_in_place_of_the_idle_key_stops_requests_only() {
    let foreign = |desk: Desk| {
        desk.command(&["RPUSH", "idle", "x"]);
        desk
    };
    for free in [0, 3] {
        let desk = foreign(plain(free));
        let before = desk.keys();
        assert!(acquire(&desk, C, "1", "new").starts_with("error WRONGTYPE"));
        assert_eq!(desk.keys(), before);
        let desk = foreign(leased(free));
        let before = desk.keys();
        let reply = leased_acquire_of(&desk, C, &IDS[2..], "new", LIFE, "");
        assert!(reply.starts_with("error WRONGTYPE"));
        assert_eq!(desk.keys(), before);
    }
    let desk = foreign(waiting(plain(0), &[B]));
    assert_eq!(release(&desk, A), "1");
    assert_eq!(desk.messages(), [message(B, "P", "0")]);
    let granted = format!("granted = {B} {}", in_ms(&desk, 500));
    let held = format!("held = {B} 1");
    assert_eq!(stored(&desk), ["free = 0", &granted, &held, "idle = x"]);
}

#[tokio::test(start_paused = true)]
async fn a_plain_permit_keeps_the_semaphore_while_it_is_held() {
    let desk = unheld();
    assert_eq!(acquire(&desk, A, "1", "new"), "0");
    let held = format!("held = {A} 1");
    let kept = [free(0, HELD), held, idle("1000 1 0", HELD)];
    assert_eq!(stored(&desk), kept);
    // The release of the last permit.
    assert_eq!(release(&desk, A), "0");
    assert_eq!(desk.messages(), ["base 1"]);
    assert_eq!(stored(&desk), [free(1, "1000"), idle("1000 1 0", "1000")]);
    // A grant.
    let desk = waiting(ending_held(), &[B]);
    assert_eq!(release(&desk, A), "1");
    let granted = format!("granted = {B} {}", in_ms(&desk, 500));
    let held = format!("held = {B} 1");
    let kept = [free(0, HELD), granted, held, idle("1000 1 0", HELD)];
    assert_eq!(stored(&desk), kept);
}

/// A grant that is undone or taken back is no use of the semaphore.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_undone_does_not_keep_the_semaphore() {
    let ended = [free(1, "1000"), idle("1000 1 0", "1000")];
    // The waiter has died.
    let mut desk = waiting(ending_held(), &[B]);
    desk.subscribe(&channel(B), 0);
    assert_eq!(release(&desk, A), "0");
    assert_eq!(stored(&desk), ended);
    // The grant was not confirmed, and the next waiter has died.
    let mut desk = waiting(ending_held(), &[B]);
    desk.subscribe(&channel(B), 0);
    desk.command(&["ZADD", "granted", "9", A]);
    assert_eq!(tend(&desk), "-1");
    assert_eq!(stored(&desk), ended);
    // The user has no right to take permits.
    let mut desk = unheld();
    desk.refuse(&["DECRBY"]);
    assert!(acquire(&desk, C, "1", "new").contains("NOPERM no right"));
    assert_eq!(stored(&desk), ended);
}

/// A waiter polls before the semaphore ends.
#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_the_semaphore() {
    for ask in ["new", "try"] {
        let waits = ask == "new";
        let desk = ending_held();
        let reply = acquire(&desk, C, "1", ask);
        let at = desk.now();
        let till = if waits { in_ms(&desk, 8_000) } else { 0 };
        if waits {
            assert_eq!(reply, format!("[-4004 {at} {at} 1 0 0]"));
        } else {
            assert_eq!(reply, "-3");
        }
        let note = format!("1000 1 {till}");
        let mut kept = vec![free(0, HELD), format!("held = {A} 1"), idle(&note, HELD)];
        if waits {
            kept.push(format!("line = {C}=1 {at}, TTL 22500"));
        }
        assert_eq!(stored(&desk), kept);
        // The last release leaves the waiter its time.
        let quits = if waits { "8000" } else { "1000" };
        plain_release(&desk, A, "1", "0");
        assert_eq!(desk.command(&["PTTL", "free"]), quits);
    }
    // L8: behind the head it does not poll at a random moment, either.
    let desk = waiting(ending_held(), &[B]);
    let (reply, at) = (acquire(&desk, C, "1", "new"), desk.now());
    assert_eq!(reply, format!("[-4004 {at} {at} 1 0 0]"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_keeps_the_semaphore_for_its_idle_time_more() {
    let desk = ended_leases();
    let taken = leased_acquire_of(&desk, A, &IDS[..1], "new", LIFE, "");
    assert_eq!(taken, "0");
    let held = format!("held = {} {}, TTL 10000", IDS[0], in_ms(&desk, 9_000));
    let kept = [free(0, "10000"), held, idle("1000", "10000")];
    assert_eq!(stored(&desk), kept);
    // A replay in a semaphore whose TTL is shorter.
    for key in ["free", "held", "idle"] {
        desk.command(&["PEXPIRE", key, "2000"]);
    }
    let taken = leased_acquire_of(&desk, A, &IDS[..1], "new", LIFE, "");
    assert_eq!((taken, stored(&desk)), ("0".into(), kept.into()));
    // A grant.
    let mut desk = waiting(ended_leases(), &[B]);
    subscribe(&mut desk, &[B]);
    assert_eq!(leased_tend(&desk, ""), "-1");
    for key in ["free", "held", "idle"] {
        assert_eq!(desk.command(&["PTTL", key]), "2500", "{key}");
    }
    // A semaphore that has a TTL of another program's.
    for waits in [false, true] {
        let desk = leased(1);
        desk.command(&["DEL", "held"]);
        desk.command(&["PEXPIRE", "free", "7000"]);
        if waits {
            notes(&desk, &["turn", "1"]);
        }
        let taken = leased_acquire_of(&desk, A, &IDS[..1], "new", LIFE, "");
        let held = format!("held = {} {}, TTL 7000", IDS[0], in_ms(&desk, 9_000));
        assert_eq!((taken, stored(&desk)[1].clone()), ("0".into(), held));
    }
}

/// A release of Redisson's does not record the use of the semaphore, so the relay's `tend` does.
#[tokio::test(start_paused = true)]
async fn tend_records_a_use() {
    for waits in [false, true] {
        // Redisson's client has returned the last permit.
        let desk = ending(plain(1), "1000 1 0", HELD);
        desk.command(&["DEL", "held"]);
        let desk = if waits { waiting(desk, &[B]) } else { desk };
        assert_eq!(tend(&desk), "-1");
        let ttl = if waits { HELD } else { "1000" };
        assert_eq!(desk.command(&["PTTL", "free"]), ttl);
        assert_eq!(desk.command(&["PTTL", "idle"]), ttl);
    }
    let desk = ended_leases();
    for key in ["free", "idle"] {
        desk.command(&["PEXPIRE", key, "10"]);
    }
    assert_eq!(leased_tend(&desk, ""), "-1");
    assert_eq!(stored(&desk), [free(1, "1000"), idle("1000", "1000")]);
}

/// A release of a lease does not shorten the TTL.
#[tokio::test(start_paused = true)]
async fn a_release_of_a_lease_leaves_the_ttl() {
    let desk = ending(leased(0), "1000", "6000");
    desk.command(&["PEXPIRE", "held", "6000"]);
    assert_eq!(leased_release(&desk, A, &IDS[..2], "0"), "0");
    assert_eq!(desk.messages(), ["base 2"]);
    assert_eq!(stored(&desk), [free(2, "6000"), idle("1000", "6000")]);
}
