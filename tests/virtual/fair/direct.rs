//! Runs the fair lock's scripts directly, in states and with refusals that clients rarely cause: late requests, rights that are missing, a
//! server at maxmemory, and places that were removed. [`stanchion_tests::transcript`] describes the notation.

use stanchion_fair::scripts::{ABANDON, ACQUIRE, RELEASE, RELEASE_AND_ACQUIRE, TEND};
use stanchion_tests::transcript;

/// Runs cases of `acquire OWNER ARRIVED`, where `0` joins the queue and `''` only tries; `release OWNER`; `pass`: A releases and A2 acquires;
/// `abandon OWNER`; and `tend`. A lease is 30 s.
pub(super) fn check(text: &str) {
    let keys = "job queue timeouts waiters wake fence";
    let acquire = "base PUBLISH 300000 $1 30000 $until:now+9s $2 $hears:1";
    let release = "base PUBLISH 300000 $1 $holds:1 30000";
    let pass = "base PUBLISH 300000 A A2 30000 $until:now+9s 1";
    let scripts = [
        ("acquire", ACQUIRE.text(), keys, acquire),
        ("release", RELEASE.text(), keys, release),
        ("pass", RELEASE_AND_ACQUIRE.text(), keys, pass),
        ("abandon", ABANDON.text(), keys, "base PUBLISH 300000 $1"),
        ("tend", TEND.text(), keys, "base PUBLISH 300000"),
    ];
    transcript::check(&scripts, text);
}

/// P3: also a request at its last microsecond.
#[test]
fn a_free_lock_is_taken_unless_the_request_is_late() {
    check(
        "a waiter
        > acquire A 0 until=now hears=0 -> now; fence = now; job = {A 1} /30000

        a request that does not wait
        > acquire A '' until=now hears=0 -> now; fence = now; job = {A 1} /30000

        late requests for a free lock
        > acquire A 0 until=now-1us -> -1
        > acquire A '' until=now-1us -> -1

        for a lock that another owner holds
        + job = {B 1} /9000
        > acquire A 0 until=now-1us -> -1
        > acquire A '' until=now-1us -> -1

        of a waiter
        + job = {B 1} /9000; queued A
        > acquire A 1 until=now-1us hears=0 -> -1

        of a waiter whose turn has come
        + queued A
        > acquire A 1 until=now-1us hears=0 -> -1

        a late replay
        + job = {A 1} /9000
        > acquire A 0 until=now-1us -> -1
        > acquire A '' until=now-1us -> -1",
    );
}

/// R9.
#[test]
fn without_the_right_to_set_a_lease_a_request_takes_nothing() {
    check(
        "a free lock
        + refuse PEXPIRE
        > acquire A 0 -> error NOPERM no right to PEXPIRE; fence = now

        a new waiter
        + job = {C 1} /9000; refuse PEXPIRE
        > acquire A 0 -> error NOPERM no right to PEXPIRE

        a waiter whose turn has come
        + queued A; refuse PEXPIRE
        > acquire A 1 -> error NOPERM no right to PEXPIRE; fence = now; queue is gone; timeouts is gone; waiters is gone

        without the right to set their TTL there are no notes
        + job = {C 1} /9000; queued A; refuse PEXPIRE
        > acquire A 1 hears=0 -> [-5004 now 1 0 0 0  0 0]",
    );
}

/// R16.
#[test]
fn a_lock_in_use_as_another_kind_is_an_error() {
    check(
        "two fields
        + job = {C 1, mode read} /9000; queued B
        > acquire A 0 -> error WRONGTYPE this name is in use as another kind of synchronizer
        > acquire B 1 -> error WRONGTYPE this name is in use as another kind of synchronizer
        > acquire A '' -> error WRONGTYPE this name is in use as another kind of synchronizer

        a fencing counter that is no number, or too large: a waiter keeps its place
        + queued A; fence = x
        > acquire A 1 -> error WRONGTYPE the fencing counter fence is not a whole number below 2^53 - 1
        + fence = 9007199254740991
        > acquire A 1 -> error WRONGTYPE the fencing counter fence is not a whole number below 2^53 - 1

        without waiters
        + fence = 1.5
        > acquire A 0 -> error WRONGTYPE the fencing counter fence is not a whole number below 2^53 - 1
        + fence = 9007199254740990
        > acquire A 0 -> 9007199254740991; fence = 9007199254740991; job = {A 1} /30000",
    );
}

/// F1, F7: arrivals rise also within a microsecond, and if the clock goes back. P6: a replay keeps the place.
#[test]
fn a_refused_request_joins_the_end_of_the_queue() {
    check(
        "two waiters
        + job = {C 1} /9000; heard A
        > acquire A 0 -> [-5004 now now 0 0 0  0 0]; queue = [A]; timeouts = [A@ms+600000ms]; waiters = [A@now] /150000
        > acquire B 0 -> [-15004 now now+1us 0 1 0  0 0]; queue = [A B]; timeouts = [A@ms+600000ms B@ms+600000ms];
            waiters = [A@now B@now+1us] /150000
        > acquire A 0 -> [-5004 now now 0 0 0  0 0]",
    );
}

/// R8.
#[test]
fn at_maxmemory_a_waiter_keeps_its_place_and_a_new_one_is_refused() {
    check(
        "requests
        + job = {C 1} /9000; queued A; ZADD timeouts 5 A; full
        > acquire B 0 -> error OOM command not allowed
        > acquire B 0 hears=0 -> error OOM command not allowed
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]; timeouts = [A@ms+600000ms]

        a release grants
        + job = {C 1} /9000; queued A; full
        > release C -> 1; A: G A now now 1500 fence; fence = now; job = {A 1} /1500; queue is gone; timeouts is gone

        the end of a wait
        + job = {C 1} /9000; queued A; full
        > abandon C -> 1; A: G A now now 1500 fence; fence = now; job = {A 1} /1500; queue is gone; timeouts is gone

        tend
        + queued A; full
        > tend -> -1; A: G A now now 1500 fence; fence = now; job = {A 1} /1500; queue is gone; timeouts is gone",
    );
}

