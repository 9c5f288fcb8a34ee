//! Runs the scripts that change the number of permits: their effect on the total, on holders of a former semaphore, and on the idle time.

use stanchion_semaphore::scripts::{leased, plain, pool};
use stanchion_tests::transcript;

use super::direct;

/// Runs cases of `init N`, `adjust N`, `drain`, `reclaim OWNER`, and of leased permits `init_leased N`, `adjust_leased N`, `drain_leased`,
/// `set_total N`.
fn check(text: &str) {
    let (plain_keys, leased_keys) = (
        "free once held total line idle",
        "free once held free line idle",
    );
    let number = "$1 $until:now+9s base PUBLISH $made:''";
    let drain = "$until:now+9s $made:''";
    let (drained, drained_leased) = ("free once total held idle", "free once free held idle");
    let reclaim = "$1 $until:now+9s base PUBLISH";
    let (reclaimed, total) = ("free held once total line idle", "free held once line idle");
    let scripts = [
        ("init", pool::INIT.text(), plain_keys, number),
        ("init_leased", pool::INIT.text(), leased_keys, number),
        ("adjust", pool::ADJUST.text(), plain_keys, number),
        ("adjust_leased", pool::ADJUST.text(), leased_keys, number),
        ("drain", pool::DRAIN.text(), drained, drain),
        ("drain_leased", pool::DRAIN.text(), drained_leased, drain),
        ("reclaim", plain::RECLAIM.text(), reclaimed, reclaim),
        ("set_total", leased::SET_TOTAL.text(), total, number),
    ];
    transcript::check(&scripts, text);
}

/// P3, P6: a replay and a late request change nothing.
#[test]
fn a_number_is_changed_once() {
    check(
        "init
        > init 5 -> [1 1]; base: 5; free = 5; once = 1 /9000; total = 5 /2592000000
        > init 5 -> [1 1]
        + DEL once
        > init 7 -> [1 0]; once = 0 /9000

        init of leased permits
        > init_leased 5 -> [1 1]; base: 5; free = 5; once = 1 /9000

        add
        + free = 1
        > adjust 2 -> [1 3]; base: 3; free = 3; once = 3 /9000
        > adjust 2 -> [1 3]

        remove more than are free
        + free = 1; held = {A 2}; total = 3 /1000
        > adjust -3 -> [1 -2]; free = -2; once = -2 /9000; total = 0 /2592000000

        a sum beyond 32 bits
        + free = 2147483647
        > adjust 1 -> error ERR that would make 2147483648 free permits, beyond 32 bits

        a missing semaphore has no old holders
        + held = {A 2}
        > adjust 5 -> [1 5]; base: 5; free = 5; once = 5 /9000; total = 5 /2592000000; held is gone
        + DEL once free; held = {A 2}
        > init 5 -> [1 1]; base: 5; free = 5; once = 1 /9000; held is gone

        drain
        + free = 3; held = {A 2}; total = 5 /1000
        > drain -> [1 3]; free = 0; once = 3 /9000; total = 2 /2592000000
        > drain -> [1 3]

        nothing is taken below zero
        + free = -1
        > drain -> [1 0]; once = 0 /9000

        the total of leased permits
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]; heard base
        > set_total 3 -> [1 2]; base: 1; free = 1; once = 2 /9000
        + DEL once
        > set_total 1 -> [1 3]; free = -1; once = 3 /9000

        late requests
        + free = 3
        > init 5 until=now-1us -> [-1 0]
        > adjust 5 until=now-1us -> [-1 0]
        > drain until=now-1us -> [-1 0]
        > reclaim A until=now-1us -> [-1 0]
        > set_total 5 until=now-1us -> [-1 0]

        a TTL of another program's stays
        + free = 3 /90000
        > adjust 2 -> [1 5]; base: 5; free = 5 /90000; once = 5 /9000
        + DEL once
        > drain -> [1 5]; free = 0 /90000; once = 5 /9000",
    );
}

