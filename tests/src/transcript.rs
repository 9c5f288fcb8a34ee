//! Direct tests of scripts as transcripts: the state before, each call, its reply, its messages, and every key that it changed.
//!
//! ```text
//! a process that leaves passes its watch on
//! + job = {C 1} /900; line = [A B] /150000; heard B
//! > release A 1 -> 0; B: N B 900; line = [B@2] /150000
//!
//! the next case, on an empty server
//! ```
//!
//! Empty lines separate cases. The first line of a case is its title.
//!
//! * `+` changes the state. `key = {field value, …}` sets a hash, `[entry entry@arrival]` a queue, with the arrivals 1, 2, … by default, and any
//!   other word a string. `/900` is the TTL in ms. `heard B base=2` sets the subscribers of channels, `refuse`, `full`, `moves` and `wait 5ms` are
//!   those of [`Desk`], and a word in capital letters is a command. `reads A/900 B/500` adds readers of the read-write lock `job` with their
//!   leases, and `dead A B` readers without a hold key: the lease of the first one ended 1 ms ago, that of the second one 2 ms ago.
//!   `queued A B` is the queue of a fair lock, of processes that are subscribed.
//! * `>` calls a script. After the arrow is **all** that the call caused: the reply, the messages with their channels, and the keys
//!   that changed. A key that is not named has not changed. `…` at the end permits more.
//! * `A` to `H` and `J` are wire owners, `A2` is the next owner of the same process, `@A` is its uuid, `x1` to `x99` are dead processes (`x1..17`),
//!   `A.hold1` is the first hold key of a reader, `%0` to `%9` are permit ids, and `B#0` is the id of the first permit that a message grants to `B`. `now` is the server's time in µs and `ms` in milliseconds; `now-5us`, `now+2ms`, `ms+900` are computed.
//!   `''` is an empty argument, and `~` a space in an argument.
//!
//! On a difference the test prints the text with the actual results, ready to paste.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::desk::Desk;

/// Returns the entries and scores of a sorted set. An id of raw bytes begins with `#`.
const ENTRIES: &str = "local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  if string.find(all[i], '[^\\33-\\126]') then
    all[i] = '#' .. string.gsub(all[i], '.', function(it) return string.format('%02x', string.byte(it)) end)
  end
end
return all";

/// Length of an uuid.
const UUID: usize = 36;

/// The scripts of a kind: the word in a transcript, the text, the keys and the arguments. `$1` is the first word after the script's,
/// `$*` are the other ones as one argument, and `$name:value` is an option with its default.
pub type Scripts<'a> = &'a [(&'a str, &'a str, &'a str, &'a str)];

/// Runs all cases of a transcript.
///
/// # Panics
///
/// On a difference.
pub fn check(scripts: Scripts<'_>, text: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let actual = runtime.block_on(async {
        let mut actual = Vec::new();
        for case in text.trim().split("\n\n") {
            actual.push(Case::default().run(scripts, case).await);
        }
        actual
    });
    assert!(
        actual.iter().all(|(_, is_same)| *is_same),
        "{}",
        actual.iter().fold(String::new(), |mut out, (text, same)| {
            let mark = if *same { "" } else { "    (differs)\n" };
            write!(out, "\n{mark}{text}").unwrap();
            out
        })
    );
}

#[derive(Default)]
struct Case {
    desk: Desk,
}

impl Case {
    /// Returns the case with the actual results, and whether they are those in the text.
    async fn run(mut self, scripts: Scripts<'_>, case: &str) -> (String, bool) {
        let mut lines: Vec<String> = Vec::new();
        for line in case.trim().lines().map(str::trim) {
            // A line without a mark continues the line before it.
            if lines.len() < 2 || line.starts_with(['+', '>']) {
                lines.push(line.to_owned());
            } else {
                *lines.last_mut().unwrap() += &format!(" {line}");
            }
        }
        let (mut out, mut is_same) = (String::new(), true);
        for line in &lines {
            let mut parts = line.split("; ").map(str::to_owned).collect::<Vec<_>>();
            if let Some(call) = line.strip_prefix('>') {
                let (call, expected) = call.split_once("->").unwrap_or((call, ""));
                let expected = expected.split("; ").map(|it| it.trim().to_owned());
                let expected: Vec<String> = expected.collect();
                let actual = self.call(scripts, call.trim());
                let known = expected.strip_suffix(&["…".to_owned()]);
                is_same &= known.map_or(actual == expected, |it| actual.starts_with(it));
                parts = actual;
                parts[0] = format!("> {} -> {}", call.trim(), parts[0]);
            } else if let Some(changes) = line.strip_prefix('+') {
                for change in changes.split("; ") {
                    self.change(change.trim()).await;
                }
            }
            wrapped(&mut out, &parts);
        }
        (out, is_same)
    }

