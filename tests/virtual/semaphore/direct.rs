//! Runs the scripts directly, in states and with refusals that clients rarely cause: late requests, rights that are missing, a server at
//! maxmemory, and permits that belong to others. [`stanchion_tests::transcript`] describes the notation.

use stanchion_semaphore::scripts::{leased, plain, pool};
use stanchion_tests::transcript;

/// Runs cases of plain permits (`acquire OWNER PERMITS WORD …`, `release OWNER`, `hand_off` from A to A2, `tend RELAY`) and leased permits
/// (`take OWNER IDS WORD …`, `return OWNER IDS`, `pass` from `%0%1` to `%2%3`, `tend_leased RELAY`).
pub(super) fn check(text: &str) {
    let (all, alone) = (
        "free held line wake granted idle",
        "free held free free free free",
    );
    let (leases, reaped) = ("free held line wake idle", "free held line wake free idle");
    let acquire = "$1 $2 $until:now+9s $* base PUBLISH 8000 $made:''";
    let release = "$1 $permits:1 base PUBLISH $quits:0";
    let take = "$1 $2 9000 $until:now+9s $* 101 base PUBLISH 8000 $made:''";
    let pass = "%2%3 9000 $until:now+9s %0%1 base PUBLISH $yields:'' $hears:0";
    let hand_off = "A2 $until:now+9s A 1 base PUBLISH $yields:'' $hears:0";
    let sum = "local sum = redis.call('GET', KEYS[1]) + 0
        if redis.call('TYPE', KEYS[2]).ok == 'zset' then return sum + redis.call('ZCARD', KEYS[2]) end
        for _, count in ipairs(redis.call('HVALS', KEYS[2])) do sum = sum + count end
        return sum";
    let scripts = [
        ("acquire", plain::ACQUIRE.text(), all, acquire),
        ("release", plain::RELEASE.text(), all, release),
        ("release_alone", plain::RELEASE.text(), alone, release),
        (
            "hand_off",
            plain::HAND_OFF.text(),
            "free held line wake",
            hand_off,
        ),
        ("tend", pool::TEND.text(), all, "base PUBLISH $1"),
        ("take", leased::ACQUIRE.text(), leases, take),
        (
            "return",
            leased::RELEASE.text(),
            leases,
            "$1 $2 base PUBLISH $quits:0",
        ),
        ("pass", leased::HAND_OFF.text(), leases, pass),
        ("tend_leased", pool::TEND.text(), reaped, "base PUBLISH $1"),
        // The free permits and the held ones.
        ("permits", sum, "free held", ""),
    ];
    transcript::check(&scripts, text);
}

/// R8, R15.
#[test]
fn a_plain_permit_is_handed_over_or_nothing_changes() {
    check(
        "only the first run finds the old owner
        + free = 0; held = {A 1}
        > hand_off -> 0; held = {A2 1}
        > hand_off -> -2

        a late request
        + free = 0; held = {A 1}
        > hand_off until=now-1us -> -1

        fewer permits than none
        + free = -1; held = {A 1}
        > hand_off -> -3

        another request has its turn
        + free = 0; held = {A 1}; line = [B=2]; wake = {waits B=2, ends now+1us}
        > hand_off -> -3

        the semaphore was deleted
        + held = {A 1}
        > hand_off -> -3

        the turn is over
        + free = 0; held = {A 1}; line = [B=2]; wake = {waits B=2, ends now-1us}
        > hand_off -> 0; held = {A2 1}

        the request has left the queue
        + free = 0; held = {A 1}; wake = {waits B=2, ends now+9ms}
        > hand_off -> 0; held = {A2 1}

        no request has a turn
        + free = 0; held = {A 1}; line = [B=2]; wake = {waits , ends now+9ms}
        > hand_off -> 0; held = {A2 1}

        the server is at maxmemory
        + free = 0; held = {A 1}; full
        > hand_off -> 0; held = {A2 1}

        no right to set the owner: the permit is not lost
        + free = 0; held = {A 1}; refuse HSET
        > hand_off -> error NOPERM no right to HSET; free = 1; held is gone",
    );
}

