//! Runs the fair lock's scripts that end a hold or a wait.

use super::direct::check;

#[test]
fn a_release_of_one_of_several_holds_keeps_the_others() {
    check(
        "the lease is longer; P6: twice is once
        + job = {A 3} /60000
        > release A holds=3 -> 0; job = {A 2} /60000
        > release A holds=3 -> 0

        the lease is shorter
        + job = {A 3} /1000
        > release A holds=3 -> 0; job = {A 2} /30000

        another owner holds
        + job = {B 1} /9000
        > release A holds=2 -> -2

        a free lock
        > release A holds=2 -> -2",
    );
}

/// Without a queue, a release and a clean-up need neither the clock nor the functions for the queue.
#[test]
fn without_a_queue_the_lock_is_free() {
    for end in ["release", "abandon"] {
        for refused in ["", "TIME HRANDFIELD"] {
            let text = "the holder
                + job = {A 1} /9000; refuse @refused
                > @end A -> 0; job is gone
                > @end A -> -2

                another owner
                + job = {B 1} /9000; refuse @refused
                > @end A -> -2";
            check(&text.replace("@end", end).replace("@refused", refused));
        }
    }
}

/// F4: the grant lasts 1.5 s. The holder stays in `waiters` until it releases. The last one leaves no key. P6.
#[test]
fn a_release_grants_to_the_head_of_the_queue() {
    for end in ["release", "abandon"] {
        let text = "two holders
            + job = {A 1} /9000; queued B; ZADD waiters 0 A
            > @end A -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; waiters = [B] /150000;
                queue is gone; timeouts is gone
            > @end A -> -2; waiters is gone
            > @end B -> 0; job is gone";
        check(&text.replace("@end", end));
    }
}

/// The grant to a waiter of the same client is in the reply. That client knows when its other waiters poll.
#[test]
fn a_grant_to_the_releasing_client_is_in_the_reply() {
    check(
        "before another waiter of the same client
        + job = {A 1} /9000; queued A2 A3
        > release A -> [1 now G A2 now now 1500 fence]; fence = now; job = {A2 1} /1500; queue = [A3];
            timeouts = [A3@ms+600000ms]

        before a waiter of another client
        + job = {A 1} /9000; queued A2 B
        > release A -> [1 now G A2 now now 1500 fence]; B: N B 1500; fence = now; job = {A2 1} /1500; queue = [B];
            timeouts = [B@ms+600000ms]",
    );
}

/// P3: the head gives up. While another client holds the lock, the next waiter polls when the lease ends, after 5 s at most.
#[test]
fn a_waiter_that_gives_up_passes_on_what_it_watched() {
    check(
        "a short lease
        + job = {C 1} /900; queued A B
        > abandon A -> 0; B: N B 900; queue = [B]; timeouts = [B@ms+600000ms]; waiters = [B@2] /150000

        a long lease
        + job = {C 1} /9000; queued A B
        > abandon A -> 0; B: N B 5000; queue = [B]; timeouts = [B@ms+600000ms]; waiters = [B@2] /150000

        the holder that was granted by message is in front
        + job = {C 1} /900; queued A B; ZADD waiters 0 C
        > abandon A -> 0; B: N B 900; queue = [B]; timeouts = [B@ms+600000ms]; waiters = [C@0 B] /150000

        waiters behind the first two watch nothing
        + job = {C 1} /900; queued A B D
        > abandon D -> 0; queue = [A B]; timeouts = [A@ms+600000ms B@ms+600000ms]; waiters = [A B] /150000
        > abandon B -> 0; A: N A 900; queue = [A]; timeouts = [A@ms+600000ms]; waiters = [A] /150000

        the lock was free
        + queued A B
        > abandon A -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; waiters = [B@2] /150000;
            queue is gone; timeouts is gone

        it was the only one
        + job = {C 1} /9000; queued A; wake = [watched@now-5us] /10000
        > abandon A -> 0; queue is gone; timeouts is gone; waiters is gone; wake is gone

        its place had been removed
        + job = {C 1} /9000; queued B; ZADD waiters 0 A
        > abandon A -> -2; B: N B 5000; waiters = [B] /150000",
    );
}

