//! Runs the scripts of semaphores that end when they are not used. A semaphore has a TTL of ten years while a plain permit is held.

use super::direct::check;

#[test]
fn a_missing_semaphore_is_made() {
    check(
        "plain; the holders are those of a former semaphore of this name
        + held = {A 1, B 2}
        > acquire A 1 new made=1000~3 -> 0; free = 2 /315360000000; held = {A 1}; idle = 1000 3 0 /315360000000

        with notes
        + held = {A 1, B 2}; wake = {turn 1} /60000
        > acquire A 1 new made=1000~3 -> 0; free = 2 /315360000000; held = {A 1}; idle = 1000 3 0 /315360000000

        leased
        + held = [%0@ms+500ms]
        > take A %0 new made=1000~3 -> 0; free = 2 /10000; held = [%0@ms+9000ms] /10000; idle = 1000 /10000

        only a missing one
        + free = 2; held = {A 1}; wake = {turn 1} /60000
        > acquire B 1 new made=1000~5 -> 0; free = 1; held = {A 1, B 1}

        only a missing one, leased
        + free = 2; held = [%0@ms+5000ms %1@ms+5000ms]; wake = {turn 1} /60000
        > take B %2 new made=1000~5 -> 0; free = 1; held = [%0@ms+5000ms %1@ms+5000ms %2@ms+9000ms]",
    );
}

/// R16, R15: a foreign key in place of the idle key stops requests, and no release.
#[test]
fn a_foreign_key_in_place_of_the_idle_key_stops_requests_only() {
    for free in ["0", "3"] {
        let text = "plain
            + free = @free; held = {A 1}; RPUSH idle x
            > acquire C 1 new -> error WRONGTYPE Operation against a key holding the wrong kind of value

            leased
            + free = @free; held = [%0@ms+5000ms %1@ms+5000ms]; RPUSH idle x
            > take C %2%3 new -> error WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&text.replace("@free", free));
    }
    check(
        "a release
        + free = 0; held = {A 1}; line = [B=1] /150000; heard B; RPUSH idle x
        > release A -> 1; B: P B 0; granted = [B@ms+500ms]; held = {B 1}; line is gone",
    );
}

#[test]
fn a_plain_permit_keeps_the_semaphore_while_it_is_held() {
    check(
        "the release of the last permit begins the idle time
        + free = 1 /1000; idle = 1000 1 0 /1000
        > acquire A 1 new -> 0; free = 0 /315360000000; held = {A 1}; idle = 1000 1 0 /315360000000
        > release A -> 0; base: 1; free = 1 /1000; idle = 1000 1 0 /1000; held is gone

        a grant
        + free = 0 /315360000000; held = {A 1}; idle = 1000 1 0 /315360000000; line = [B=1] /150000; heard B
        > release A -> 1; B: P B 0; granted = [B@ms+500ms]; held = {B 1}; line is gone

        the waiter has died: a grant that is undone is no use of the semaphore
        + free = 0 /315360000000; held = {A 1}; idle = 1000 1 0 /315360000000; line = [B=1] /150000
        > release A -> 0; B: P B 0; base: 01; free = 1 /1000; idle = 1000 1 0 /1000; held is gone; line is gone

        the grant was not confirmed, and the next waiter has died
        + free = 0 /315360000000; held = {A 1}; idle = 1000 1 0 /315360000000; line = [B=1] /150000; granted = [A@9]
        > tend '' -> -1; A: P A 0; B: P B 0; free = 1 /1000; idle = 1000 1 0 /1000; granted is gone; held is gone;
            line is gone

        no right to take permits
        + free = 1 /1000; idle = 1000 1 0 /1000; refuse DECRBY
        > acquire C 1 new -> error ERR NOPERM no right to DECRBY",
    );
}

/// A waiter polls before the semaphore ends. L8: behind the head it does not poll at a random moment, either.
#[test]
fn a_waiter_keeps_the_semaphore() {
    check(
        "the last release leaves the waiter its time
        + free = 0 /315360000000; held = {A 1}; idle = 1000 1 0 /315360000000
        > acquire C 1 new -> [-4004 now now 1 0 0]; idle = 1000 1 ms+8000ms /315360000000; line = [C=1@now] /22500
        > release A -> 0; C: P C 0; base: 01; free = 1 /8000; idle = 1000 1 ms+8000ms /8000; held is gone; line is gone

        a request that does not wait
        + free = 0 /315360000000; held = {A 1}; idle = 1000 1 0 /315360000000
        > acquire C 1 try -> -3
        > release A -> 0; base: 1; free = 1 /1000; idle = 1000 1 0 /1000; held is gone

        behind the head
        + free = 0 /315360000000; held = {A 1}; idle = 1000 1 0 /315360000000; line = [B=1] /150000; heard B
        > acquire C 1 new -> [-4004 now now 1 0 0]; idle = 1000 1 ms+8000ms /315360000000; line = [B=1 C=1@now] /150000",
    );
}

#[test]
fn a_lease_keeps_the_semaphore_for_its_idle_time_more() {
    check(
        "a replay in a semaphore whose TTL is shorter
        + free = 1 /1000; idle = 1000 /1000
        > take A %0 new -> 0; free = 0 /10000; held = [%0@ms+9000ms] /10000; idle = 1000 /10000
        + PEXPIRE free 2000; PEXPIRE held 2000; PEXPIRE idle 2000
        > take A %0 new -> 0; free = 0 /10000; held = [%0@ms+9000ms] /10000; idle = 1000 /10000

        a grant
        + free = 1 /1000; idle = 1000 /1000; line = [B=1] /150000; heard B
        > tend_leased '' -> -1; B: G B 0 now 1500 -; free = 0 /2500; held = [B#0@ms+1500ms] /2500; idle = 1000 /2500;
            line is gone

        a TTL of another program's
        + free = 1 /7000
        > take A %0 new -> 0; free = 0 /7000; held = [%0@ms+9000ms] /7000

        a TTL of another program's, with notes
        + free = 1 /7000; wake = {turn 1} /60000
        > take A %0 new -> 0; free = 0 /7000; held = [%0@ms+9000ms] /7000

        a release of a lease does not shorten the TTL
        + free = 0 /6000; idle = 1000 /6000; held = [%0@ms+5000ms %1@ms+5000ms] /6000
        > return A %0%1 -> 0; base: 2; free = 2 /6000; held is gone",
    );
}

/// A release of Redisson's does not record the use of the semaphore, so the relay's `tend` does.
#[test]
fn tend_records_a_use() {
    check(
        "Redisson's client has returned the last permit
        + free = 1 /315360000000; idle = 1000 1 0 /315360000000
        > tend '' -> -1; free = 1 /1000; idle = 1000 1 0 /1000

        with a queue
        + free = 1 /315360000000; idle = 1000 1 0 /315360000000; line = [B=1] /150000; heard B
        > tend '' -> -1; B: P B 0; free = 0 /315360000000; granted = [B@ms+500ms]; held = {B 1}; line is gone

        leased permits
        + free = 1 /10; idle = 1000 /10
        > tend_leased '' -> -1; free = 1 /1000; idle = 1000 /1000",
    );
}