/// P1, R15.
#[test]
fn leased_permits_are_handed_over_or_nothing_changes() {
    check(
        "only the first run finds the old ids
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]
        > pass -> 0; held = [%2@ms+9000ms %3@ms+9000ms]
        > pass -> -3

        the server is at maxmemory
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]; full
        > pass -> 0; held = [%2@ms+9000ms %3@ms+9000ms]

        a late request
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]
        > pass until=now-1us -> -1

        fewer permits than none
        + free = -1; held = [%0@ms+5000ms %1@ms+5000ms]
        > pass -> -3

        another request has its turn
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]; line = [B=2]; wake = {waits B=2, ends now+1us}
        > pass -> -3

        the first id is not held
        + free = 0; held = [%1@ms+5000ms]
        > pass -> -3

        the second id is not held
        + free = 0; held = [%0@ms+5000ms]
        > pass -> -3

        no right to add the new ids
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]; refuse ZADD
        > pass -> error NOPERM no right to ZADD

        no lease outlasts a semaphore that ends
        + free = 0 /6000; held = [%0@ms+5000ms %1@ms+5000ms] /6000; idle = 1000 /6000
        > pass -> 0; free = 0 /10000; held = [%2@ms+9000ms %3@ms+9000ms] /10000; idle = 1000 /10000",
    );
}

/// P4, P11. After a turn of hand-offs other processes come first, if any wait.
#[test]
fn a_permit_stays_in_its_process_until_others_wait() {
    let cases = "no other process waits
        > hand_off yields=@A -> 0; held = {A2 1}

        this process waits for several numbers of permits, and is the relay
        + line = [A=1 A2=2]; heard base=1
        > hand_off yields=@A hears=1 -> 0; held = {A2 1}

        another process waits behind it
        + line = [A=1 B=1]
        > hand_off yields=@A -> -3
        > hand_off yields=outside -> 0; held = {A2 1}

        nine entries may have others behind them
        + line = [A=1 A=2 A=3 A=4 A=5 A=6 A=7 A=8 A=9]
        > hand_off yields=@A -> -3

        permits of the other kind are waited for: their queue has a relay
        + heard base=1 base:stanchion=1
        > hand_off yields=@A -> -3
        > hand_off yields=outside -> 0; held = {A2 1}

        so does a relay beside this one
        + heard base=2 base:stanchion=2
        > hand_off yields=@A hears=1 -> -3

        a client of Redisson's waits
        + heard base=1
        > hand_off yields=@A -> -3
        > hand_off yields=outside -> -3
        > hand_off -> 0; held = {A2 1}

        no right to count subscribers
        + refuse PUBSUB
        > hand_off yields=@A -> -3
        > hand_off yields=outside -> -3";
    let on = |start: &str| {
        cases
            .replace("\n        +", &format!("\n        + {start};"))
            .replace(
                "waits\n        >",
                &format!("waits\n        + {start}\n        >"),
            )
    };
    check(&on("free = 0; held = {A 1}"));
    let leased = on("free = 0; held = [%0@ms+5000ms %1@ms+5000ms]");
    check(
        &leased
            .replace("> hand_off", "> pass")
            .replace("{A2 1}", "[%2@ms+9000ms %3@ms+9000ms]"),
    );
}

/// P3.
#[test]
fn a_late_request_changes_nothing() {
    for state in [
        "free = 0",
        "free = 3",
        "free = 0; line = [B=1]",
        "free = 3; line = [B=1]",
    ] {
        let text = "plain
            + held = {A 1}; @state
            > acquire A 1 new until=now-1us -> -1
            > acquire C 1 new until=now-1us -> -1

            leased
            + held = [%0@ms+5000ms %1@ms+5000ms]; @state
            > take A %1%2 ask until=now-1us -> -1
            > take C %1%2 ask until=now-1us -> -1";
        check(&text.replace("@state", state));
    }
}

