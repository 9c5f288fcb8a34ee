//! Faults of names, found by a scan.

use std::collections::BTreeSet;
use std::time::Duration;

use stanchion::Client;

use super::clocks;
use super::finding::{Finding, Level};
use crate::beside;
use crate::entry::Entry;
use crate::exit::Failure;
use crate::look::Kind;
use crate::ls::{Names, ScanArgs, entries_of};
use crate::people::People;
use crate::scan::{self, Progress};
use crate::table::Tone;
use crate::trouble::Trouble;
use crate::wording::{Owner, printable};

/// The largest number of names shown for one kind of trouble.
const MOST: usize = 10;
/// A free lock with waiters is read again after this time: one of the waiters may be about to acquire it.
const AGAIN: Duration = Duration::from_secs(2);

/// Scans the keys, and lists the faults of each name.
pub(super) async fn check(
    client: &Client,
    limits: ScanArgs,
    pattern: &str,
    prefix: &str,
    people: &People,
) -> Result<Vec<Finding>, Failure> {
    let found = scan::scan(client, limits.limits(), &mut Progress::new(), |_| true).await?;
    let Names { mut entries, gaps } = entries_of(client, &found, pattern, prefix, people).await?;
    clocks::check(client, &mut entries).await;
    let mut findings = Vec::new();
    if !found.complete {
        findings.push(Finding::skip(
            "scan",
            format!("stopped after {} keys", found.keys),
            "--budget sets the time",
        ));
    }
    if let Some(line) = gaps.line() {
        findings.push(Finding::skip("scan", line, "run it again when they answer"));
    }
    let still = free_for_long(client, &entries).await;
    let mut troubled: Vec<(&Entry, &Trouble)> = entries
        .iter()
        .flat_map(|entry| entry.trouble.iter().map(move |trouble| (entry, trouble)))
        .filter(|(entry, trouble)| {
            !matches!(trouble, Trouble::OrphanQueue(_)) || still.contains(&entry.key)
        })
        .collect();
    // The kinds of trouble together, so that the shortened list has some of each.
    troubled.sort_by_key(|(_, trouble)| trouble.word());
    for of_a_kind in troubled.chunk_by(|a, b| a.1.word() == b.1.word()) {
        findings.extend(
            of_a_kind
                .iter()
                .take(MOST)
                .map(|(entry, trouble)| told(entry, trouble)),
        );
        if let Some((_, trouble)) = of_a_kind.get(MOST) {
            let more = of_a_kind.len() - MOST;
            let what = format!("{more} more names: {}", trouble.meaning());
            findings.push(Finding::warn(
                trouble.word(),
                what,
                "stanchion ls shows all",
            ));
        }
    }
    let lost = entries
        .iter()
        .filter(|entry| still.contains(&entry.key) && entry.trouble.is_empty());
    findings.extend(lost.take(MOST).map(lost_wake));
    findings.extend(endless(&found));
    if findings.iter().all(|finding| finding.level <= Level::Skip) {
        let what = format!(
            "{} names among {} keys, nothing wrong with them",
            entries.len(),
            found.keys
        );
        findings.push(Finding::ok("names", what));
    }
    Ok(findings)
}

/// Keys without a TTL, with the reason; a warning where there is none.
fn endless(found: &scan::Found) -> Vec<Finding> {
    let some = |it: &scan::Endless| {
        let keys: Vec<String> = it.some.iter().map(printable).collect();
        let more = if it.count > keys.len() as u64 {
            ", …"
        } else {
            ""
        };
        format!("{}{more}", keys.join(", "))
    };
    let of = |(reason, it): (&&'static str, &scan::Endless)| match *reason {
        "" => Finding::warn(
            "endless",
            format!(
                "{} keys without a TTL that should have one: {}",
                it.count,
                some(it)
            ),
            "a program has taken it away (PERSIST): DEL them when nobody uses the names",
        ),
        beside::LIMITER => Finding::ok(
            "endless",
            format!(
                "without a TTL: {} {reason}, with what was taken of them: {}",
                it.count,
                some(it)
            ),
        ),
        reason => Finding::ok(
            "endless",
            format!("without a TTL: {} {reason}: {}", it.count, some(it)),
        ),
    };
    found.endless.iter().map(of).collect()
}

fn told(entry: &Entry, trouble: &Trouble) -> Finding {
    let name = printable(&entry.key);
    let holder = entry
        .holder
        .as_ref()
        .map(|holder| Owner::of(&holder.owner).short());
    let what = match (trouble, holder) {
        (Trouble::NoTtl | Trouble::HolderGone, Some(holder)) => {
            format!("{name}: {} ({holder})", trouble.meaning())
        }
        _ => format!("{name}: {}", trouble.meaning()),
    };
    let advice = trouble.advice(&name);
    match trouble.tone() {
        Tone::Bad => Finding::fail(trouble.word(), what, advice),
        _ => Finding::warn(trouble.word(), what, advice),
    }
}

fn lost_wake(entry: &Entry) -> Finding {
    let (name, waiting) = (printable(&entry.key), entry.waiting.unwrap_or(0));
    Finding::warn(
        "lost-wake",
        format!(
            "{name}: free for {} s while {waiting} wait",
            AGAIN.as_secs()
        ),
        "messages do not arrive (see above), or those who wait are dead: they are forgotten within 150 s",
    )
}

/// Locks that are free while processes wait, and still are a while later. (One that passes from one to the next is free for a
/// moment, too.)
async fn free_for_long(client: &Client, entries: &[Entry]) -> BTreeSet<Vec<u8>> {
    let may_be = |entry: &&Entry| {
        let kind = matches!(
            entry.kind,
            Some(Kind::Lock | Kind::Rwlock | Kind::Fair | Kind::Job)
        );
        kind && !entry.held && entry.waiting.is_some_and(|many| many > 0)
    };
    let mut still = BTreeSet::new();
    let suspects: Vec<&Entry> = entries.iter().filter(may_be).collect();
    if suspects.is_empty() {
        return still;
    }
    // The head of a queue polls every 5 s at the latest, and a queue ends 150 s after its last request at the latest.
    tokio::time::sleep(AGAIN).await;
    for entry in suspects {
        if is_free(client, &entry.key).await {
            still.insert(entry.key.clone());
        }
    }
    still
}

async fn is_free(client: &Client, key: &[u8]) -> bool {
    let Some(console) = client.console_of(key) else {
        return false;
    };
    let asked = console.command(&[b"EXISTS".as_slice(), key]).await;
    asked.is_ok_and(|reply| reply.as_int() == Some(0))
}
