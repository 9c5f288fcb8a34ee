//! Runs the functions of the fair lock's queue (`queue.lua`) through its scripts: dead and silent processes, calls, Redisson's waiters, and the
//! times at which processes poll. The numbers are those of `docs/protocol.md`.

use super::direct::check;

/// The second watch: at most once in 1.5 s the newest waiter polls after a grant by message, too.
#[test]
fn the_first_and_the_newest_waiter_watch_a_grant() {
    check(
        "the first grant
        + job = {A 1} /9000; queued B C D
        > release A -> 1; B: G B now now 1500 fence; C: N C 1500; D: N D 1550; fence = now; job = {B 1} /1500;
            queue = [C D]; timeouts = [C@ms+600000ms D@ms+600000ms]; wake = [watched@now] /10000

        1.5 s after the last plan
        + job = {A 1} /9000; queued B C D; wake = [watched@now-1500000us] /10000
        > release A -> 1; B: G B now now 1500 fence; C: N C 1500; D: N D 1550; fence = now; job = {B 1} /1500;
            queue = [C D]; timeouts = [C@ms+600000ms D@ms+600000ms]; wake = [watched@now] /10000

        earlier
        + job = {A 1} /9000; queued B C D; wake = [watched@now-1499999us] /10000
        > release A -> 1; B: G B now now 1500 fence; C: N C 1500; fence = now; job = {B 1} /1500; queue = [C D];
            timeouts = [C@ms+600000ms D@ms+600000ms]

        the newest waiter is of the process of the first
        + job = {C 1} /9000; queued B A A2
        > release C -> 1; B: G B now now 1500 fence; A: N A 1500; fence = now; job = {B 1} /1500; queue = [A A2];
            timeouts = [A@ms+600000ms A2@ms+600000ms]

        a whole lease is watched by the first waiter alone
        + queued A B C
        > acquire A 1 -> now; B: N B 5000; fence = now; job = {A 1} /30000; queue = [B C];
            timeouts = [B@ms+600000ms C@ms+600000ms]; waiters = [B@2 C@3] /150000",
    );
}

/// F2. All waiters of a dead process are removed, with one message. The last one leaves no key.
#[test]
fn a_grant_without_a_receiver_is_undone() {
    check(
        "the next waiter gets it
        + job = {A 1} /9000; queued B C D; heard B=0
        > release A -> 1; B: G B now now 1500 fence; C: G C now now 1500 fence; D: N D 1500; fence = now;
            job = {C 1} /1500; queue = [D]; timeouts = [D@ms+600000ms]; waiters = [C@2 D@3] /150000

        two waiters of the dead process
        + job = {A 1} /9000; queued B B2; heard B=0; wake = [watched@now-5us] /10000
        > release A -> 0; B: G B now now 1500 fence; fence = now; job is gone; queue is gone; timeouts is gone;
            waiters is gone; wake is gone",
    );
}

/// F2: a process that sent a request without a subscription in the last second finds the grant with its next request.
#[test]
fn a_client_that_polls_is_granted_for_a_second() {
    check(
        "in the last second
        + job = {A 1} /9000; queued B; heard B=0; wake = [@B@now-999999us] /10000
        > release A -> 0; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; queue is gone; timeouts is gone

        before
        + job = {A 1} /9000; queued B; heard B=0; wake = [@B@now-1000000us] /10000
        > release A -> 0; B: G B now now 1500 fence; fence = now; job is gone; queue is gone; timeouts is gone;
            waiters is gone; wake is gone

        in front of another waiter
        + job = {C 1} /9000; queued B A; heard B=0; wake = [@B@now-999999us] /10000
        > acquire A 2 -> [-15004 now 2 0 1 0  0 0]

        before
        + job = {C 1} /9000; queued B A; heard B=0; wake = [@B@now-1000000us] /10000
        > acquire A 2 -> [-5004 now 2 0 0 0  0 0]; queue = [A]; timeouts = [A@ms+600000ms]; waiters = [A@2] /150000",
    );
}

