//! Runs the multi-lock's scripts directly: in states that clients rarely cause, with rights that are missing, and on a server at maxmemory.
//! [`stanchion_tests::transcript`] describes the notation.

use stanchion_multilock::scripts::{ACQUIRE, HAND_OFF, RELEASE, TEND};
use stanchion_tests::transcript;

/// Runs cases of the locks `a` and `b`: `acquire OWNER WORD`, `release OWNER`, `tend`, and `hand_off` from A to A2. Both locks have one
/// counter, none (`_plain`), or one each (`_each`). `acquire_one` acquires `b` alone.
pub(super) fn check(text: &str) {
    let (one, plain, each) = (
        "a b line.a line.b wake.a wake.b fence",
        "a b line.a line.b wake.a wake.b",
        "a b line.a line.b wake.a wake.b fence.a fence.b",
    );
    let [acquire, acquire_plain, acquire_each] = ["1 1", "0 0", "1 2"]
        .map(|counters| format!("$1 30000 $until:now+9s 2 PUBLISH $* base.a base.b {counters}"));
    let [release, release_plain] =
        ["1 1", "0 0"].map(|counters| format!("$1 PUBLISH 2 $quits:0 base.a base.b {counters}"));
    let scripts = [
        ("acquire", ACQUIRE.text(), one, &*acquire),
        ("acquire_plain", ACQUIRE.text(), plain, &acquire_plain),
        ("acquire_each", ACQUIRE.text(), each, &acquire_each),
        (
            "acquire_one",
            ACQUIRE.text(),
            "b line.b wake.b fence",
            "$1 30000 $until:now+9s 1 PUBLISH $* base.b 1",
        ),
        ("release", RELEASE.text(), one, &release),
        ("release_plain", RELEASE.text(), plain, &release_plain),
        (
            "hand_off",
            HAND_OFF.text(),
            one,
            "A2 30000 $until:now+9s 2 PUBLISH A base.a base.b 1 1",
        ),
        ("tend", TEND.text(), one, "PUBLISH 2 base.a base.b 1 1"),
    ];
    transcript::check(&scripts, text);
}

/// P2, R5, R6.
#[test]
fn free_locks_are_taken_together_with_one_token() {
    check(
        "no counter
        > acquire A new -> now; a = {A 1} /30000; b = {A 1} /30000; fence = now

        an old counter
        + fence = 2
        > acquire A new -> now; a = {A 1} /30000; b = {A 1} /30000; fence = now

        the last token is from a moment ago
        + fence = now-1us
        > acquire A new -> now; a = {A 1} /30000; b = {A 1} /30000; fence = now

        from this moment
        + fence = now
        > acquire A new -> now+1us; a = {A 1} /30000; b = {A 1} /30000; fence = now+1us

        from a clock that was ahead
        + fence = now+9us
        > acquire A new -> now+10us; a = {A 1} /30000; b = {A 1} /30000; fence = now+10us

        with a queue
        + fence = 2; line.b = [A+] /150000
        > acquire A ask 1 -> now; a = {A 1} /30000; b = {A 1} /30000; fence = now; line.b is gone

        with a queue, and a counter that is ahead
        + fence = now+9us; line.b = [A+] /150000
        > acquire A ask 1 -> now+10us; a = {A 1} /30000; b = {A 1} /30000; fence = now+10us; line.b is gone

        the token is above that of every counter
        + fence.a = now+9us; fence.b = 7
        > acquire_each A new -> now+10us; a = {A 1} /30000; b = {A 1} /30000; fence.a = now+10us; fence.b = now+10us

        locks without counters have no token
        > acquire_plain A new -> 0; a = {A 1} /30000; b = {A 1} /30000

        P6, R3: a replay never shortens a lease
        + a = {A 1} /50000; b = {A 1} /900
        > acquire A new -> now; b = {A 1} /30000; fence = now",
    );
}

/// R16, R17.
#[test]
fn a_foreign_value_is_an_error_and_changes_nothing() {
    for last in ["x", "1.5", "9007199254740991"] {
        let text = "a counter that is no token
            + fence = @last
            > acquire A ask 1 -> @error

            with a queue
            + fence = @last; line.a = [C] /150000
            > acquire A ask 1 -> @error

            a hand-off
            + fence = @last; a = {A 1} /50000; b = {A 1} /50000
            > hand_off -> @error; a = {A 1} /30000; b = {A 1} /30000";
        let error =
            "error WRONGTYPE the fencing counter fence is not a whole number below 2^53 - 1";
        check(&text.replace("@last", last).replace("@error", error));
    }
    check(
        "a read-write lock among the locks
        + a = {A 1} /900; b = {mode read, B 1}
        > acquire A new -> error WRONGTYPE the name of lock 2 is in use as a read-write lock
        > acquire A ask 1 -> error WRONGTYPE the name of lock 2 is in use as a read-write lock
        > acquire A try -> error WRONGTYPE the name of lock 2 is in use as a read-write lock

        a string
        + b = x
        > acquire A new -> error WRONGTYPE Operation against a key holding the wrong kind of value",
    );
}

