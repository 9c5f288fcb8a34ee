//! A multi-lock of x and y beside locks of x and of y. The names have keys of their own: `orders` and `parts`.

use stanchion_client::primitive::{LuaPart, Sharing};
use stanchion_explorer::{Call, Configuration, World};

use super::client::{Ask, Client, Kind, LEASE, call};
use super::{
    CUT, Edit, Faults, KILL, MESSAGE, NONE, REPLY, Rules, STOP, TWICE, finds, finds_nothing,
    finds_nothing_so_far, lock,
};

macro_rules! lua {
    ($file:literal) => {
        include_str!(concat!("../../../stanchion-multilock/lua/", $file))
    };
}
macro_rules! joint {
    ($file:literal) => {
        stanchion_client::in_line!(stanchion_client::woven!(
            lua!($file),
            LuaPart::new("-- @joint.lua\n", lua!("joint.lua"))
        ))
    };
}

const SCRIPTS: [(&str, &str); 3] = [
    ("acquire_all", joint!("acquire.lua")),
    (
        "release_all",
        stanchion_client::in_line!(lua!("release.lua")),
    ),
    ("tend_all", stanchion_client::in_line!(lua!("tend.lua"))),
];

/// What a process locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    X,
    Y,
    Both,
}
use Wants::{Both, X, Y};

const NAMES: [&str; 2] = ["orders", "parts"];
const LINES: [&str; 2] = ["line", "line_y"];
const WAKES: [&str; 2] = ["wake", "wake_y"];
/// The keys of the scripts for both names, without counters of tokens.
const KEYS: [&str; 6] = ["orders", "parts", "line", "line_y", "wake", "wake_y"];
const EACH: [&str; 4] = ["base", "base_y", "0", "0"];

impl Wants {
    fn keys(self) -> [&'static str; 4] {
        let i = self.first_name();
        [NAMES[i], NAMES[i], LINES[i], WAKES[i]]
    }

    fn base(self) -> &'static str {
        Self::BASES[self.first_name()]
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            X => &NAMES[..1],
            Y => &NAMES[1..],
            Both => &NAMES,
        }
    }
}

impl Kind for Wants {
    const BASES: &'static [&'static str] = &["base", "base_y"];

    fn sharing(&self) -> Sharing {
        Sharing::Exclusive
    }

    fn first_name(&self) -> usize {
        usize::from(*self == Y)
    }

    fn is_of_several(&self) -> bool {
        *self == Both
    }

    fn acquire(&self, ask: &Ask) -> Call {
        let Ask {
            owner,
            word,
            not_after,
            ..
        } = ask;
        if *self == Both {
            let args = [owner, LEASE, not_after, "2", "PUBLISH", word];
            return call("acquire_all", &KEYS, &[&args[..], &EACH].concat());
        }
        let args = [owner, LEASE, not_after, word, "PUBLISH", self.base()];
        call("acquire", &self.keys(), &args)
    }

    fn release(&self, owner: &str, leaves: &str) -> Call {
        if *self == Both {
            let args = [owner, "PUBLISH", "2", leaves];
            return call("release_all", &KEYS, &[args, EACH].concat());
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
        if *self == Both {
            return call("tend_all", &KEYS, &[&["PUBLISH", "2"], &EACH[..]].concat());
        }
        call("tend", &self.keys(), &[self.base(), "PUBLISH", ""])
    }
}

const RULES: Rules<Wants> = Rules {
    always: one_holder_of_each,
    starves: |world| {
        let waiting = world.running().filter(|it| it.waits());
        waiting
            .map(|it| it.kind.names())
            .any(|names| names.iter().all(|name| held_by(world, name) == 0))
    },
    ends: |world| {
        let ttls = NAMES.map(|name| world.server.ttl(name.as_bytes()));
        let longest = ttls.into_iter().flatten().max();
        longest.map_or(0, i64::unsigned_abs)
    },
    held_up: |_| 0,
    grant: 1_510,
    shares: false,
    holds_as_head: false,
    stay: &[],
    of_ended: &[],
};

fn locks(kinds: [Wants; 3], acquires: u8, drops: u8) -> Configuration<Client<Wants>> {
    let scripts = [&lock::SCRIPTS[..], &SCRIPTS].concat();
    super::configuration(&scripts, &kinds, [acquires, drops], RULES)
}

/// The number of running clients that hold a name.
fn held_by(world: &World<Client<Wants>>, name: &str) -> usize {
    let now = world.client_now();
    let holding = world.running().filter(|it| it.holds(now));
    holding.filter(|it| it.kind.names().contains(&name)).count()
}