/// New permits are announced to Redisson's clients and, with a queue, by `tend`.
#[test]
fn new_permits_are_announced() {
    check(
        "init
        + line = [B=1] /150000
        > init 5 -> [tend 0 [1 1]]; base: 5; free = 5; once = 1 /9000; total = 5 /2592000000

        add
        + free = 0; line = [B=1] /150000
        > adjust 2 -> [tend 0 [1 2]]; base: 2; free = 2; once = 2 /9000

        the number stays negative
        + free = -3; line = [B=1] /150000
        > adjust 2 -> [1 -1]; free = -1; once = -1 /9000

        reclaim
        + free = 0; held = {A 2}; line = [B=1] /150000
        > reclaim A -> [tend 0 [1 2]]; base: 2; free = 2; once = 2 /9000; held is gone

        a larger total
        + free = 0; held = [%0@ms+5000ms]; line = [B=1] /150000
        > set_total 3 -> [tend 0 [1 1]]; base: 2; free = 2; once = 1 /9000

        the same total
        + free = 1; held = [%0@ms+5000ms]; line = [B=2] /150000
        > set_total 2 -> [1 2]; once = 2 /9000",
    );
}

/// P1: the free and the held permits together never exceed the total. Redisson's `delete` leaves the ledger.
#[test]
fn reclaim_returns_no_permits_of_a_former_semaphore() {
    check(
        "the permits of a holder; the second time it holds nothing
        + free = 3; held = {A 2}; total = 5 /1000
        > reclaim A -> [1 2]; base: 5; free = 5; once = 2 /9000; held is gone
        + DEL once
        > reclaim A -> [1 0]; once = 0 /9000

        Redisson has created the semaphore again, and B has acquired from it
        + free = 2; held = {A 2, B 3}; total = 5 /1000
        > reclaim A -> [1 0]; held = {B 3}; once = 0 /9000

        one of two permits
        + free = 1; held = {A 2, B 3}; total = 5 /1000
        > reclaim A -> [1 1]; base: 2; free = 2; held = {B 3}; once = 1 /9000

        the total is not known
        + free = 2; held = {A 2, B 3}
        > reclaim A -> [1 2]; base: 4; free = 4; held = {B 3}; once = 2 /9000

        the semaphore is missing
        + held = {A 2, B 3}; total = 5 /1000
        > reclaim A -> [1 0]; once = 0 /9000; held is gone

        R15: a number that the server does not add leaves the permits with their holder
        + free = 3; held = {A 9223372036854775807}
        > reclaim A -> error ERR value is not an integer or out of range

        in one that ends when it is not used
        + free = 1 /315360000000; held = {A 2}; idle = 1000 3 0 /315360000000
        > reclaim A -> [1 2]; base: 3; free = 3 /1000; idle = 1000 3 0 /1000; once = 2 /9000; held is gone",
    );
}

