//! The record of a process, as text on the server: JSON with short names.
//!
//! Times are the server's, in ms. They are computed from one reading of its clock, so that an unchanged state has the same text.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use stanchion_core::primitive::{Holders, mark_of};
use stanchion_core::{FencingToken, SurveyedName};
use stanchion_transport::micros;

use crate::{SurveyedClient, SurveyedHold, SurveyedWait};

/// The longest record, in bytes.
pub(crate) const LONGEST: usize = 64 * 1024;

/// The maximum number of holds and waits that are read for a record.
pub(crate) const MOST_HOLDS: usize = 768;
pub(crate) const MOST_WAITS: usize = 256;

/// The shares of a record's length for waits and for holds. The rest is for the fields that occur once.
const FOR_WAITS: usize = LONGEST * 3 / 8;
const FOR_HOLDS: usize = LONGEST / 2;

/// The version of the layout. Readers skip records of later ones.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    v: u32,
    id: String,
    app: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    pid: u32,
    lib: String,
    since: u64,
    #[serde(default)]
    holds: Vec<Hold>,
    #[serde(default)]
    waits: Vec<Wait>,
    #[serde(default)]
    more: More,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct More {
    holds: usize,
    waits: usize,
}

/// A name: as text if it is UTF-8, in hex digits otherwise.
#[derive(Debug, Serialize, Deserialize)]
struct Named {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    x: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Hold {
    #[serde(flatten)]
    name: Named,
    /// The kind.
    k: String,
    /// The number of the owner.
    o: u64,
    /// The count, or the permits.
    c: u32,
    /// The token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<u64>,
    /// Held since.
    s: u64,
    /// Ends at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    e: Option<u64>,
    /// The actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    /// The label of the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l: Option<String>,
    /// The code for how to read the holders from the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    h: Option<String>,
    /// The number of waiters in this process.
    #[serde(default, skip_serializing_if = "is_zero")]
    m: usize,
    /// The start of the longest wait among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    w: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Wait {
    #[serde(flatten)]
    name: Named,
    k: String,
    o: u64,
    /// The number of permits that it needs.
    c: u32,
    /// Start of the wait.
    s: u64,
    /// Gives up at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    e: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    h: Option<String>,
    /// Set if it gives up in a deadlock.
    #[serde(default, skip_serializing_if = "is_false")]
    f: bool,
    /// Identifies the wait within its process: its start on the clock of the process, in µs.
    i: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(n: &usize) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(it: &bool) -> bool {
    !*it
}

/// Returns the code for `holders`: `1`, `q` and a prefix, `r`, `w`, `p`.
fn word_of(holders: &Holders) -> Option<String> {
    Some(match holders {
        Holders::Permits => "p".into(),
        Holders::One => "1".into(),
        Holders::Queue(prefix) => format!("q{prefix}"),
        Holders::Readers => "r".into(),
        Holders::Writer => "w".into(),
        _ => return None,
    })
}

/// Reads the code for `Holders`. A later version may write codes that this version does not know.
fn holders_of(word: Option<String>) -> Holders {
    let Some(word) = word else {
        return Holders::Untold;
    };
    match word.split_at_checked(1) {
        Some(("p", "")) => Holders::Permits,
        Some(("1", "")) => Holders::One,
        Some(("r", "")) => Holders::Readers,
        Some(("w", "")) => Holders::Writer,
        // Only the prefix of a key is accepted, so that a forged record cannot make other clients read arbitrary keys.
        Some(("q", prefix)) if is_prefix(prefix) => Holders::Queue(prefix.to_owned().into()),
        _ => Holders::Untold,
    }
}

fn is_prefix(text: &str) -> bool {
    let plain = |it: char| it.is_ascii_lowercase() || it == '_';
    (1..=64).contains(&text.len()) && text.chars().all(plain)
}

impl Named {
    fn of(name: &SurveyedName, shown: bool) -> Self {
        let bytes = name.as_bytes();
        if !shown {
            let short = mark_of(bytes) >> 32;
            return Self::text(format!("#{short:08x}"));
        }
        match std::str::from_utf8(bytes) {
            Ok(name) => Self::text(name.to_owned()),
            Err(_) => Self {
                n: None,
                x: Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            },
        }
    }

    const fn text(name: String) -> Self {
        Self {
            n: Some(name),
            x: None,
        }
    }