/// P6, R3, R8.
#[test]
fn a_replay_takes_nothing_again() {
    check(
        "a plain permit; the owner confirms its grant
        + free = 5; held = {A 1}; granted = [A@9]
        > acquire A 1 ask -> 0; granted is gone

        without a queue
        + free = 3; held = {A 1}
        > acquire A 1 new -> 0
        > acquire B 2 new -> 0; free = 1; held = {A 1, B 2}

        with an entry
        + free = 5; held = {A 1}; granted = [A@9]; line = [A=1 B=1]
        > acquire A 1 ask -> 0; line = [B=1@2]; granted is gone

        leased permits
        + free = 5; held = [%0@ms+5000ms %1@ms+5000ms]
        > take A %0%1 ask -> 0; held = [%0@ms+9000ms %1@ms+9000ms]

        with an entry for leased permits
        + free = 5; held = [%0@ms+5000ms %1@ms+5000ms]; line = [A=2 B=2]
        > take A %0%1 ask -> 0; held = [%0@ms+9000ms %1@ms+9000ms]; line = [B=2@2]

        a longer lease stays
        + free = 3; held = [%0@ms+5000ms %1@ms+60000ms]
        > take A %0%1 new -> 0; held = [%0@ms+9000ms %1@ms+60000ms]

        a longer lease at maxmemory
        + free = 3; held = [%0@ms+5000ms %1@ms+60000ms]; full
        > take A %0%1 new -> 0; held = [%0@ms+9000ms %1@ms+60000ms]

        one of two leases was reaped: the request starts again
        + free = 1; held = [%0@ms+5000ms %1@ms+5000ms]
        > take A %1%2 new -> 0; free = 0; held = [%0@ms+5000ms %1@ms+9000ms %2@ms+9000ms]

        too few permits are free: the request keeps no permit of an earlier run
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]
        > take A %1%2 try -> -5004; free = 1; held = [%0@ms+5000ms]",
    );
}

/// P1: no permit is lost, and none is made.
#[test]
fn a_request_without_a_right_takes_and_returns_nothing() {
    for (notes, error) in [
        ("free = 3", "NOPERM"),
        ("free = 3; wake = {turn 1}", "ERR NOPERM"),
    ] {
        let text = "no right to take a permit
            + @notes; held = {A 1}; refuse DECRBY
            > acquire C 1 new -> error @error no right to DECRBY

            no right to set the owner
            + @notes; held = {A 1}; refuse HSET
            > acquire C 1 new -> error @error no right to HSET";
        check(&text.replace("@notes", notes).replace("@error", error));
    }
    check(
        "no right to add a lease
        + free = 3; held = [%0@ms+5000ms %1@ms+5000ms]; refuse ZADD
        > take C %2%3 new -> error NOPERM no right to ZADD

        no right to return a permit
        + free = 3; held = {A 1}; refuse INCRBY
        > release A -> error NOPERM no right to INCRBY",
    );
}

/// P6: the second run finds nothing.
#[test]
fn a_release_without_a_queue_publishes_for_redisson() {
    check(
        "no permit is free after the release
        + free = -1; held = {A 1}; heard base=3
        > release A -> 0; free = 0; held is gone
        > release A -> -2

        the number of free permits is the message
        + free = 4; held = {A 1}; heard base=3
        > release A -> 3; base: 5; free = 5; wake = {turn 0, until now+2ms} /3000; held is gone
        > release A -> -2

        no right to publish
        + free = 4; held = {A 1}; heard base=3; refuse PUBLISH
        > release A -> -1; free = 5; held is gone

        the same for leased permits
        + free = -1; held = [%0@ms+5000ms %1@ms+5000ms]; heard base=3
        > return A %0 -> 0; free = 0; held = [%1@ms+5000ms]

        one of two is not held; the other one is returned
        + free = 4; held = [%0@ms+5000ms %1@ms+5000ms]; heard base=3
        > return A %0 -> 3; base: 5; free = 5; held = [%1@ms+5000ms]; wake = {turn 0, until now+2ms} /3000
        > return A %0%1 -> -2; base: 06; free = 6; held is gone

        one of two is not held, and no client waits
        + free = 4; held = [%1@ms+5000ms]
        > return A %0%1 -> -2; base: 5; free = 5; held is gone

        no right to publish the number
        + free = 4; held = [%0@ms+5000ms %1@ms+5000ms]; heard base=3; refuse PUBLISH
        > return A %0 -> -1; free = 5; held = [%1@ms+5000ms]

        the semaphore was deleted, so nothing is held
        + held = {A 1}
        > release A -> -2; held is gone

        while the slot migrates, a release names the number and the ledger alone
        + free = 0; held = {A 1}; line = [B=1] /150000; heard B
        > release_alone A -> 0; base: 1; free = 1; held is gone",
    );
}