    async fn change(&mut self, change: &str) {
        let change = self.expand(change);
        if let Some((key, value)) = change.split_once(" = ") {
            return self.set(key, value);
        }
        let words: Vec<&str> = change.split(' ').collect();
        match words[0] {
            "heard" | "sharded" => {
                for channel in &words[1..] {
                    let (channel, count) = channel.split_once('=').unwrap_or((channel, "1"));
                    let count = count.parse().unwrap();
                    let channel = match channel.split_once(':') {
                        Some((uuid, _)) if uuid.len() == UUID => format!("base:{uuid}"),
                        _ => channel.to_owned(),
                    };
                    if words[0] == "heard" {
                        self.desk.subscribe(&channel, count);
                    } else {
                        self.desk.subscribe_sharded(&channel, count);
                    }
                }
            }
            "queued" => self.queue(&words[1..]),
            "refuse" => {
                let words = words[1..].iter().map(|it| (*it).to_owned());
                let words: Vec<&'static str> = words.map(|it| &*it.leak()).collect();
                self.desk.refuse(&words);
            }
            "full" => self.desk.fill(true),
            "moves" => self.desk.migrate(),
            "wait" => tokio::time::advance(Duration::from_micros(micros(words[1]))).await,
            "reads" => {
                let leases = words[1..].iter().map(|it| it.split_once('/').unwrap());
                let longest = leases.clone().map(|it| it.1.parse::<u64>().unwrap());
                let longest = longest.max().unwrap().to_string();
                for (owner, lease) in leases {
                    let hold = format!("{owner}:rwlock_timeout:1");
                    let ends = self.expand(&format!("ms+{lease}ms"));
                    self.desk
                        .command(&["HSET", "job", "mode", "read", owner, "1"]);
                    self.desk.command(&["SET", &hold, "1", "PX", lease]);
                    self.desk.command(&["ZADD", "readers", &ends, owner]);
                }
                self.desk.command(&["PEXPIRE", "job", &longest]);
                self.desk.command(&["PEXPIRE", "readers", &longest]);
            }
            "dead" => {
                for (n, owner) in words[1..].iter().enumerate() {
                    let ended = self.expand(&format!("ms-{}ms", n + 1));
                    self.desk.command(&["HSET", "job", owner, "1"]);
                    self.desk.command(&["ZADD", "readers", &ended, owner]);
                }
            }
            _ => drop(self.desk.command(&words)),
        }
    }

    /// Adds waiters to the queue of a fair lock, with the arrivals 1, 2, … Those that live are subscribed.
    fn queue(&mut self, owners: &[&str]) {
        let deadline = (self.desk.now() / 1_000 + 600_000).to_string();
        for (n, owner) in owners.iter().enumerate() {
            self.desk.command(&["RPUSH", "queue", owner]);
            self.desk.command(&["ZADD", "timeouts", &deadline, owner]);
            let is_redissons = owner[14..].starts_with('4');
            if !is_redissons {
                let arrival = (n + 1).to_string();
                self.desk.command(&["ZADD", "waiters", &arrival, owner]);
            }
            if !is_redissons && !owner.starts_with("0000") {
                self.desk.subscribe(&format!("base:{}", &owner[..UUID]), 1);
            }
        }
        self.desk.command(&["PEXPIRE", "waiters", "150000"]);
    }