/// A waiter that gives up removes its own place, wherever it is.
#[test]
fn a_waiter_gives_up_its_own_place() {
    let four = "+ job = {C 1} /9000; queued A B D A2
        + timeouts = [A@ms+600000ms B@ms+600001ms D@ms+600002ms A2@ms+600003ms]";
    let text = "the first
        @four
        > abandon A -> 0; B: N B 5000; queue = [B D A2]; timeouts = [B@ms+600001ms D@ms+600002ms A2@ms+600003ms];
            waiters = [B@2 D@3 A2@4] /150000

        the second
        @four
        > abandon B -> 0; A: N A 5000; queue = [A D A2]; timeouts = [A@ms+600000ms D@ms+600002ms A2@ms+600003ms];
            waiters = [A D@3 A2@4] /150000

        the third
        @four
        > abandon D -> 0; queue = [A B A2]; timeouts = [A@ms+600000ms B@ms+600001ms A2@ms+600003ms];
            waiters = [A B A2@4] /150000

        the last
        @four
        > abandon A2 -> 0; queue = [A B D]; timeouts = [A@ms+600000ms B@ms+600001ms D@ms+600002ms];
            waiters = [A B D] /150000";
    check(&text.replace("@four", four));
}

/// R15: a queue that cannot be served does not change the release. The next waiter polls soon.
#[test]
fn an_error_in_the_queue_does_not_undo_a_release() {
    check(
        "a foreign token; the second time the owner had nothing
        + job = {A 1} /9000; queued B; fence = x
        > release A -> -1; B: N B 500; job is gone
        > release A -> -2; B: N B 500

        the largest token
        + job = {A 1} /9000; queued B; fence = 9007199254740991
        > release A -> -1; B: N B 500; job is gone
        > release A -> -2; B: N B 500

        R9
        + job = {A 1} /9000; queued B C; refuse PEXPIRE
        > release A -> -1; B: N B 500; fence = now; queue = [C]; timeouts = [C@ms+600000ms]; job is gone

        no waiter of stanchion's
        + job = {A 1} /9000; queued J; ZADD waiters 1 A
        > release A -> 0; base:J: 0; timeouts = [J@ms+300000ms]; job is gone; waiters is gone",
    );
}

#[test]
fn a_release_and_an_acquire_are_one_request() {
    check(
        "no other waiter; the second time the first owner holds nothing
        + job = {A 1} /9000; ZADD waiters 0 A
        > pass -> [0 now]; fence = now; job = {A2 1} /30000; waiters is gone
        > pass -> [-2 now+1us]; fence = now+1us

        another process waits
        + job = {A 1} /9000; queued B
        > pass -> [0 [-1554 now now 0 0 0  0 0]]; B: G B now now 1500 fence; A: N A2 1500; fence = now;
            job = {B 1} /1500; queue = [A2]; timeouts = [A2@ms+600000ms]; waiters = [B A2@now] /150000

        another waiter of the same client is first
        + job = {A 1} /9000; queued A3 B
        > pass -> [[0 now G A3 now now 1500 fence] [-1554 now now 0 0 0  0 0]]; B: N B 1500; A: N A2 1550; fence = now;
            job = {A3 1} /1500; queue = [B A2]; timeouts = [A2@ms+600000ms B@ms+600000ms];
            waiters = [A3 B A2@now] /150000; wake = [watched@now] /10000",
    );
}

/// P3, R15.
#[test]
fn a_late_or_failed_acquire_does_not_undo_the_release() {
    check(
        "late
        + job = {A 1} /9000; queued B; ZADD waiters 0 A
        > pass until=now-1us -> [1 -1]; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; waiters = [B] /150000;
            queue is gone; timeouts is gone

        of a client whose own waiter is next
        + job = {A 1} /9000; queued A3
        > pass until=now-1us -> [[1 now G A3 now now 1500 fence] -1]; fence = now; job = {A3 1} /1500; queue is gone;
            timeouts is gone

        a foreign token
        + job = {A 1} /9000; queued B; fence = x
        > pass -> [-1 nil]; B: N B 500; queue = [B A2]; timeouts = [A2@ms+600000ms B@ms+600000ms];
            waiters = [B A2@now] /150000; job is gone",
    );
}
