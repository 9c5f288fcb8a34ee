//! A client of Redisson's beside two processes, at a lock.

use stanchion_explorer::Configuration;

use super::client::{Client, REDISSONS_SCRIPTS};
use super::lock::{BESIDE_REDISSON, Lock, RULES, scripts};
use super::{FAULTS, MANY, finds, finds_nothing};

/// Of version 4, as Redisson's are.
const REDISSON: &str = "cccccccc-cccc-4ccc-8ccc-cccccccccccc";

/// So many processes, the last of which is Redisson's.
fn beside_redisson(processes: usize, acquires: u8, drops: u8) -> Configuration<Client<Lock>> {
    let scripts = [&scripts()[..], &REDISSONS_SCRIPTS].concat();
    let kinds = [BESIDE_REDISSON; 3];
    let last = processes - 1;
    let mut lock = super::configuration(&scripts, &kinds[..=last], [acquires, drops], RULES);
    lock.processes[last] = Client::of_redisson(REDISSON, BESIDE_REDISSON, acquires);
    lock.aliases[last].0 = REDISSON.to_owned();
    lock
}

#[test]
fn one_process() {
    let name = "lock, a process beside Redisson";
    finds_nothing(&format!("{name}, drops"), &beside_redisson(2, 1, 1), &[""]);
    finds_nothing(name, &beside_redisson(2, 1, 0), &FAULTS[..5]);
}

#[test]
fn planted_errors_are_found() {
    finds(
        |_| beside_redisson(2, 1, 0),
        r"
        no process becomes the relay
        - if not hears then return good and 0 or 1 end
        + if not hears then return 0 end

        the relay serves no queue
        - local _, _, more = serve(us)
        - return unless_unfinished(-1
        + local more
        + return unless_unfinished(-1

        an acquire takes the lock of Redisson's client
        - if ttl == -2 and not window or held then
        + if true then
        ",
    );
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    let name = "lock, a process beside Redisson, 2 acquires";
    finds_nothing(name, &beside_redisson(2, 2, 0), &[""]);
    finds(
        |_| beside_redisson(3, 1, 0),
        r"
        the head does not poll after a turn of Redisson's clients: a stop
        - tell_first(yield_ms)
        + 0
        ",
    );
}

#[test]
fn walks() {
    let name = "lock, 2 processes beside Redisson, drops";
    super::walks(name, &beside_redisson(3, 1, 1), &MANY);
}