    fn set(&self, key: &str, value: &str) {
        let (value, ttl) = value.split_once(" /").unwrap_or((value, ""));
        self.desk.command(&["DEL", key]);
        if let Some(fields) = value.strip_prefix('{') {
            for pair in fields.trim_end_matches('}').split(", ") {
                let (field, value) = pair.rsplit_once(' ').unwrap();
                self.desk.command(&["HSET", key, field, value]);
            }
        } else if let Some(entries) = value.strip_prefix('[') {
            for (n, entry) in entries.trim_end_matches(']').split(' ').enumerate() {
                let arrival = (n + 1).to_string();
                let (entry, arrival) = entry.split_once('@').unwrap_or((entry, &arrival));
                self.desk.command(&["ZADD", key, arrival, entry]);
            }
        } else {
            self.desk.command(&["SET", key, value]);
        }
        if !ttl.is_empty() {
            self.desk.command(&["PEXPIRE", key, ttl]);
        }
    }

    /// Runs a script. Returns the reply, the messages and the changes.
    fn call(&self, scripts: Scripts<'_>, call: &str) -> Vec<String> {
        let call = self.expand(call);
        let mut words: Vec<&str> = call.split(' ').collect();
        let name = words.remove(0);
        let script = scripts.iter().find(|it| it.0 == name);
        let (_, text, keys, args) = script.unwrap_or_else(|| panic!("no script {name}"));
        let mut options = BTreeMap::new();
        words.retain(|word| match word.split_once('=') {
            Some((name, value)) if args.contains(&format!("${name}:")) => {
                options.insert(name, value);
                false
            }
            _ => true,
        });
        let fill = |template: &str| -> Vec<String> {
            let is_taken = |n: &usize| template.contains(&format!("${n}"));
            let taken = (1..9).filter(is_taken).count();
            let fill = |arg: &str| {
                let Some(arg) = arg.strip_prefix('$') else {
                    return arg.to_owned();
                };
                match arg.split_once(':') {
                    Some((name, default)) => (*options.get(name).unwrap_or(&default)).to_owned(),
                    None if arg == "*" => words[taken..].join(" "),
                    None => {
                        let (n, behind) = arg.split_at(1);
                        format!("{}{behind}", words[n.parse::<usize>().unwrap() - 1])
                    }
                }
            };
            let filled = template.split(' ').map(fill);
            filled
                .map(|it| self.expand(&it).replace("''", "").replace('~', " "))
                .collect()
        };
        let before = self.keys();
        let (keys, args) = (fill(keys), fill(args));
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let reply = self.desk.run((text, &keys, &args));
        // The server adds the place in the script to an error.
        let reply = reply.split(" script: ").next().unwrap();
        let mut result = vec![reply.to_owned()];
        result.extend(self.desk.messages().iter().map(|message| {
            let (channel, message) = message.split_once(' ').unwrap();
            let owner = channel.strip_prefix("base:").unwrap_or_default();
            let owner = owner.len() == UUID;
            format!("{}: {message}", &channel[if owner { 5 } else { 0 }..])
        }));
        let after = self.keys();
        let changed = after.iter().filter(|it| before.get(it.0) != Some(it.1));
        result.extend(changed.map(|(key, value)| format!("{key} = {value}")));
        let gone = before.keys().filter(|it| !after.contains_key(*it));
        result.extend(gone.map(|key| format!("{key} is gone")));
        let mut lines: Vec<String> = Vec::new();
        for line in result.iter().map(|it| self.contract(it)) {
            // Messages to dead processes are one: `x1..3: G`.
            let dead = |it: &str| -> Option<(String, String, String)> {
                let (to, words) = it.split_once(": ")?;
                let (front, numbers) = to.rsplit_once('x')?;
                let is_dead = numbers.starts_with(|it: char| it.is_ascii_digit());
                let word = words.split(' ').next().filter(|_| is_dead)?;
                Some((front.to_owned(), numbers.to_owned(), word.to_owned()))
            };
            match (lines.last().and_then(|it| dead(it)), dead(&line)) {
                (Some((front, first, word)), Some((same, last, also)))
                    if (&front, &word) == (&same, &also) =>
                {
                    let first = first.split("..").next().unwrap();
                    *lines.last_mut().unwrap() = format!("{front}x{first}..{last}: {word}");
                }
                _ => lines.push(line),
            }
        }
        lines
    }