#[test]
fn the_queue_outlives_every_poll_pause() {
    check(
        "renewed
        + job = {C 1} /9000; queued A; PEXPIRE waiters 144999
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]; waiters = [A] /150000

        long enough
        + job = {C 1} /9000; queued A; PEXPIRE waiters 145000
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]",
    );
}

/// F3: a process without a subscription, or after a call, notes its request. Old notes are removed.
#[test]
fn a_request_is_noted_where_the_queue_depends_on_it() {
    check(
        "no call, and a subscription
        + job = {C 1} /9000; queued A
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]

        no subscription
        + job = {C 1} /9000; queued A
        > acquire A 1 hears=0 -> [-5004 now 1 0 0 0  0 0]; wake = [@A@now] /10000

        after a call
        + job = {C 1} /9000; queued A; wake = [called@now-9999999us] /10000
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]; wake = [called@now-9999999us @A@now] /10000

        long after a call
        + job = {C 1} /9000; queued A; wake = [called@now-10000001us] /10000
        > acquire A 1 -> [-5004 now 1 0 0 0  0 0]

        old notes
        + job = {C 1} /9000; queued A; wake = [old@now-10000000us watched@now-9999999us] /1
        > acquire A 1 hears=0 -> [-5004 now 1 0 0 0  0 0]; wake = [watched@now-9999999us @A@now] /10000",
    );
}

/// F5.
#[test]
fn a_waiter_whose_place_was_removed_takes_it_again_by_its_arrival() {
    check(
        "as the first
        + job = {C 1} /9000; queued B D; waiters = [B@2 D@5] /150000
        > acquire A 1 -> [-5004 now 1 0 0 0  1 0]; queue = [A B D];
            timeouts = [A@ms+600000ms B@ms+600000ms D@ms+600000ms]; waiters = [A B D@5] /150000

        between
        + job = {C 1} /9000; queued B D; waiters = [B@2 D@5] /150000
        > acquire A 3 -> [-22504 now 3 0 1 0  1 0]; queue = [B A D];
            timeouts = [A@ms+600000ms B@ms+600000ms D@ms+600000ms]; waiters = [B@2 A@3 D@5] /150000

        as the last
        + job = {C 1} /9000; queued B D; waiters = [B@2 D@5] /150000
        > acquire A 9 -> [-22504 now 9 0 1 0  1 0]; queue = [B D A];
            timeouts = [A@ms+600000ms B@ms+600000ms D@ms+600000ms]; waiters = [B@2 D@5 A@9] /150000

        the next one has lost its place, too
        + job = {C 1} /9000; queued D; waiters = [A B D] /150000
        > acquire A 1 -> [-5004 now 1 0 0 0  1 0]; queue = [A D]; timeouts = [A@ms+600000ms D@ms+600000ms]

        the place of the next one was removed from the list alone
        + job = {C 1} /9000; timeouts = [B@ms+600000ms]; waiters = [A B] /150000
        > acquire A 1 -> [-5004 now 1 0 0 0  1 0]; queue = [A]; timeouts = [A@ms+600000ms B@ms+600000ms]",
    );
}

/// R3, P6: a grant by message that the process finds with its own request.
#[test]
fn a_replay_grants_again_with_a_larger_token() {
    check(
        "the lease is longer
        + job = {A 1} /60000; queued B; ZADD waiters 0 A; fence = now+7us
        > acquire A 0 -> now+8us; fence = now+8us
        > acquire A 1 -> now+9us; fence = now+9us
        > acquire A '' -> now+10us; fence = now+10us

        the lease is shorter
        + job = {A 1} /1000; queued B; ZADD waiters 0 A; fence = now+7us
        > acquire A 0 -> now+8us; fence = now+8us; job = {A 1} /30000
        + PEXPIRE job 1000
        > acquire A 1 -> now+9us; fence = now+9us; job = {A 1} /30000
        + PEXPIRE job 1000
        > acquire A '' -> now+10us; fence = now+10us; job = {A 1} /30000",
    );
}

#[test]
fn a_request_that_does_not_wait_leaves_no_place() {
    check(
        "a holder
        + job = {C 1} /9000; queued B
        > acquire A '' -> -9004
        + PERSIST job
        > acquire A '' -> -3

        the head of the queue is served
        + queued B
        > acquire A '' -> -1504; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; queue is gone;
            timeouts is gone

        only dead waiters were ahead
        + queued x1
        > acquire A '' -> now+1us; x1: G x1 now now 1500 fence; fence = now+1us; job = {A 1} /30000; queue is gone;
            timeouts is gone; waiters is gone

        a waiter of Redisson's acquires for itself
        + queued J
        > acquire A '' -> -3; base:J: 0; timeouts = [J@ms+300000ms]",
    );
}

/// F1: a new waiter takes a free lock only if the queue is empty. The head is granted in the reply, for its whole lease.
#[test]
fn a_new_waiter_does_not_overtake() {
    check(
        "a new waiter
        + queued B
        > acquire A 0 -> [-1554 now now 0 0 0  0 0]; B: G B now now 1500 fence; A: N A 1500; fence = now;
            job = {B 1} /1500; queue = [A]; timeouts = [A@ms+600000ms]; waiters = [B A@now] /150000

        the head
        + queued A B
        > acquire A 1 -> now; B: N B 5000; fence = now; job = {A 1} /30000; queue = [B]; timeouts = [B@ms+600000ms];
            waiters = [B@2] /150000",
    );
}
