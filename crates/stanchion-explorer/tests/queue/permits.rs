//! Two permits, plain and leased: wants 1, 1 and 2.

use stanchion_client::primitive::Sharing;
use stanchion_explorer::{Call, Configuration, World};
use stanchion_semaphore::scripts::pool::TEND;
use stanchion_semaphore::scripts::{leased as of_leased, plain as of_plain};

use super::client::{Ask, Client, Kind, LEASE, call};
use super::{FAULTS, MANY, Rules, Text, finds, finds_nothing, with_a_sleeper};

/// Before a script: replaces `@owner:i` in arguments by the id of that permit, which is not text: 16 bytes, as the client makes them.
const IDS: &str = "local function id_of(it)
  local hash = string.sub(redis.sha1hex(it), 1, 32)
  return (string.gsub(hash, '%x%x', function(it) return string.char(tonumber(it, 16)) end))
end
for i, it in ipairs(ARGV) do ARGV[i] = string.gsub(it, '@([^@]+)', id_of) end\n";

/// A client that wants so many plain or leased permits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wants<const PLAIN: bool> {
    permits: u64,
    /// Its hand-offs leave the permit to other processes, if they wait.
    yields: bool,
}

impl<const PLAIN: bool> Wants<PLAIN> {
    fn keys(self) -> Vec<&'static str> {
        match PLAIN {
            true => ["free", "held", "line", "wake", "granted", "idle"].into(),
            false => ["free", "held", "line", "wake", "idle"].into(),
        }
    }

    fn ids(self, owner: &str) -> Vec<String> {
        (0..self.permits).map(|i| format!("@{owner}:{i}")).collect()
    }
}

impl<const PLAIN: bool> Kind for Wants<PLAIN> {
    const CONFIRMS: bool = PLAIN;

    fn sharing(&self) -> Sharing {
        Sharing::Permits(u32::try_from(self.permits).unwrap_or(u32::MAX))
    }

    fn acquire(&self, ask: &Ask) -> Call {
        let Ask {
            owner,
            word,
            not_after,
            ..
        } = ask;
        let (wants, ids) = (self.permits.to_string(), self.ids(owner).concat());
        let args: &[&str] = match PLAIN {
            true => &[
                owner, &wants, not_after, word, "base", "PUBLISH", "30000", "",
            ],
            false => &[
                owner, &ids, LEASE, not_after, word, "102", "base", "PUBLISH", "30000", "",
            ],
        };
        call("acquire", &self.keys(), args)
    }

    fn release(&self, owner: &str, leaves: &str) -> Call {
        let what = if PLAIN {
            self.permits.to_string()
        } else {
            self.ids(owner).concat()
        };
        call(
            "release",
            &self.keys(),
            &[owner, &what, "base", "PUBLISH", leaves],
        )
    }

    fn renew(&self, owner: &str, not_after: &str) -> Call {
        let ids = self.ids(owner);
        let leases = ids.iter().flat_map(|id| [id, LEASE]);
        let args: Vec<&str> = std::iter::once(not_after).chain(leases).collect();
        call("renew", &["held", "free", "idle"].repeat(ids.len()), &args)
    }

    fn hand_off(&self, from: &str, to: &str, not_after: &str) -> Option<Call> {
        let permits = self.permits.to_string();
        let client = from.split(':').next().filter(|_| self.yields);
        let yields = client.unwrap_or_default();
        let args = [
            to, not_after, from, &permits, "base", "PUBLISH", yields, "0",
        ];
        PLAIN.then(|| call("hand_off", &self.keys(), &args))
    }

    fn tend(&self, _sentry: &str) -> Call {
        let granted = if PLAIN { "granted" } else { "free" };
        let keys = ["free", "held", "line", "wake", granted, "idle"];
        call("tend", &keys, &["base", "PUBLISH", ""])
    }
}