    fn keys(&self) -> BTreeMap<String, String> {
        let keys = self.desk.command(&["KEYS", "*"]);
        let keys = keys.trim_matches(['[', ']']).split(' ');
        let shown = |key: &str| {
            let kind = self.desk.command(&["TYPE", key]);
            let items = match kind.as_str() {
                "hash" => self.desk.command(&["HGETALL", key]),
                "zset" => self.desk.command(&["EVAL", ENTRIES, "1", key]),
                "list" => self.desk.command(&["LRANGE", key, "0", "-1"]),
                _ => self.desk.command(&["GET", key]),
            };
            let pairs: Vec<&str> = items
                .trim_matches(['{', '}', '[', ']'])
                .split(' ')
                .collect();
            let mut text = match kind.as_str() {
                "hash" => format!("{{{}}}", joined(&pairs, ", ", |_, it| it.join(" "))),
                "zset" => {
                    let entry = |n: usize, it: &[&str]| {
                        let is_default = it[1] == (n + 1).to_string();
                        if is_default {
                            it[0].to_owned()
                        } else {
                            it.join("@")
                        }
                    };
                    format!("[{}]", joined(&pairs, " ", entry))
                }
                _ => items,
            };
            let ttl = self.desk.command(&["PTTL", key]);
            if ttl != "-1" {
                write!(text, " /{ttl}").unwrap();
            }
            (key.to_owned(), text)
        };
        keys.filter(|it| !it.is_empty()).map(shown).collect()
    }

    /// Replaces short names and moments by what the scripts see.
    fn expand(&self, text: &str) -> String {
        let (mut out, text) = (String::new(), ranges(text));
        let mut rest = text.as_str();
        while let Some(mark) = rest.chars().next() {
            let length = rest.find(|it: char| !it.is_alphanumeric());
            let (name, behind) = rest.split_at(length.unwrap_or(rest.len()).max(1));
            rest = behind;
            if mark == '@' && owner(rest.get(..1).unwrap_or_default()).is_some() {
                out += &owner(&rest[..1]).unwrap()[..UUID];
                rest = &rest[1..];
            } else if mark == '%' {
                write!(out, "permit-{}-of-16-b", &rest[..1]).unwrap();
                rest = &rest[1..];
            } else if name == "now" || name == "ms" {
                let length = rest.find([' ', ',', '}', ']']).unwrap_or(rest.len());
                let (offset, behind) = rest.split_at(length);
                rest = behind;
                let now = self.desk.now();
                let moment = match offset.split_at(offset.len().min(1)) {
                    ("+", length) => now + micros(length),
                    ("-", length) => now - micros(length),
                    _ => now,
                };
                let unit = if name == "ms" { 1_000 } else { 1 };
                out += &(moment / unit).to_string();
            } else {
                out += &owner(name).unwrap_or_else(|| name.to_owned());
            }
        }
        out.replace(".hold", ":rwlock_timeout:")
    }