/// F9. Without the right to count subscribers, each counts as alive.
#[test]
fn a_refused_request_removes_dead_waiters_in_front() {
    check(
        "one
        + job = {C 1} /9000; queued x1 A
        > acquire A 2 -> [-5004 now 2 0 0 0  0 0]; queue = [A]; timeouts = [A@ms+600000ms]; waiters = [A@2] /150000

        sixteen
        + job = {C 1} /9000; queued x1..16 A
        > acquire A 17 -> [-5004 now 17 0 0 0  0 0]; queue = [A]; timeouts = [A@ms+600000ms]; waiters = [A@17] /150000

        seventeen
        + job = {C 1} /9000; queued x1..17 A
        > acquire A 18 -> [-29 now 18 0 0 0  0 0]; queue = [x17 A]; timeouts = [x17@ms+600000ms A@ms+600000ms];
            waiters = [x17@17 A@18] /150000

        behind a holder that was granted by message
        + job = {C 1} /9000; queued x1..16 A; ZADD waiters 0 C
        > acquire A 17 -> [-5004 now 17 0 0 0  0 0]; queue = [A]; timeouts = [A@ms+600000ms];
            waiters = [C@0 A@17] /150000

        seventeen
        + job = {C 1} /9000; queued x1..17 A; ZADD waiters 0 C
        > acquire A 18 -> [-29 now 18 0 0 0  0 0]; queue = [x17 A]; timeouts = [x17@ms+600000ms A@ms+600000ms];
            waiters = [C@0 x17@17 A@18] /150000

        no right to count
        + job = {C 1} /9000; queued x1 A; refuse PUBSUB
        > acquire A 2 -> [-15004 now 2 0 1 0  0 0]",
    );
}

/// P11: a run removes 64 dead waiters. The newest waiter polls, in case the client that continues has died. While the lock is held, there is
/// nothing to poll for.
#[test]
fn a_run_that_is_unfinished_says_so() {
    check(
        "63 dead waiters
        + queued x1..63 B
        > tend -> -1; x1..63: G; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; waiters = [B@64] /150000;
            queue is gone; timeouts is gone

        64
        + queued x1..64 B
        > tend -> [tend 0 -1]; x1..64: G; B: N B 50; fence = now; queue = [B]; timeouts = [B@ms+600000ms];
            waiters = [B@65] /150000

        65
        + queued x1..65 B
        > tend -> [tend 0 -1]; x1..64: G; B: N B 50; fence = now; queue = [x65 B];
            timeouts = [x65@ms+600000ms B@ms+600000ms]; waiters = [x65@65 B@66] /150000

        a release
        + job = {A 1} /9000; queued x1..64 B
        > release A -> [tend 0 0]; x1..64: G; B: N B 50; fence = now; queue = [B]; timeouts = [B@ms+600000ms];
            waiters = [B@65] /150000; job is gone

        the end of a wait
        + job = {A 1} /9000; queued x1..64 B
        > abandon A -> [tend 0 0]; x1..64: G; B: N B 50; fence = now; queue = [B]; timeouts = [B@ms+600000ms];
            waiters = [B@65] /150000; job is gone",
    );
    let java: Vec<String> = (1..=65).map(|n| format!("J{n}")).collect();
    let passed: Vec<String> = java.iter().map(|it| format!("{it}@5")).collect();
    let text = "the lock is held, and the deadlines of 65 of Redisson's waiters have passed
        + job = {A 1} /9000; queued @java B; timeouts = [@passed B@ms+600000ms]
        > tend -> [tend 0 -1]; queue = [J65 B]; timeouts = [J65@5 B@ms+600000ms]";
    let text = text.replace("@java", &java.join(" "));
    check(&text.replace("@passed", &passed.join(" ")));
}