/// P1, P6.
fn one_holder_of_each(world: &World<Client<Wants>>) -> Result<(), String> {
    for name in NAMES {
        let holders = held_by(world, name);
        if holders > 1 {
            return Err(format!("P1: {holders} clients hold {name}"));
        }
        let held = world.server.content(name.as_bytes());
        if held.len() > 1 || held.iter().any(|(_, count)| count != "1") {
            return Err(format!("P6: the server has {held:?} in {name}"));
        }
        let now = world.client_now();
        let holds = |it: &&Client<Wants>| it.holds(now) && it.kind.names().contains(&name);
        for client in world.running().filter(holds) {
            if !held
                .iter()
                .any(|(owner, _)| client.owners().contains(owner))
            {
                return Err(format!(
                    "P1: a client holds {name}, and the server has {held:?}"
                ));
            }
        }
    }
    let [x, y] = LINES.map(|line| world.server.content(line.as_bytes()));
    let twice = x
        .iter()
        .find(|(it, _)| y.iter().any(|(other, _)| other == it));
    if let Some((entry, _)) = twice {
        return Err(format!("P6: {entry} is in two queues"));
    }
    Ok(())
}

const FAULTS: [(&str, Faults); 6] = [
    ("a lost message", MESSAGE),
    ("a message twice", TWICE),
    ("a kill", KILL),
    ("a stop", STOP),
    ("a cut", CUT),
    ("a lost request or reply", REPLY),
];

#[test]
fn without_faults() {
    let name = "multi-lock and locks of x and y, drops";
    finds_nothing(name, locks([Both, X, Y], 1, 1), NONE, 0);
    let name = "two multi-locks and a lock of x";
    finds_nothing(name, locks([Both, Both, X], 1, 0), NONE, 0);
}

#[test]
fn with_one_fault() {
    for (what, faults) in &FAULTS[..4] {
        let name = format!("multi-lock and locks of x and y, {what}");
        finds_nothing(&name, locks([Both, X, Y], 1, 0), *faults, 0);
    }
    for (what, faults) in &FAULTS[..4] {
        let name = format!("two multi-locks and a lock of x, {what}");
        finds_nothing(&name, locks([Both, Both, X], 1, 0), *faults, 0);
    }
}

#[test]
fn planted_errors_are_found() {
    let one = || locks([Both, X, Y], 1, 0);
    let two = || locks([Both, Both, X], 1, 0);
    type Planted = (&'static str, Configuration<Client<Wants>>, Faults, Edit);
    let planted: [Planted; 7] = [
        (
            "a multi-lock takes a name that is held",
            one(),
            NONE,
            (
                "elseif not busy then\n      busy = i",
                "elseif not busy then",
            ),
        ),
        (
            "an entry stays in the queue of a name that is not busy",
            one(),
            NONE,
            (
                "      remove(entry)\n      if ttls[i] == -2 then",
                "      if ttls[i] == -2 then",
            ),
        ),
        (
            "a release serves the first queue only",
            one(),
            NONE,
            (
                "if found[i] or stood and call('EXISTS', lock) == 0 then add(free()) end",
                "if i == 1 and found[i] then add(free()) end",
            ),
        ),
        (
            "a multi-lock is granted one of its names",
            two(),
            NONE,
            (
                "local asks = string.find(head, '+', 1, true)",
                "local asks = false",
            ),
        ),
        (
            "no other process is notified after a multi-lock",
            two(),
            KILL,
            ("if next then tell(next, 'P', try_ms) end", ""),
        ),
        (
            "the process behind one that was notified does not poll",
            two(),
            KILL,
            ("call('ZRANGE', line, 1, 1)[1] == entry", "false"),
        ),
        (
            "a multi-lock that gives up keeps its entry",
            locks([Both, X, Y], 1, 1),
            NONE,
            ("return remove(entry) or", "return false or"),
        ),
    ];
    for (what, locks, faults, edit) in planted {
        finds(what, locks, (faults, 0), &[edit]);
    }
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    let name = "multi-lock and locks of x and y";
    for (what, faults) in &FAULTS[4..] {
        finds_nothing(
            &format!("{name}, {what}"),
            locks([Both, X, Y], 1, 0),
            *faults,
            0,
        );
    }
    let mut again = locks([Both, X, Y], 1, 0);
    again.processes[1].acquires = 2;
    let what = "a process that is notified and cannot take a name does not pass it on";
    let edit = (
        "if (arrived ~= '' or ask ~= 'new') and call('EXISTS', line) == 1 then free() end",
        "",
    );
    finds(what, again, (NONE, 0), &[edit]);
    let two = Faults {
        kills: 1,
        ..MESSAGE
    };
    let what = "a lost message and a kill";
    finds_nothing(
        &format!("{name}, {what}"),
        locks([Both, X, Y], 1, 0),
        two,
        0,
    );
    for (what, faults) in &FAULTS[4..] {
        let name = format!("two multi-locks and a lock of x, {what}");
        finds_nothing(&name, locks([Both, Both, X], 1, 0), *faults, 0);
    }
}

#[test]
#[ignore = "takes many minutes; docs/testing-explorer.md has the command"]
fn with_much_larger_bounds() {
    let name = "multi-lock and locks of x and y, 2 acquires";
    finds_nothing_so_far(name, locks([Both, X, Y], 2, 0), NONE);
    let name = "two multi-locks and a lock of x, 2 acquires";
    finds_nothing_so_far(name, locks([Both, Both, X], 2, 0), NONE);
}