fn permits<const PLAIN: bool>(wants: &[u64], drops: u8) -> Configuration<Client<Wants<PLAIN>>> {
    let rules = Rules {
        ends: |world| {
            let last = world.server.content(b"held").pop();
            let end: u64 = last.map_or(0, |(_, end)| end.parse().unwrap_or_default());
            end.saturating_sub(world.client_now() / 1000)
        },
        held_up: |world| {
            // The turn of a request for several permits, also of a client that was killed or stopped.
            let free = available(world);
            let big = |it: &Client<Wants<PLAIN>>| it.waits() && it.kind.permits > free;
            if world.running().any(big) || world.ended().count() > 0 {
                3_100
            } else {
                0
            }
        },
        grant: if PLAIN { 510 } else { 1_510 },
        shares: true,
        stay: &["free"],
        of_ended: &["held", "granted"],
        ..Rules::of(two_permits, |world| least(world) <= available(world))
    };
    let wants = wants.iter().map(|&permits| Wants {
        permits,
        yields: false,
    });
    let kinds: Vec<_> = wants.collect();
    let scripts: &[Text] = match PLAIN {
        true => &[
            ("acquire", of_plain::ACQUIRE.text()),
            ("release", of_plain::RELEASE.text()),
            ("tend", TEND.text()),
            ("hand_off", of_plain::HAND_OFF.text()),
        ],
        false => &[
            ("acquire", of_leased::ACQUIRE.text()),
            ("release", of_leased::RELEASE.text()),
            ("tend", TEND.text()),
            ("renew", of_leased::RENEW.text()),
        ],
    };
    let mut permits = super::configuration(scripts, &kinds, [1, drops], rules);
    for (_, text) in permits.scripts.iter_mut().filter(|_| !PLAIN) {
        text.insert_str(0, IDS);
    }
    permits.setup = vec![["SET", "free", "2"].map(str::to_owned).into()];
    permits
}

fn plain(drops: u8) -> Configuration<Client<Wants<true>>> {
    permits(&[1, 1, 2], drops)
}

fn leased(drops: u8) -> Configuration<Client<Wants<false>>> {
    permits(&[1, 1, 2], drops)
}

/// The first process has two tasks, which acquire so often together. The others want so many permits.
fn with_tasks(acquires: u8, others: &[u64]) -> Configuration<Client<Wants<true>>> {
    let mut permits = permits(&[&[1], others].concat(), 0);
    permits.processes[0] = permits.processes[0].clone().with_tasks(2);
    permits.processes[0].acquires = acquires;
    permits
}

/// The least number of permits that a waiting client wants.
fn least<const PLAIN: bool>(world: &World<Client<Wants<PLAIN>>>) -> u64 {
    let waiting = world.running().filter(|it| it.waits());
    waiting.map(|it| it.kind.permits).min().unwrap_or(u64::MAX)
}

fn in_use<const PLAIN: bool>(world: &World<Client<Wants<PLAIN>>>) -> u64 {
    let now = world.client_now();
    let held = |it: &Client<Wants<PLAIN>>| it.kind.permits * it.held(now) as u64;
    world.running().map(held).sum()
}

/// The permits that neither a live client has nor, of plain ones, one that was killed or stopped after it could confirm them.
fn available<const PLAIN: bool>(world: &World<Client<Wants<PLAIN>>>) -> u64 {
    let granted = world.server.content(b"granted");
    let could_confirm = |owner: &str| {
        let mut ended = world.ended().flat_map(Client::owners);
        ended.any(|it| it == owner)
    };
    let confirmed = |owner: &str| !granted.iter().any(|(it, _)| it == owner);
    let held = world.server.content(b"held").into_iter();
    let lost = held.filter(|(owner, _)| PLAIN && could_confirm(owner) && confirmed(owner));
    let lost: u64 = lost.filter_map(|(_, n)| n.parse::<u64>().ok()).sum();
    2_u64.saturating_sub(in_use(world) + lost)
}

/// P1, P6.
fn two_permits<const PLAIN: bool>(world: &World<Client<Wants<PLAIN>>>) -> Result<(), String> {
    if in_use(world) > 2 {
        return Err(format!("P1: {} of 2 permits are in use", in_use(world)));
    }
    let [free, held, granted] =
        [&b"free"[..], b"held", b"granted"].map(|key| world.server.content(key));
    let number = |(_, n): &(String, String)| {
        if PLAIN {
            n.parse().unwrap_or_default()
        } else {
            1
        }
    };
    let listed: i64 = held.iter().map(number).sum();
    let free: i64 = free.first().map_or(0, |(_, n)| n.parse().unwrap_or(-9));
    if free < 0 || free + listed != 2 {
        return Err(format!(
            "P6: {free} permits are free, and the list has {held:?}"
        ));
    }
    if granted
        .iter()
        .any(|(owner, _)| !held.iter().any(|(it, _)| it == owner))
    {
        return Err(format!(
            "P6: {granted:?} are granted, and the list has {held:?}"
        ));
    }
    Ok(())
}

