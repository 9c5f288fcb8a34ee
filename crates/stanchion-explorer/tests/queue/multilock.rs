//! Multi-locks and locks of x, y and z, in several processes and in several tasks of one. The keys of the names are `orders`, `parts` and
//! `tools`.

use std::fmt::{self, Debug};
use std::ops::Range;

use stanchion_client::primitive::Sharing;
use stanchion_explorer::{Call, Configuration, World};
use stanchion_multilock::scripts::{ACQUIRE, HAND_OFF, RELEASE, TEND};

use super::client::{Ask, Client, Kind, LEASE, call};
use super::{FAULTS, MANY, Rules, Text, finds, finds_nothing, lock, one_holder};

fn scripts() -> Vec<Text> {
    vec![
        ("acquire_all", ACQUIRE.text()),
        ("release_all", RELEASE.text()),
        ("tend_all", TEND.text()),
        ("hand_off_all", HAND_OFF.text()),
    ]
}

/// What a task locks: so many names, from this one on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wants(usize, usize);

const X: Wants = Wants(0, 1);
const Y: Wants = Wants(1, 1);
/// x and y.
const BOTH: Wants = Wants(0, 2);
/// y and z.
const Y_AND_Z: Wants = Wants(1, 2);
const ALL: Wants = Wants(0, 3);

const NAMES: [&str; 3] = ["orders", "parts", "tools"];
const LINES: [&str; 3] = ["line", "line_y", "line_z"];
const WAKES: [&str; 3] = ["wake", "wake_y", "wake_z"];
/// The names have no counters of tokens.
const COUNTERS: [&str; 3] = ["0"; 3];

impl Debug for Wants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&["x", "y", "z"][self.range()].concat())
    }
}

impl Wants {
    const fn range(self) -> Range<usize> {
        self.0..self.0 + self.1
    }

    fn names(self) -> &'static [&'static str] {
        &NAMES[self.range()]
    }

    fn base(self) -> &'static str {
        Self::BASES[self.0]
    }

    /// The keys of the scripts, of one name or of several.
    fn keys(self) -> Vec<&'static str> {
        if !self.is_of_several() {
            let i = self.0;
            return vec![NAMES[i], NAMES[i], LINES[i], WAKES[i]];
        }
        [&NAMES, &LINES, &WAKES]
            .map(|keys| &keys[self.range()])
            .concat()
    }

    /// The last arguments of the scripts of several names.
    fn each(self) -> Vec<&'static str> {
        [&Self::BASES[self.range()], &COUNTERS[self.range()]].concat()
    }
}

impl Kind for Wants {
    const BASES: &'static [&'static str] = &["base", "base_y", "base_z"];

    fn sharing(&self) -> Sharing {
        Sharing::Exclusive
    }

    fn first_name(&self) -> usize {
        self.0
    }

    fn is_of_several(&self) -> bool {
        self.1 > 1
    }

    fn acquire(&self, ask: &Ask) -> Call {
        let Ask {
            owner,
            word,
            not_after,
            ..
        } = ask;
        if self.is_of_several() {
            let count = self.1.to_string();
            let args = [owner, LEASE, not_after, &count, "PUBLISH", word];
            return call(
                "acquire_all",
                &self.keys(),
                &[&args[..], &self.each()].concat(),
            );
        }
        let args = [owner, LEASE, not_after, word, "PUBLISH", self.base()];
        call("acquire", &self.keys(), &args)
    }

    fn release(&self, owner: &str, leaves: &str) -> Call {
        if self.is_of_several() {
            let count = self.1.to_string();
            let args = [owner, "PUBLISH", &count, leaves];
            return call(
                "release_all",
                &self.keys(),
                &[&args[..], &self.each()].concat(),
            );
        }
        let args = [self.base(), "PUBLISH", owner, leaves];
        call("release", &self.keys(), &args)
    }

    fn renew(&self, owner: &str, not_after: &str) -> Call {
        let names = self.names();
        let args = [owner, LEASE].repeat(names.len());
        call("renew", names, &[&[not_after], &args[..]].concat())
    }

    fn tend(&self, _sentry: &str) -> Call {
        if self.is_of_several() {
            let count = self.1.to_string();
            let args = [&["PUBLISH", &*count], &*self.each()].concat();
            return call("tend_all", &self.keys(), &args);
        }
        call("tend", &self.keys(), &[self.base(), "PUBLISH", ""])
    }

    fn hand_off(&self, from: &str, to: &str, not_after: &str) -> Option<Call> {
        if self.is_of_several() {
            let count = self.1.to_string();
            let args = [to, LEASE, not_after, &count, "PUBLISH", from];
            let args = [&args[..], &self.each()].concat();
            return Some(call("hand_off_all", &self.keys(), &args));
        }
        let args = [self.base(), "PUBLISH", from, to, LEASE, not_after, "1"];
        Some(call("hand_off", &self.keys(), &args))
    }
}

const RULES: Rules<Wants> = Rules {
    ends: |world| {
        let ttls = NAMES.map(|name| world.server.ttl(name.as_bytes()));
        let longest = ttls.into_iter().flatten().max();
        longest.map_or(0, i64::unsigned_abs)
    },
    ..Rules::of(one_holder_of_each, |world| {
        let mut awaited = world.running().flat_map(Client::awaited);
        awaited.any(|it| it.names().iter().all(|name| held_by(world, name) == 0))
    })
};

fn locks(kinds: [Wants; 3], acquires: u8, drops: u8) -> Configuration<Client<Wants>> {
    let scripts = [lock::scripts(), scripts()].concat();
    super::configuration(&scripts, &kinds, [acquires, drops], RULES)
}