    /// The opposite of `expand`.
    fn contract(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for n in 0..10 {
            text = text.replace(&format!("permit-{n}-of-16-b"), &format!("%{n}"));
        }
        let mut names: Vec<String> = (1..100).map(|n| format!("x{n}")).collect();
        names.extend("ABCDEFHJ".chars().map(String::from));
        for name in names {
            let uuid = &owner(&name).unwrap()[..UUID];
            let first = format!("{uuid}:1");
            for mark in [" ", ",", "]", "}", ":", "=", "@", "?", "+", "r", "R", "%"] {
                text = text.replace(&format!("{first}{mark}"), &format!("{name}{mark}"));
            }
            if text.ends_with(&first) {
                text.replace_range(text.len() - first.len().., &name);
            }
            text = text.replace(&format!("{uuid}: "), &format!("{name}: "));
            text = text.replace(&format!("{uuid}:"), &name);
            text = text.replace(uuid, &format!("@{name}"));
        }
        text = text.replace(":rwlock_timeout:", ".hold");
        if text.contains('#') {
            for (name, n) in "ABCDEF".chars().flat_map(|it| [(it, 0), (it, 1)]) {
                let id = format!("{}:{n}", owner(&name.to_string()).unwrap());
                let script = "return string.sub(redis.sha1hex(ARGV[1]), 1, 32)";
                let id = self.desk.command(&["EVAL", script, "0", &id]);
                text = text.replace(&format!("#{id}"), &format!("{name}#{n}"));
            }
        }
        let (mut out, mut rest, now) = (String::new(), text.as_str(), self.desk.now());
        while let Some(mark) = rest.chars().next() {
            let digits = rest.find(|it: char| !it.is_ascii_digit());
            let (number, behind) = rest.split_at(digits.unwrap_or(rest.len()).max(mark.len_utf8()));
            rest = behind;
            let moment = |name: &str, unit: u64| {
                let (n, now) = (number.parse::<u64>().ok()?, now / unit);
                let (sign, distance) = if n < now {
                    ("-", now - n)
                } else {
                    ("+", n - now)
                };
                let micros = distance * unit;
                let length = match micros % 1_000 {
                    _ if micros > 10_000_000_000 => return None,
                    _ if micros == 0 => return Some(name.to_owned()),
                    0 => format!("{}ms", micros / 1_000),
                    _ => format!("{micros}us"),
                };
                Some(format!("{name}{sign}{length}"))
            };
            let moment = moment("now", 1).or_else(|| moment("ms", 1_000));
            out += &moment.unwrap_or_else(|| number.to_owned());
        }
        out
    }
}

/// The wire owner with a short name.
fn owner(name: &str) -> Option<String> {
    let letter = name.chars().next()?;
    let rest = &name[letter.len_utf8()..];
    let digits = rest.trim_end_matches(['r', 'R']);
    let is_number = digits.bytes().all(|it| it.is_ascii_digit());
    match letter {
        'x' if is_number && !rest.is_empty() => Some(format!(
            "00000000-0000-8000-8000-{:0>12}:1{}",
            digits,
            &rest[digits.len()..]
        )),
        'A'..='F' | 'H' | 'J' if is_number && rest.len() - digits.len() < 2 => {
            // Clients of Redisson have random uuids.
            let version = if letter == 'J' { 4 } else { 8 };
            let it = match letter {
                'H' => "ab".to_owned(),
                'J' => "77".to_owned(),
                _ => letter.to_ascii_lowercase().to_string().repeat(2),
            };
            let uuid = format!("{}-0000-{version}000-8000-{}", it.repeat(4), it.repeat(6));
            let number = if digits.is_empty() { "1" } else { digits };
            Some(format!("{uuid}:{number}{}", &rest[digits.len()..]))
        }
        _ => None,
    }
}

/// Replaces `x1..3` by `x1 x2 x3`.
fn ranges(text: &str) -> String {
    let Some((front, back)) = text.split_once("..") else {
        return text.to_owned();
    };
    let (front, first) = front.rsplit_once('x').unwrap();
    let length = back.find(|it: char| !it.is_ascii_digit());
    let (last, back) = back.split_at(length.unwrap_or(back.len()));
    let all = first.parse::<u16>().unwrap()..=last.parse().unwrap();
    let all: Vec<String> = all.map(|n| format!("x{n}")).collect();
    format!("{front}{}{back}", all.join(" "))
}

fn micros(length: &str) -> u64 {
    let number = length.trim_end_matches(['u', 'm', 's']);
    let unit = match &length[number.len()..] {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        unit => panic!("{length}: no unit {unit}"),
    };
    number.parse::<u64>().unwrap() * unit
}

fn joined(pairs: &[&str], mark: &str, show: impl Fn(usize, &[&str]) -> String) -> String {
    let pairs = pairs.chunks(2).enumerate();
    let shown: Vec<String> = pairs.map(|(n, pair)| show(n, pair)).collect();
    shown.join(mark)
}

/// Adds a line, in parts of 120 characters.
fn wrapped(out: &mut String, parts: &[String]) {
    let mut length = 0;
    for (n, part) in parts.iter().enumerate() {
        let mark = match n {
            0 => "",
            _ if length + part.len() > 110 => ";\n    ",
            _ => "; ",
        };
        length = if mark.len() > 2 { 0 } else { length } + mark.len() + part.len();
        write!(out, "{mark}{part}").unwrap();
    }
    out.push('\n');
}