/// P3.
#[test]
fn a_late_request_takes_nothing_and_is_not_queued() {
    for state in ["b = {B 1} /900", "wake.b = {turn 1}"] {
        for line in ["", "; line.a = [C] /150000"] {
            let text = "late
                + @state@line
                > acquire A new until=now-1us -> -1
                > acquire A ask until=now-1us -> -1
                > acquire A look until=now-1us -> -1
                > hand_off until=now-1us -> -1";
            check(&text.replace("@state", state).replace("@line", line));
        }
    }
    check(
        "no key
        > acquire A new until=now-1us -> -1

        the old owner holds
        + a = {A 1} /50000; b = {A 1} /50000
        > hand_off until=now-1us -> -1

        the new owner holds
        + a = {A2 1} /50000; b = {A2 1} /50000
        > hand_off until=now-1us -> -1",
    );
}

#[test]
fn a_refused_request_has_one_entry_in_the_queue_of_a_busy_lock() {
    check(
        "the first lock; a process whose entry was removed keeps its order
        + a = {B 1} /900
        > acquire A try -> [-904 now 1]
        > acquire A new -> [-904 now 1 now 0 0 0]; line.a = [A+@now] /22500
        + DEL line.a
        > acquire A look 7 -> [-904 now 1 7 0 0 0]; base.a:all:stanchion: 0; base.b:all:stanchion: 0;
            line.a = [A+@7] /22500; wake.a = {called now} /60000; wake.b = {called now} /60000

        the second lock
        + b = {B 1} /900
        > acquire A try -> [-904 now 2]
        > acquire A new -> [-904 now 2 now 0 0 0]; line.b = [A+@now] /22500
        + DEL line.b
        > acquire A look 7 -> [-904 now 2 7 0 0 0]; base.a:all:stanchion: 0; base.b:all:stanchion: 0;
            line.b = [A+@7] /22500; wake.a = {called now} /60000; wake.b = {called now} /60000

        of several busy locks the first; a lock without a TTL is polled every 5 s
        + a = {B 1}; b = {B 1} /50000
        > acquire A try -> [-3 now 1]
        > acquire A new -> [-5004 now 1 now 0 0 0]; line.a = [A+@now] /22500

        R8: a multi-lock of one lock at maxmemory. With several, the removal of other entries comes first, and passes
        + b = {B 1} /900; full
        > acquire_one A new -> [-904 now 1]",
    );
}

/// L6.
#[test]
fn a_new_request_does_not_overtake_a_queue() {
    for (name, index) in [("a", "1"), ("b", "2")] {
        let text = "a new request
            + heard base.@name:@C; line.@name = [C] /150000
            > acquire A new -> [-15004 now @index now 0 1 0]; line.@name = [C A+@now] /150000

            after a message
            + heard base.@name:@C; line.@name = [C] /150000
            > acquire A ask 7 -> now; base.@name:C: N C 30000; a = {A 1} /30000; b = {A 1} /30000; fence = now

            a poll
            + heard base.@name:@C; line.@name = [C] /150000
            > acquire A look 7 -> now; base.@name:C: N C 30000; base.a:all:stanchion: 0; base.b:all:stanchion: 0;
                a = {A 1} /30000; b = {A 1} /30000; fence = now; wake.a = {called now} /60000;
                wake.b = {called now} /60000

            a try changes no queue
            + heard base.@name:@C; line.@name = [C] /150000
            > acquire A try -> now; a = {A 1} /30000; b = {A 1} /30000; fence = now

            a client that polls and is not the head
            + heard base.@name:@C; line.@name = [C A+?] /150000
            > acquire A ask 7 0 ? -> [-54 now @index 7 0 0 0]; wake.@name = {A now} /60000
            > acquire A look 7 0 ? -> now; base.@name:C: P C 0; a = {A 1} /30000; b = {A 1} /30000; fence = now;
                line.@name is gone; wake.@name is gone

            a client that polls and is the head
            + heard base.@name:@C; line.@name = [A+? C] /150000
            > acquire A ask 7 0 ? -> now; base.@name:C: N C 30000; a = {A 1} /30000; b = {A 1} /30000; fence = now;
                line.@name = [C@2] /150000";
        check(&text.replace("@name", name).replace("@index", index));
    }
}