    fn read(self) -> Option<SurveyedName> {
        if let Some(name) = self.n {
            return Some(SurveyedName::new(name));
        }
        let digits = self.x?;
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
        bytes.map(SurveyedName::new)
    }
}

/// Writes `seen` as a record at server time `now`, in µs. The oldest holds and waits are kept. The others do not fit, and are counted.
pub(crate) fn write(seen: &SurveyedClient, now: u64, names: bool) -> String {
    let past = |ago: Duration| now.saturating_sub(micros(ago)) / 1000;
    let future = |after: Duration| now.saturating_add(micros(after)) / 1000;
    let number = |owner: &str| {
        let number = owner.rsplit(':').next().and_then(|it| it.parse().ok());
        number.unwrap_or(0)
    };
    let hold = |it: &SurveyedHold| Hold {
        name: Named::of(&it.name, names),
        k: it.kind.clone(),
        o: number(&it.owner),
        c: it.count,
        t: it.token.map(FencingToken::get),
        s: past(it.held),
        e: it.ends_in.map(future),
        a: it.actor.clone(),
        l: it.label.clone().filter(|_| names),
        h: word_of(&it.holders),
        m: it.waiters,
        w: it.longest_wait.map(past),
    };
    let wait = |it: &SurveyedWait| Wait {
        name: Named::of(&it.name, names),
        k: it.kind.clone(),
        o: number(&it.owner),
        c: it.wanted,
        s: past(it.waiting),
        e: it.gives_up_in.map(future),
        a: it.actor.clone(),
        l: it.label.clone().filter(|_| names),
        h: word_of(&it.holders),
        f: it.fails_on_deadlock,
        i: it.began,
    };
    let holds: Vec<Hold> = fitting(seen.holds.iter().map(hold), FOR_HOLDS);
    let waits: Vec<Wait> = fitting(seen.waits.iter().map(wait), FOR_WAITS);
    let record = Record {
        v: VERSION,
        id: seen.client.to_string(),
        app: seen.app.clone(),
        host: seen.host.clone(),
        pid: seen.pid,
        lib: seen.version.clone(),
        since: past(seen.connected),
        more: More {
            holds: seen.more_holds + seen.holds.len() - holds.len(),
            waits: seen.more_waits + seen.waits.len() - waits.len(),
        },
        holds,
        waits,
    };
    // OK: texts, numbers and lists have a form in JSON.
    serde_json::to_string(&record).unwrap_or_default()
}

/// Returns the first of `items`, as many as fit into `room` bytes as text.
fn fitting<T: Serialize>(items: impl Iterator<Item = T>, room: usize) -> Vec<T> {
    let mut left = room;
    items
        .take_while(|item| {
            let length = serde_json::to_vec(item).map_or(room, |text| text.len() + 1);
            let fits = length <= left;
            left = left.saturating_sub(length);
            fits
        })
        .collect()
}

/// Reads a record at server time `now`, written at `told`, both in ms. `None`: not a record, or a record of a later version.
pub(crate) fn read(text: &[u8], now: u64, told: u64) -> Option<SurveyedClient> {
    let record: Record = serde_json::from_slice(text).ok()?;
    if record.v != VERSION {
        return None;
    }
    let client: Uuid = record.id.parse().ok()?;
    let ago = |then: u64| Duration::from_millis(now.saturating_sub(then));
    let left = |end: u64| Duration::from_millis(end.saturating_sub(now));
    let hold = |it: Hold| {
        Some(SurveyedHold {
            name: it.name.read()?,
            kind: it.k,
            owner: format!("{client}:{}", it.o),
            count: it.c,
            token: it.t.and_then(FencingToken::new),
            held: ago(it.s),
            lease_left: None,
            ends_in: it.e.map(left),
            waiters: it.m,
            longest_wait: it.w.map(ago),
            actor: it.a,
            label: it.l,
            holders: holders_of(it.h),
        })
    };
    let wait = |it: Wait| {
        Some(SurveyedWait {
            name: it.name.read()?,
            kind: it.k,
            owner: format!("{client}:{}", it.o),
            wanted: it.c,
            waiting: ago(it.s),
            gives_up_in: it.e.map(left),
            actor: it.a,
            label: it.l,
            fails_on_deadlock: it.f,
            holders: holders_of(it.h),
            began: it.i,
        })
    };
    Some(SurveyedClient {
        client,
        app: record.app,
        host: record.host,
        pid: record.pid,
        version: record.lib,
        connected: ago(record.since),
        age: ago(told),
        holds: record.holds.into_iter().filter_map(hold).collect(),
        waits: record.waits.into_iter().filter_map(wait).collect(),
        more_holds: record.more.holds,
        more_waits: record.more.waits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(holds: usize, name: &[u8]) -> SurveyedClient {
        let client = Uuid::nil();
        let hold = |n: usize| SurveyedHold {
            name: SurveyedName::new(name),
            kind: "lock".into(),
            owner: format!("{client}:{n}"),
            count: 1,
            token: FencingToken::new(1_764_000_120_000_123),
            held: Duration::from_secs(9),
            lease_left: None,
            ends_in: None,
            waiters: 2,
            longest_wait: Some(Duration::from_secs(3)),
            actor: Some("s7".into()),
            label: Some("transfer 4711".into()),
            holders: Holders::Queue("redisson_lock_queue".into()),
        };
        let wait = |n: usize| SurveyedWait {
            name: SurveyedName::new(name),
            kind: "rwlock_read".into(),
            owner: format!("{client}:{n}"),
            wanted: 1,
            waiting: Duration::from_secs(2),
            gives_up_in: Some(Duration::from_secs(5)),
            actor: None,
            label: None,
            fails_on_deadlock: true,
            holders: Holders::Readers,
            began: 17,
        };
        SurveyedClient {
            client,
            app: "orders-api".into(),
            host: Some("node-17".into()),
            pid: 4711,
            version: "0.1.0".into(),
            connected: Duration::from_secs(60),
            age: Duration::ZERO,
            holds: (0..holds).map(hold).collect(),
            waits: (0..holds).map(wait).collect(),
            more_holds: 0,
            more_waits: 0,
        }
    }

    const NOW: u64 = 1_764_000_000_000;

    #[test]
    fn a_record_contains_the_survey() {
        for name in [
            &b"orders"[..],
            b"a\n{b}\"\\",
            b"\xff\x00\xfe",
            "ä".as_bytes(),
        ] {
            let seen = seen(2, name);
            let text = write(&seen, NOW * 1000, true);
            assert_eq!(read(text.as_bytes(), NOW, NOW).unwrap(), seen, "{text}");
        }
    }

    #[test]
    fn a_record_is_no_longer_than_64_kib_and_counts_the_rest() {
        for name in [&b"n"[..], &[b'n'; 512], &[0xff; 512]] {
            let text = write(&seen(10_000, name), NOW * 1000, true);
            assert!(text.len() <= LONGEST, "{}", text.len());
            let back = read(text.as_bytes(), NOW, NOW).unwrap();
            assert_eq!(back.holds.len() + back.more_holds, 10_000);
            assert_eq!(back.waits.len() + back.more_waits, 10_000);
            assert!(back.holds.len() >= 20 && back.waits.len() >= 20);
            assert!(back.holds[0].owner.ends_with(":0"));
        }
    }

    #[test]
    fn without_names_digits_stand_for_them() {
        let text = write(&seen(1, b"secret"), NOW * 1000, false);
        assert!(!text.contains("secret"), "{text}");
        assert!(!text.contains("transfer"), "{text}");
        let back = read(text.as_bytes(), NOW, NOW).unwrap();
        let name = back.holds[0].name.to_string();
        assert!(name.starts_with('#') && name.len() == 9, "{name}");
        assert_eq!(back.holds[0].name, back.waits[0].name);
    }

    #[test]
    fn places_of_holders_are_read_as_they_were_written() {
        let queue = Holders::Queue("a_queue".into());
        use Holders::{One, Permits, Readers, Untold, Writer};
        for holders in [Untold, Permits, One, queue, Readers, Writer] {
            assert_eq!(holders_of(word_of(&holders)), holders);
        }
        for odd in ["", "x", "q", "1q", "q*", "qA", "ää", &"q".repeat(70)] {
            assert_eq!(holders_of(Some(odd.into())), Untold, "{odd}");
        }
    }

    #[test]
    fn foreign_records_are_skipped_or_read_in_part() {
        for foreign in ["", "{", "[]", "{\"v\":1}", "null", "\u{0}"] {
            assert_eq!(read(foreign.as_bytes(), NOW, NOW), None, "{foreign}");
        }
        let later = write(&seen(1, b"n"), NOW * 1000, true).replacen("\"v\":1", "\"v\":2", 1);
        assert_eq!(read(later.as_bytes(), NOW, NOW), None);
        let more =
            write(&seen(1, b"n"), NOW * 1000, true).replacen("\"v\":1", "\"v\":1,\"new\":[1]", 1);
        assert!(read(more.as_bytes(), NOW, NOW).is_some());
    }
}