/// The idle time is that of the call which makes the semaphore.
#[test]
fn a_change_of_the_number_makes_a_missing_semaphore_and_is_a_use() {
    check(
        "a missing one
        > init 3 made=1000~3 -> [1 1]; base: 3; free = 3 /1000; idle = 1000 3 0 /1000; once = 1 /9000

        with permits
        > adjust 2 made=1000~3 -> [1 5]; base: 5; free = 5 /1000; idle = 1000 5 0 /1000; once = 5 /9000

        with fewer
        > adjust -1 made=1000~3 -> [1 2]; free = 2 /1000; idle = 1000 2 0 /1000; once = 2 /9000

        without permits
        > drain made=1000~3 -> [1 3]; free = 0 /1000; idle = 1000 0 0 /1000; once = 3 /9000

        a use
        + free = 3 /500; idle = 1000 3 0 /500
        > init 9 made=2000~9 -> [1 0]; free = 3 /1000; idle = 1000 3 0 /1000; once = 0 /9000

        more permits
        + free = 3 /500; idle = 1000 3 0 /500
        > adjust 2 -> [1 5]; base: 5; free = 5 /1000; idle = 1000 5 0 /1000; once = 5 /9000

        fewer permits
        + free = 3 /500; idle = 1000 3 0 /500
        > adjust -1 made=2000~9 -> [1 2]; free = 2 /1000; idle = 1000 2 0 /1000; once = 2 /9000

        no permits
        + free = 3 /500; idle = 1000 3 0 /500
        > drain -> [1 3]; free = 0 /1000; idle = 1000 0 0 /1000; once = 3 /9000

        none of none
        + free = 0 /500; idle = 1000 3 0 /500
        > drain -> [1 0]; free = 0 /315360000000; idle = 1000 3 0 /315360000000; once = 0 /9000

        a semaphore that does not end
        + free = 3
        > init 9 made=2000~9 -> [1 0]; once = 0 /9000
        + DEL once
        > adjust 2 made=2000~9 -> [1 5]; base: 5; free = 5; once = 5 /9000
        + DEL once
        > drain made=2000~9 -> [1 5]; free = 0; once = 5 /9000

        Redisson has deleted one that ends
        + held = {A 1}; idle = 1000 3 0 /500
        > init 2 -> [1 1]; base: 2; free = 2; once = 1 /9000; total = 2 /2592000000; held is gone; idle is gone

        and has made it again
        + free = 2; idle = 1000 3 0 /500
        > adjust 1 -> [1 3]; base: 3; free = 3; once = 3 /9000; idle is gone

        the idle key is that of the other kind
        + free = 3 /500; idle = 1000 /500
        > adjust 1 -> [1 4]; base: 4; free = 4 /500; once = 4 /9000",
    );
    check(
        "leased permits: a missing one
        > init_leased 3 made=1000~3 -> [1 1]; base: 3; free = 3 /1000; idle = 1000 /1000; once = 1 /9000

        with permits
        > adjust_leased 2 made=1000~3 -> [1 5]; base: 5; free = 5 /1000; idle = 1000 /1000; once = 5 /9000

        without permits
        > drain_leased made=1000~3 -> [1 3]; free = 0 /1000; idle = 1000 /1000; once = 3 /9000

        with another total
        > set_total 4 made=1000~3 -> [1 3]; base: 4; free = 4 /1000; idle = 1000 /1000; once = 3 /9000

        uses
        + free = 3 /500; idle = 1000 /500
        > init_leased 9 made=2000~9 -> [1 0]; free = 3 /1000; idle = 1000 /1000; once = 0 /9000
        + DEL once; PEXPIRE free 500
        > adjust_leased 2 made=2000~9 -> [1 5]; base: 5; free = 5 /1000; once = 5 /9000
        + DEL once; PEXPIRE free 500
        > drain_leased made=2000~9 -> [1 5]; free = 0 /1000; once = 5 /9000
        + DEL once; PEXPIRE free 500
        > set_total 2 made=2000~9 -> [1 0]; base: 2; free = 2 /1000; once = 0 /9000

        Redisson has deleted one that ends
        + held = [%0@ms+5000ms]; idle = 1000 /500
        > init_leased 2 -> [1 1]; base: 2; free = 2; once = 1 /9000; idle is gone

        the idle key is that of the other kind
        + free = 3 /500; idle = 1000 3 0 /500
        > adjust_leased 1 -> [1 4]; base: 4; free = 4 /500; once = 4 /9000",
    );
}

/// Redisson's permits are in no ledger. Its leases are not renewed with the semaphore, and some never end.
#[test]
fn redissons_permits_keep_the_semaphore_once_a_request_finds_them() {
    direct::check(
        "a permit is missing
        + free = 2 /500; idle = 1000 3 0 /500
        > acquire A 9 try -> -3; free = 2 /315360000000; idle = 1000 3 0 /315360000000

        it was returned
        + free = 3 /315360000000; idle = 1000 3 0 /315360000000
        > acquire A 9 try -> -3; free = 3 /1000; idle = 1000 3 0 /1000

        it was returned twice, and the ledger has a holder
        + free = 3 /500; held = {A 1}; idle = 1000 3 0 /500
        > acquire B 9 try -> -3; free = 3 /315360000000; idle = 1000 3 0 /315360000000

        Redisson has set the number, which removes the TTL
        + free = 4; held = {A 1}; idle = 1000 3 0 /500
        > acquire B 1 try -> 0; free = 3; held = {A 1, B 1}; idle is gone

        a lease of 100 s
        + free = 2 /500; held = [%0@ms+100000ms] /500; idle = 1000 /500
        > take A %1%2%3 try -> -100004; free = 2 /101000; held = [%0@ms+100000ms] /101000; idle = 1000 /101000

        a lease that never ends
        + free = 2 /500; held = [%0@922337203685477] /500; idle = 1000 /500
        > take A %1%2%3 try -> -3; free = 2 /315360000000; held = [%0@922337203685477] /315360000000;
            idle = 1000 /315360000000

        the idle key is that of the other kind
        + free = 2 /500; idle = 1000 /500
        > acquire A 9 try -> -3",
    );
}