/// L3, L4: the next process in the queue of each lock polls when the lease ends.
#[test]
fn the_queues_of_taken_locks_are_told_when_the_lease_ends() {
    check(
        "after a message
        + heard base.a:@B base.b:@C; line.a = [A+ B] /150000; line.b = [C A+] /150000
        > acquire A ask 1 -> now; base.a:B: N B 30000; base.b:C: N C 30000; a = {A 1} /30000; b = {A 1} /30000;
            fence = now; line.a = [B@2] /150000; line.b = [C] /150000

        the poll found a silent holder of the lock in whose queue it waited
        + heard base.a:@B base.b:@C; line.a = [A+ B] /150000; line.b = [C] /150000
        > acquire A look 1 -> now; base.a:B: P B 0; base.b:C: N C 30000; a = {A 1} /30000; b = {A 1} /30000; fence = now;
            line.a is gone

        a replay: the lock was held before
        + a = {A 1} /50000; b = {A 1} /50000; line.a = [A+ B] /150000
        > acquire A ask 1 -> now; fence = now; line.a = [B@2] /150000",
    );
}

/// R12, P11.
#[test]
fn a_refused_request_releases_what_its_owner_has() {
    check(
        "a try
        + a = {A 1} /9000; b = {B 1} /900; heard base.a:@C; line.a = [C] /150000
        > acquire A try -> [-904 now 2]; base.a:C: G C now now 1500 fence; a = {C 1} /1500; fence = now; line.a is gone

        a new request
        + a = {A 1} /9000; b = {B 1} /900; heard base.a:@C; line.a = [C] /150000
        > acquire A new -> [-904 now 2 now 0 0 0]; base.a:C: G C now now 1500 fence; a = {C 1} /1500; fence = now;
            line.b = [A+@now] /22500; line.a is gone

        after a message
        + a = {A 1} /9000; b = {B 1} /900; heard base.a:@C; line.a = [C] /150000
        > acquire A ask 7 -> [-904 now 2 7 0 0 0]; base.a:C: G C now now 1500 fence; a = {C 1} /1500; fence = now;
            line.b = [A+@7] /22500; line.a is gone

        without a queue it is announced to Redisson's clients
        + a = {B 1} /900; b = {A 1} /9000
        > acquire A try -> [-904 now 1]; base.b: 0; b is gone

        a new request without a queue
        + a = {B 1} /900; b = {A 1} /9000
        > acquire A new -> [-904 now 1 now 0 0 0]; base.b: 0; line.a = [A+@now] /22500; b is gone

        more dead processes are in the queue of that lock
        + a = {A 1} /9000; b = {B 1} /900; line.a = [x1..17] /150000
        > acquire A try -> [tend 0 [-904 now 2]]; base.a:x1..16: G; fence = now+15us; line.a = [x17@17] /150000; a is gone

        the same for a waiter
        + a = {A 1} /9000; b = {B 1} /900; line.a = [x1..17] /150000
        > acquire A ask 7 -> [tend 0 [-904 now 2 7 0 0 0]]; base.a:x1..16: G; fence = now+15us; line.a = [x17@17] /150000;
            line.b = [A+@7] /22500; a is gone

        a late request releases, too
        + a = {A 1} /9000; b = {B 1} /900; line.a = [x1..17] /150000
        > acquire A ask 7 until=now-1us -> [tend 0 -1]; base.a:x1..16: G; fence = now+15us; line.a = [x17@17] /150000; a is gone",
    );
}

