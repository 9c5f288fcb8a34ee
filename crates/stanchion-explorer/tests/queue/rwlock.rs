//! The read-write lock: two readers and a writer.

use stanchion_client::primitive::Sharing;
use stanchion_explorer::{Call, Configuration, World};
use stanchion_rwlock::{layout, read, write};

use super::client::{Ask, Client, Kind, LEASE, call};
use super::{FAULTS, MANY, RENEW, Rules, Text, finds, finds_nothing, with_a_sleeper};

fn scripts() -> Vec<Text> {
    vec![
        ("acquire_read", read::ACQUIRE.text()),
        ("acquire_write", write::ACQUIRE.text()),
        ("release_read", read::RELEASE.text()),
        ("release_write", write::RELEASE.text()),
        ("tend", layout::TEND.text()),
        ("renew_read", read::RENEW.text()),
        ("renew", RENEW),
    ]
}

/// A side of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Write,
    /// With the end of its entries: `r`, or `R` where writers have preference.
    Read(&'static str),
}
use Side::{Read, Write};

const KEYS: [&str; 5] = ["orders", "orders", "line", "wake", "readers"];
const PREFIX: &str = "{orders}:";

fn hold_key(owner: &str) -> String {
    format!("{PREFIX}{owner}:rwlock_timeout:1")
}

impl Kind for Side {
    fn sharing(&self) -> Sharing {
        match self {
            Write => Sharing::Exclusive,
            Read(_) => Sharing::Together,
        }
    }

    fn acquire(&self, ask: &Ask) -> Call {
        let Ask {
            owner,
            word,
            not_after,
            began,
            ..
        } = ask;
        match self {
            Write => call(
                "acquire_write",
                &KEYS,
                &[owner, LEASE, not_after, word, "PUBLISH", "base", PREFIX],
            ),
            Read(side) => call(
                "acquire_read",
                &["orders", "line", "wake", "readers", &hold_key(owner)],
                &[
                    owner, LEASE, not_after, word, "PUBLISH", "base", side, PREFIX, "", began,
                ],
            ),
        }
    }

    fn release(&self, owner: &str, leaves: &str) -> Call {
        let args = ["base", "PUBLISH", owner, "1", LEASE, PREFIX, leaves];
        match self {
            Write => call("release_write", &KEYS, &args),
            Read(_) => call(
                "release_read",
                &[
                    "orders",
                    "line",
                    "wake",
                    "readers",
                    &hold_key(owner),
                    "orders",
                ],
                &args,
            ),
        }
    }

    fn renew(&self, owner: &str, not_after: &str) -> Call {
        match self {
            Write => call(
                "renew",
                &["orders"],
                &[not_after, &format!("{owner}:write"), LEASE],
            ),
            Read(_) => call(
                "renew_read",
                &["orders", &hold_key(owner), "readers"],
                &[not_after, owner, LEASE],
            ),
        }
    }

    fn tend(&self, _sentry: &str) -> Call {
        call("tend", &KEYS, &["base", "PUBLISH", "", PREFIX])
    }
}

/// Two readers with this end of their entries, and a writer.
fn rwlock(side: &'static str, acquires: u8, drops: u8) -> Configuration<Client<Side>> {
    super::configuration(
        &scripts(),
        &[Read(side), Read(side), Write],
        [acquires, drops],
        RULES,
    )
}

const RULES: Rules<Side> = Rules {
    shares: true,
    ..Rules::of(one_writer_or_readers, |world| {
        let [writers, readers] = holders(world);
        let waits = |write: bool| {
            world
                .running()
                .any(|it| it.waits() && (it.kind == Write) == write)
        };
        // A reader may have to wait behind a writer.
        writers == 0
            && (waits(false) && !(readers > 0 && waits(true)) || waits(true) && readers == 0)
    })
};

/// The writers and the readers that hold.
fn holders(world: &World<Client<Side>>) -> [usize; 2] {
    let now = world.client_now();
    [true, false].map(|write| {
        let side = |it: &&Client<Side>| it.holds(now) && (it.kind == Write) == write;
        world.running().filter(side).count()
    })
}

fn one_writer_or_readers(world: &World<Client<Side>>) -> Result<(), String> {
    let [writers, readers] = holders(world);
    if writers > 1 || writers == 1 && readers > 0 {
        return Err(format!("P1: {writers} writers and {readers} readers hold"));
    }
    let held = world.server.content(b"orders");
    let writes = held.iter().any(|(owner, _)| owner.ends_with(":write"));
    if writes && held.len() > 2
        || held
            .iter()
            .any(|(owner, count)| owner != "mode" && count != "1")
    {
        return Err(format!("P6: the server has {held:?}"));
    }
    Ok(())
}

#[test]
fn without_faults() {
    for side in ["r", "R"] {
        let name = format!("read-write lock, {side}, drops");
        finds_nothing(&name, &rwlock(side, 1, 1), &[""]);
    }
}

#[test]
fn a_task_that_is_not_polled() {
    for side in ["r", "R"] {
        let name = format!("read-write lock, {side}, a sleeper");
        finds_nothing(&name, &with_a_sleeper(rwlock(side, 1, 0)), &[""]);
    }
}

#[test]
fn with_one_fault() {
    finds_nothing("read-write lock, r", &rwlock("r", 1, 0), &FAULTS);
    finds_nothing("read-write lock, R", &rwlock("R", 1, 0), &FAULTS[..4]);
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    let faults = ["a cut", "a lost request or reply", "a lost message, a kill"];
    finds_nothing("read-write lock, R", &rwlock("R", 1, 0), &faults);
}

#[test]
fn planted_errors_are_found() {
    finds(
        |faults| rwlock("R", 1, u8::from(faults.is_empty())),
        r"
        a reader joins a writer
        - newcomer and mode ~= 'write' and not in_turn and (
        + newcomer and (

        a release grants to no process
        - local told, _, more = pass(us)
        + local told, more = 0

        a grant to a reader ends the run
        - granted_ms, shares, confirms = 1500, true
        + granted_ms, shares, confirms = 1500, false

        a silent writer holds readers off without an end: a stop
        - if left <= 0 then
        + if false then
        ",
    );
}

#[test]
fn walks() {
    for side in ["r", "R"] {
        let name = format!("read-write lock, {side}, 2 acquires, drops");
        super::walks(&name, &rwlock(side, 2, 2), &MANY);
    }
}