/// A process with a task for each of `tasks`, and one with a task for `other`. Both are subscribed at the start.
fn tasks(tasks: &[Wants], other: &[Wants], drops: u8) -> Configuration<Client<Wants>> {
    let mut locks = locks([ALL; 3], 0, drops);
    locks.processes.truncate(1 + usize::from(!other.is_empty()));
    for (process, tasks) in locks.processes.iter_mut().zip([tasks, other]) {
        *process = process.clone().with_tasks_for(tasks);
    }
    locks
}

/// The number of running clients that hold a name.
fn held_by(world: &World<Client<Wants>>, name: &str) -> usize {
    let now = world.client_now();
    let held = world.running().flat_map(|it| it.holdings(now));
    held.filter(|(kind, _)| kind.names().contains(&name))
        .count()
}

/// P1, P6.
fn one_holder_of_each(world: &World<Client<Wants>>) -> Result<(), String> {
    for name in NAMES {
        one_holder(world, held_by(world, name), name)?;
        let held = world.server.content(name.as_bytes());
        let now = world.client_now();
        for (kind, owner) in world.running().flat_map(|it| it.holdings(now)) {
            if kind.names().contains(&name) && !held.iter().any(|(it, _)| *it == owner) {
                return Err(format!(
                    "P1: {owner} holds {name}, and the server has {held:?}"
                ));
            }
        }
    }
    let queued = LINES.map(|line| world.server.content(line.as_bytes()));
    let queued: Vec<_> = queued.iter().flatten().map(|(entry, _)| entry).collect();
    let twice = (1..queued.len()).find(|at| queued[..*at].contains(&queued[*at]));
    if let Some(at) = twice {
        return Err(format!("P6: {} is in two queues", queued[at]));
    }
    Ok(())
}

#[test]
fn without_faults() {
    let name = "multi-lock and locks of x and y, drops";
    finds_nothing(name, &locks([BOTH, X, Y], 1, 1), &[""]);
    let name = "two multi-locks and a lock of x";
    finds_nothing(name, &locks([BOTH, BOTH, X], 1, 0), &[""]);
}

/// A message about the entry of one task can arrive before the reply that moves its waiter to the queue in which another task waits.
#[test]
fn tasks_of_one_process_with_names_in_common() {
    for (name, drops) in [("", 0), (", drops", 1)] {
        let name = format!("y; y and z; x and y in one process{name}");
        finds_nothing(&name, &tasks(&[Y, Y_AND_Z, BOTH], &[], drops), &[""]);
    }
}

fn explore_with(faults: &[&str]) {
    let name = "multi-lock and locks of x and y";
    finds_nothing(name, &locks([BOTH, X, Y], 1, 0), faults);
    let name = "two multi-locks and a lock of x";
    finds_nothing(name, &locks([BOTH, BOTH, X], 1, 0), faults);
}

#[test]
fn with_one_fault() {
    explore_with(&FAULTS[..4]);
}

#[test]
fn planted_errors_are_found() {
    finds(
        |_| locks([BOTH, X, Y], 1, 0),
        r"
        a multi-lock takes a name that is held
        - elseif not busy then
        -       busy = i
        + elseif not busy then

        an entry stays in the queue of a name that is not busy
        -       remove(entry)
        -       if ttls[i] == -2 then
        +       if ttls[i] == -2 then

        a release serves the first queue only
        - if found[i] or stood and call('EXISTS', lock) == 0 then add(free()) end
        + if i == 1 and found[i] then add(free()) end
        ",
    );
    finds(
        |_| locks([BOTH, BOTH, X], 1, 0),
        r"
        a multi-lock is granted one of its names
        - local asks = string.find(head, '+', 1, true)
        + local asks = false

        no other process is notified after a multi-lock: a kill
        - local _, dead = tell_first(try_ms)
        + local dead = false
        ",
    );
    finds(
        |_| locks([BOTH, X, Y], 1, 1),
        r"
        a multi-lock that gives up keeps its entry
        - return remove(entry) or
        + return false or
        ",
    );
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    explore_with(&FAULTS[4..]);
    let name = "multi-lock and locks of x and y";
    let faults = ["a lost message, a kill"];
    finds_nothing(name, &locks([BOTH, X, Y], 1, 0), &faults);
    let name = "y; x and y; x and y in one process, y in another";
    finds_nothing(name, &tasks(&[Y, BOTH, BOTH], &[Y], 0), &[""]);
    let name = "y; y and z; x and y in one process";
    finds_nothing(name, &tasks(&[Y, Y_AND_Z, BOTH], &[], 0), &FAULTS);
}

#[test]
fn walks() {
    let of = |kinds: [&[Wants]; 3], is_new| {
        let rules = Rules {
            holds_as_head: true,
            entries: 8,
            ..RULES
        };
        let scripts = [lock::scripts(), scripts()].concat();
        let mut locks = super::configuration(&scripts, &[ALL; 3], [0, 2], rules);
        for (process, tasks) in locks.processes.iter_mut().zip(kinds) {
            *process = process.clone().with_tasks_for(tasks);
            if is_new {
                process.unsubscribe();
            }
        }
        locks
    };
    let eight: [&[Wants]; 3] = [
        &[BOTH, BOTH, Y_AND_Z],
        &[Y_AND_Z, BOTH, BOTH],
        &[Y_AND_Z, BOTH],
    ];
    let name = "x and y, or y and z, in 3 processes with 8 tasks";
    super::walks(name, &of(eight, false), &MANY);
    let name = "the same in processes without a subscription";
    super::walks(name, &of(eight, true), &MANY);
    let six: [&[Wants]; 3] = [&[BOTH, X], &[Y, BOTH], &[Y_AND_Z, X]];
    let name = "locks and multi-locks in 3 processes with 6 tasks";
    super::walks(name, &of(six, true), &MANY);
}