/// F3, F8: a grant by message has ended unused. After a release there is no call: the lock was in use.
#[test]
fn a_grant_that_ends_unused_is_followed_by_a_call() {
    check(
        "the process polls
        + queued A B B2 J C; LPOP queue; ZREM timeouts A
        > acquire B 2 -> [-104 now 2 0 0 0  0 0]; A: P A 0; base:all:stanchion: 0; waiters = [B@2 B2@3 C@5] /150000;
            wake = [called@now] /10000

        a script that another client runs finds it
        + queued A B B2 J C; LPOP queue; ZREM timeouts A
        > tend -> -1; A: P A 0; base:all:stanchion: 0; C: N C 100; waiters = [B@2 B2@3 C@5] /150000;
            wake = [called@now] /10000

        after a release
        + job = {D 1} /9000; queued A B; LPOP queue; ZREM timeouts A
        > release D -> 1; A: P A 0; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; waiters = [B@2] /150000;
            queue is gone; timeouts is gone

        another client holds
        + job = {D 1} /9000; queued A B; LPOP queue; ZREM timeouts A
        > acquire B 2 -> [-5004 now 2 0 0 0  0 0]; A: P A 0; waiters = [B@2] /150000

        the holder that was granted by message has no place, either
        + job = {A 1} /1500; queued A B; LPOP queue; ZREM timeouts A
        > tend -> -1",
    );
}

/// F3: no waiter is granted the lock for 100 ms after a call.
#[test]
fn live_processes_take_their_places_again_after_a_call() {
    check(
        "at once
        + queued A B; wake = [called@now] /10000
        > acquire A 1 -> [-104 now 1 0 0 0  0 0]; wake = [@A@now called@now] /10000
        > tend -> -1; B: N B 100
        > acquire D '' -> -3; B: N B 100

        later
        + queued A B; wake = [called@now-40000us] /10000
        > acquire A 1 -> [-64 now 1 0 0 0  0 0]; wake = [called@now-40ms @A@now] /10000
        > tend -> -1; B: N B 60
        > acquire D '' -> -3; B: N B 60

        just before the end
        + queued A B; wake = [called@now-99999us] /10000
        > acquire A 1 -> [-5 now 1 0 0 0  0 0]; wake = [called@now-99999us @A@now] /10000
        > tend -> -1; B: N B 1
        > acquire D '' -> -3; B: N B 1

        Redisson's waiter has no process to call
        + queued J; wake = [called@now-5us] /10000
        > tend -> -1

        a lock that is held
        + job = {C 1} /9000; queued A; wake = [called@now-5us] /10000
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]; wake = [called@now-5us @A@now] /10000",
    );
}

/// F3: for 10 s after a call a process that has not answered loses its places.
#[test]
fn a_process_that_does_not_answer_a_call_is_skipped() {
    check(
        "B has not answered
        + queued B C; wake = [called@now-200000us @C@now-100000us] /10000
        > tend -> -1; B: P B 0; C: G C now now 1500 fence; fence = now; job = {C 1} /1500; waiters = [C@2] /150000;
            queue is gone; timeouts is gone

        B has sent its last request before the call
        + queued B C; wake = [@B@now-200001us called@now-200000us @C@now-100000us] /10000
        > tend -> -1; B: P B 0; C: G C now now 1500 fence; fence = now; job = {C 1} /1500; waiters = [C@2] /150000;
            queue is gone; timeouts is gone

        B has answered
        + queued B C; wake = [called@now-200000us @B@now-199999us @C@now-100000us] /10000
        > tend -> -1; B: G B now now 1500 fence; C: N C 1500; fence = now; job = {B 1} /1500; queue = [C];
            timeouts = [C@ms+600000ms]

        long after the call
        + queued B; wake = [called@now-10000001us] /10000
        > tend -> -1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; queue is gone; timeouts is gone",
    );
}

/// F7: Redisson's waiters keep their places by their deadlines, and acquire for themselves. A second is the margin for the clock of its client.
#[test]
fn a_waiter_of_redissons_at_the_head_is_woken() {
    check(
        "a near deadline stays
        + job = {A 1} /9000; queued J B; ZADD timeouts ms+300000ms J
        > release A -> 0; base:J: 0; job is gone

        a far one becomes nearer
        + job = {A 1} /9000; queued J B; ZADD timeouts ms+300001ms J
        > release A -> 0; base:J: 0; timeouts = [J@ms+300000ms B@ms+600000ms]; job is gone

        while the lock is held: the rest of the lease in addition
        + job = {A 1} /9000; queued J B
        > tend -> -1; timeouts = [J@ms+309000ms B@ms+600000ms]

        the deadline has passed 999 ms ago
        + job = {A 1} /9000; queued J B; ZADD timeouts ms-999ms J
        > release A -> 0; base:J: 0; job is gone

        a second ago
        + job = {A 1} /9000; queued J B; ZADD timeouts ms-1000ms J
        > release A -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; queue is gone; timeouts is gone

        without the right to publish
        + job = {A 1} /9000; queued J; refuse PUBLISH
        > release A -> -1; timeouts = [J@ms+300000ms]; job is gone",
    );
}