/// P4: the process was notified of a free lock, and another one is busy.
#[test]
fn a_request_that_cannot_use_its_turn_passes_it_on() {
    check(
        "it came by message
        + a = {B 1} /900; heard base.b:@C; line.b = [C] /150000
        > acquire A ask 7 -> [-904 now 1 7 0 0 0]; base.b:C: G C now now 1500 fence; b = {C 1} /1500; fence = now;
            line.a = [A+@7] /22500; line.b is gone

        without an entry
        + a = {B 1} /900; heard base.b:@C; line.b = [C] /150000
        > acquire A ask -> [-904 now 1 now 0 0 0]; base.b:C: G C now now 1500 fence; b = {C 1} /1500; fence = now;
            line.a = [A+@now] /22500; line.b is gone

        a first request after an earlier one
        + a = {B 1} /900; heard base.b:@C; line.b = [C] /150000
        > acquire A new 7 -> [-904 now 1 7 0 0 0]; base.b:C: G C now now 1500 fence; b = {C 1} /1500; fence = now;
            line.a = [A+@7] /22500; line.b is gone

        a new request has no turn
        + a = {B 1} /900; heard base.b:@C; line.b = [C] /150000
        > acquire A new -> [-904 now 1 now 0 0 0]; line.a = [A+@now] /22500

        nor has a try
        + a = {B 1} /900; heard base.b:@C; line.b = [C] /150000
        > acquire A try -> [-904 now 1]

        its entry there is removed, too
        + b = {B 1} /900; heard base.a:@C; line.a = [A+ C] /150000
        > acquire A ask 7 -> [-904 now 2 7 0 0 0]; base.a:C: G C now now 1500 fence; a = {C 1} /1500; fence = now;
            line.b = [A+@7] /22500; line.a is gone

        without other entries nothing is published
        + b = {B 1} /900; line.a = [A+] /150000
        > acquire A ask 7 -> [-904 now 2 7 0 0 0]; line.b = [A+@7] /22500; line.a is gone

        L4: the next process in the queue of another lock that is held must poll
        + a = {B 1} /50000; b = {B 1} /50000; heard base.b:@C; line.b = [A+ C] /150000
        > acquire A look 1 -> [-5004 now 1 1 0 0 0]; base.b:C: N C 50000; line.a = [A+] /22500; line.b = [C@2] /150000

        it is the head there
        + a = {B 1} /50000; b = {B 1} /50000; heard base.b:@C; line.b = [C A+] /150000
        > acquire A look 1 -> [-5004 now 1 1 0 0 0]; line.a = [A+] /22500; line.b = [C] /150000",
    );
}

/// R9, R15.
#[test]
fn without_a_right_a_request_takes_nothing() {
    check(
        "no right to set a TTL
        + refuse PEXPIRE
        > acquire A new -> error NOPERM no right to PEXPIRE; base.a: 0; fence = now+1us

        no right to set a TTL, with a queue
        + refuse PEXPIRE; line.b = [A+] /150000
        > acquire A ask 1 -> error NOPERM no right to PEXPIRE; base.a: 0; fence = now

        no right to set the owner
        + refuse HSET
        > acquire A new -> error NOPERM no right to HSET; fence = now+1us

        no right to set the owner, with a queue
        + refuse HSET; line.b = [A+] /150000
        > acquire A ask 1 -> error NOPERM no right to HSET; fence = now

        the first lock has a longer lease, so that only the second fails: both are released
        + a = {A 1} /60000; b = {A 1} /900; refuse PEXPIRE
        > acquire A new -> error NOPERM no right to PEXPIRE; base.a: 0; base.b: 0; fence = now; a is gone; b is gone

        no queue without a TTL
        + b = {B 1} /900; refuse PEXPIRE
        > acquire A new -> error NOPERM no right to PEXPIRE

        a hand-off leaves the locks with the old owner; the client then releases
        + a = {A 1} /50000; b = {A 1} /50000; refuse PEXPIRE
        > hand_off -> error NOPERM no right to PEXPIRE

        no right to set the new owner
        + a = {A 1} /50000; b = {A 1} /50000; refuse HSET
        > hand_off -> error NOPERM no right to HSET; a = {A 1} /30000; b = {A 1} /30000; fence = now

        no right to set the counter
        + a = {A 1} /50000; b = {A 1} /50000; refuse SET
        > hand_off -> error NOPERM no right to SET; a = {A 1} /30000; b = {A 1} /30000",
    );
}

/// P6, R3, R4, R7.
#[test]
fn a_hand_off_replaces_the_owner_of_all_or_changes_nothing() {
    check(
        "a second run grants again; the lease and the count stay
        + a = {A 1} /50000; b = {A 1} /50000
        > hand_off -> now; a = {A2 1} /30000; b = {A2 1} /30000; fence = now
        + b = {A2 2} /60000
        > hand_off -> now+1us; fence = now+1us

        at maxmemory
        + a = {A 1} /50000; b = {A 1} /50000; full
        > hand_off -> now; a = {A2 1} /30000; b = {A2 1} /30000; fence = now

        free locks
        > hand_off -> -3

        another process holds
        + a = {B 1} /50000; b = {B 1} /50000
        > hand_off -> -3

        the old owner holds one of them
        + a = {A 1} /50000
        > hand_off -> -3

        the new owner holds the other one
        + a = {A2 1} /900; b = {A 1} /900
        > hand_off -> -3",
    );
}