#[test]
fn planted_errors_are_found() {
    finds(
        |faults| plain(u8::from(faults.is_empty())),
        r"
        a request returns no permits whose time has ended: a kill
        - reclaim(us, most or sweep)

        permits granted by message are not listed as not confirmed: a kill
        -     if ms then call('ZADD', granted, ends, owner) else call('ZREM', granted, owner) end

        a grant that was not confirmed is returned, and stays listed: a lost message, a jump
        -       call('HDEL', it.held, owner)
        -     else
        +     else

        a release ends after one grant
        - it.plain and 500 or 1500, true
        + it.plain and 500 or 1500, false

        a request for several permits has no turn that ends: a stop
        - elseif not resting and us >= ends + 0 then
        + elseif false then
        ",
    );
    finds(
        |_| plain(0),
        r"
        a confirmation leaves the permits listed as not confirmed: a jump
        - call('ZREM', granted, ARGV[1])
        -   remove(entry)
        + remove(entry)
        ",
    );
    finds(
        |faults| leased(u8::from(faults.is_empty())),
        r"
        a request returns no permits whose time has ended: a kill
        - reclaim(us, most or sweep)

        a lease that has ended is counted twice: a lost message, a jump
        - give_back(nil, #ended, ended)
        + give_back(nil, 2 * #ended, ended)

        a request takes permits that are not free
        - held == 0 and free >= wanted and
        + held == 0 and
        ",
    );
    finds(
        |_| with_tasks(2, &[1]),
        r"
        a hand-off leaves the permit with its former owner
        - call('HDEL', KEYS[2], ARGV[3]) == 0
        + call('HEXISTS', KEYS[2], ARGV[3]) == 0
        ",
    );
}

#[test]
fn without_faults() {
    finds_nothing("plain permits, drops", &plain(1), &[""]);
    finds_nothing("leased permits, drops", &leased(1), &[""]);
}

#[test]
fn a_task_that_is_not_polled() {
    finds_nothing("plain permits, a sleeper", &with_a_sleeper(plain(0)), &[""]);
    finds_nothing(
        "leased permits, a sleeper",
        &with_a_sleeper(leased(0)),
        &[""],
    );
}

#[test]
fn plain_permits_with_one_fault() {
    finds_nothing("plain permits", &plain(0), &FAULTS);
}

/// One hands its permit to the other.
#[test]
fn two_tasks_in_a_process() {
    let name = "plain permits, 2 processes with 2 tasks and 1";
    finds_nothing(name, &with_tasks(2, &[1]), &[""]);
    finds_nothing(name, &with_tasks(2, &[1]), &FAULTS[..4]);
    let mut yields = with_tasks(2, &[1]);
    yields.processes[0].kind.yields = true;
    finds_nothing(
        &format!("{name}, after a turn"),
        &yields,
        &["", "a lost message"],
    );
}

#[test]
fn leased_permits_with_one_fault() {
    finds_nothing("leased permits", &leased(0), &FAULTS[..4]);
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    let faults = ["a jump", "a lost message, a kill"];
    finds_nothing("leased permits", &leased(0), &FAULTS[4..]);
    finds_nothing("leased permits", &leased(0), &faults);
    let name = "plain permits, 2 processes with 2 tasks and 1";
    finds_nothing(name, &with_tasks(2, &[1]), &FAULTS[4..]);
    finds_nothing("plain permits, drops", &plain(1), &["a jump"]);
    let faults = ["a lost message, a jump", "a lost message, a kill"];
    finds_nothing("plain permits", &plain(0), &faults);
}

#[test]
fn walks() {
    let name = "plain permits, 3 processes with 2 tasks, 1, and 1 that wants 2";
    // A plain permit has no lease: a process that ends before its release runs keeps it.
    super::walks(name, &with_tasks(2, &[1, 2]), &[MANY[0], MANY[2]]);
    super::walks("leased permits, drops", &leased(2), &MANY);
}