/// F7: a deadline has time for each of Redisson's waiters, and is set again by each request. A new waiter changes nothing for those ahead.
#[test]
fn a_deadline_has_time_for_redissons_waiters() {
    check(
        "two of them
        + job = {C 1} /9000; queued J J2
        > acquire A 0 -> [-1004 now now 0 0 0  0 1]; queue = [J J2 A];
            timeouts = [J@ms+600000ms J2@ms+600000ms A@ms+1200000ms]; waiters = [A@now] /150000
        + ZADD timeouts 5 A
        > acquire A 1 -> [-1004 now now 0 0 0  0 1]; timeouts = [J@ms+309000ms J2@ms+600000ms A@ms+1200000ms]

        behind a holder that was granted by message
        + job = {C 1} /9000; queued J J2; ZADD waiters 0 C
        > acquire A 0 -> [-1004 now now 0 0 0  0 1]; queue = [J J2 A];
            timeouts = [J@ms+600000ms J2@ms+600000ms A@ms+1200000ms]; waiters = [C@0 A@now] /150000
        + ZADD timeouts 5 A
        > acquire A 1 -> [-1004 now now 0 0 0  0 1]; timeouts = [J@ms+309000ms J2@ms+600000ms A@ms+1200000ms]

        a client of Redisson's holds
        + job = {J 1} /9000; queued A
        > acquire A 1 -> [-1004 now 1 0 0 0  0 1]",
    );
}

/// L4, L8, and the second watch.
#[test]
fn the_reply_has_the_time_of_the_next_poll() {
    check(
        "the first waiter polls at the end of the lease
        + job = {C 1} /900; queued A
        > acquire A 1 -> [-904 now 1 0 0 0  0 0]
        + PEXPIRE job 5000
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]
        + PEXPIRE job 5001
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]
        + PERSIST job
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]

        another waiter of the first one's process
        + job = {C 1} /900; queued A A2
        > acquire A2 2 -> [-904 now 2 0 0 0  0 0]

        the newest waiter watches a grant by message, whose message it may have missed
        + job = {C 1} /700; queued B A
        > acquire A 2 -> [-754 now 2 0 0 0  0 0]
        + PEXPIRE job 1500
        > acquire A 2 -> [-1554 now 2 0 0 0  0 0]
        + PEXPIRE job 1501
        > acquire A 2 -> [-15004 now 2 0 1 0  0 0]

        a new one does not
        + job = {C 1} /700; queued B
        > acquire A 0 -> [-15004 now now 0 1 0  0 0]; queue = [B A]; timeouts = [A@ms+600000ms B@ms+600000ms];
            waiters = [B A@now] /150000

        nor one in the middle
        + job = {C 1} /700; queued B A D
        > acquire A 2 -> [-22504 now 2 0 1 0  0 0]

        a process whose request has granted to another one watches that grant
        + queued B A
        > acquire A 2 hears=0 -> [-1554 now 2 0 0 0  0 0]; B: G B now now 1500 fence; A: N A 1500; fence = now;
            job = {B 1} /1500; queue = [A]; timeouts = [A@ms+600000ms]; wake = [@A@now] /10000

        another waiter of this client holds
        + job = {A3 1} /900; queued A
        > acquire A 1 -> [-904 now 1 0 0 0 A3 0 0]
        > acquire A2 0 -> [-904 now now 0 0 0  0 0]; queue = [A A2]; timeouts = [A@ms+600000ms A2@ms+600000ms];
            waiters = [A A2@now] /150000",
    );
}
