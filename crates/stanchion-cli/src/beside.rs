//! The keys and channels that are derived from a name, as `docs/protocol.md` lists them: classified and constructed.

use stanchion::Name;

use crate::look::Kind;

/// Role of a key that is derived from a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// The waiters of a fair lock, in order.
    Queue,
    /// The processes that wait.
    Line,
    /// The permits that are held: the plain semaphore's ledger.
    Ledger,
    /// The permits that are held: those with leases.
    Leases,
    /// The waiters of a fair lock, as long as their processes poll.
    Live,
    /// Shows the kind of the name, and has no other use for an operator.
    Mark,
    /// A counter or a note that stays when the name is at rest.
    Rest,
}

/// Prefixes, the kind that each one shows (`None`: several kinds have it), and the role of the key.
const PREFIXES: [(&str, Option<Kind>, Part); 34] = [
    ("redisson_lock_queue", Some(Kind::Fair), Part::Queue),
    ("redisson_lock_timeout", Some(Kind::Fair), Part::Mark),
    ("stanchion_fair_waiters", Some(Kind::Fair), Part::Live),
    ("stanchion_fair_wake", Some(Kind::Fair), Part::Mark),
    ("redisson_lock_token", None, Part::Rest),
    ("stanchion_job_last", Some(Kind::Job), Part::Mark),
    // A stored response: next to the lock that was the claim of its idempotency key.
    ("stanchion_done", None, Part::Rest),
    ("stanchion_leader", Some(Kind::Election), Part::Mark),
    ("stanchion_candidates", Some(Kind::Election), Part::Mark),
    ("stanchion_candidate_seen", Some(Kind::Election), Part::Mark),
    ("stanchion_candidate_rank", Some(Kind::Election), Part::Mark),
    ("stanchion_heir", Some(Kind::Election), Part::Rest),
    ("stanchion_heir_rests", Some(Kind::Election), Part::Rest),
    ("stanchion_bucket", Some(Kind::TokenBucket), Part::Mark),
    (
        "stanchion_limiter_written",
        Some(Kind::RateLimiter),
        Part::Rest,
    ),
    ("stanchion_barrier", Some(Kind::Barrier), Part::Mark),
    ("stanchion_barrier_in", Some(Kind::Barrier), Part::Rest),
    ("stanchion_double", Some(Kind::DoubleBarrier), Part::Mark),
    ("stanchion_double_in", Some(Kind::DoubleBarrier), Part::Rest),
    ("stanchion_line", None, Part::Line),
    ("stanchion_wake", None, Part::Rest),
    ("stanchion_rwlock_line", Some(Kind::Rwlock), Part::Line),
    ("stanchion_rwlock_wake", Some(Kind::Rwlock), Part::Rest),
    ("stanchion_rwlock_readers", Some(Kind::Rwlock), Part::Mark),
    ("stanchion_permits", Some(Kind::Semaphore), Part::Ledger),
    (
        "stanchion_semaphore_total",
        Some(Kind::Semaphore),
        Part::Mark,
    ),
    (
        "stanchion_semaphore_line",
        Some(Kind::Semaphore),
        Part::Line,
    ),
    (
        "stanchion_semaphore_wake",
        Some(Kind::Semaphore),
        Part::Rest,
    ),
    (
        "stanchion_semaphore_granted",
        Some(Kind::Semaphore),
        Part::Rest,
    ),
    (
        "stanchion_leased_line",
        Some(Kind::LeasedSemaphore),
        Part::Line,
    ),
    (
        "stanchion_leased_wake",
        Some(Kind::LeasedSemaphore),
        Part::Rest,
    ),
    ("stanchion_semaphore_idle", None, Part::Rest),
    ("stanchion_latch_deleted", Some(Kind::Latch), Part::Mark),
    ("stanchion_latch_idle", Some(Kind::Latch), Part::Mark),
];

/// The prefixes of the keys that all names of a hash slot share.
const SHARED: [&str; 2] = ["stanchion_fence", "stanchion_origin"];

/// Prefix of the keys in which clients publish their holds and waits.
pub(crate) const RECORD: &str = "stanchion_client";

/// Beginning of the key with the counter of tokens of a single name.
const TOKEN: &str = "redisson_lock_token";

/// Ends of keys that begin with the name.
const SUFFIXES: [(&str, Kind, Part); 3] = [
    ("timeout", Kind::LeasedSemaphore, Part::Leases),
    ("value", Kind::RateLimiter, Part::Mark),
    ("permits", Kind::RateLimiter, Part::Mark),
];

/// A key that is derived from a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Option<Kind>,
    pub(crate) part: Part,
}

/// Finds the name that a key is derived from. `None`: the key belongs to no single name, for example the counters of tokens.
///
/// `x` and `{x}` share Redisson's keys; those are counted as `x`'s.
pub(crate) fn owner_of(key: &[u8]) -> Option<Beside> {
    for (suffix, kind, part) in SUFFIXES {
        let head = key.strip_suffix(suffix.as_bytes());
        let Some(head) = head.and_then(|head| head.strip_suffix(b":")) else {
            continue;
        };
        let name = unbraced(head).or_else(|| head.contains(&b'{').then_some(head))?;
        return Some(Beside {
            name: name.to_vec(),
            kind: Some(kind),
            part,
        });
    }
    let at = key.iter().position(|byte| *byte == b':')?;
    let (prefix, rest) = (&key[..at], &key[at + 1..]);
    let prefix = std::str::from_utf8(prefix).ok()?;
    let (prefix, wrapped) = match prefix.strip_suffix("_braced") {
        Some(prefix) => (prefix, true),
        None => (prefix, false),
    };
    let (_, kind, part) = PREFIXES.iter().find(|(known, ..)| *known == prefix)?;
    let name = match unbraced(rest) {
        Some(inner) if !wrapped => inner,
        _ => rest,
    };
    Some(Beside {
        name: name.to_vec(),
        kind: *kind,
        part: *part,
    })
}

fn is_prefixed(key: &[u8]) -> bool {
    key.starts_with(b"redisson_") || key.starts_with(b"stanchion_")
}

/// Returns whether a scan reads this key as one that is derived from a name. A limiter's keys begin with the name, and the limiter is found
/// by its own key.
pub(crate) fn is_derived(key: &[u8]) -> bool {
    is_prefixed(key) || key.ends_with(b":timeout")
}

/// Returns whether a key is not a name that a user chose: it is derived from a name, or is a counter for many names.
pub(crate) fn is_beside(key: &str) -> bool {
    is_prefixed(key.as_bytes())
        || key.contains("}:redisson_")
        || key.contains('{') && SUFFIXES.iter().any(|(end, ..)| ends_with(key, end))
}

fn ends_with(key: &str, suffix: &str) -> bool {
    let head = key.strip_suffix(suffix);
    head.is_some_and(|head| head.ends_with(':'))
}

/// Why a rate limiter has no TTL.
pub(crate) const LIMITER: &str = "rate limiters made without a keep-alive time";

/// The reason why a derived key has no TTL; empty if it should have one.
pub(crate) fn stays(key: &[u8]) -> &'static str {
    let prefix = key.split(|byte| *byte == b':').next().unwrap_or_default();
    let prefix = prefix.strip_suffix(b"_braced").unwrap_or(prefix);
    match prefix {
        b"stanchion_fence" | b"redisson_lock_token" => {
            "counters of fencing tokens, which must not start again"
        }
        b"stanchion_origin" => "numbers that tell keyspaces apart",
        b"redisson_lock_queue" | b"redisson_lock_timeout" => {
            "queues of fair locks, until their last waiter has left"
        }
        b"stanchion_permits" => "ledgers of permits, until the last is given back",
        // Redisson's keys: a semaphore's, or another program's.
        _ if !key.starts_with(b"stanchion_") => "permits, as Redisson keeps them",
        _ => "",
    }
}

/// Returns whether the loss of this key has no effect: a token starts from the clock (P2), an origin only distinguishes keyspaces, and
/// clients publish their records again.
pub(crate) fn is_begun_anew(key: &[u8]) -> bool {
    let prefixes = [SHARED[0], SHARED[1], RECORD, TOKEN];
    prefixes.iter().any(|it| key.starts_with(it.as_bytes()))
}

/// `x` of `{x}`, if there are no other braces.
fn unbraced(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'{', inner @ .., b'}'] if !inner.contains(&b'{') => Some(inner),
        _ => None,
    }
}

/// Every key that may be derived from `name`.
pub(crate) fn keys_of(name: &Name) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = PREFIXES
        .iter()
        .flat_map(|(prefix, ..)| [name.prefixed(prefix), name.prefixed_alone(prefix)])
        .collect();
    keys.extend(SUFFIXES.map(|(suffix, ..)| name.suffixed(suffix)));
    let mut seen = std::collections::BTreeSet::new();
    keys.retain(|key| seen.insert(key.clone()));
    keys
}

/// The derived keys of `name` that show its kind by their presence, for the kinds that the name's own key does not show.
pub(crate) fn signs_of(name: &Name) -> Vec<(Kind, Vec<u8>)> {
    let of_row = |(prefix, kind, part): &(&str, Option<Kind>, Part)| match (kind, part) {
        (
            Some(
                kind @ (Kind::Election
                | Kind::Job
                | Kind::TokenBucket
                | Kind::Barrier
                | Kind::DoubleBarrier),
            ),
            Part::Mark,
        ) => Some((*kind, name.prefixed_alone(prefix))),
        _ => None,
    };
    PREFIXES.iter().filter_map(of_row).collect()
}

/// The log of a rate limiter.
pub(crate) fn log_of(name: &Name) -> Vec<u8> {
    name.suffixed("permits")
}

/// The keys that `name` shares with all names of its hash slot, with the patterns that allow them.
pub(crate) fn shared_keys(name: &Name) -> impl Iterator<Item = (Vec<u8>, String)> {
    SHARED
        .iter()
        .map(|prefix| (name.slot_key(prefix), format!("{prefix}:*")))
}

/// The channel on which Redisson's clients receive the message that `name` was released.
pub(crate) fn channel_of(name: &Name, kind: Kind) -> Vec<u8> {
    match kind {
        Kind::Lock | Kind::Fair | Kind::Election | Kind::Job => {
            name.prefixed("redisson_lock__channel")
        }
        Kind::Rwlock => name.prefixed("redisson_rwlock"),
        Kind::Semaphore | Kind::LeasedSemaphore => name.prefixed("redisson_sc"),
        Kind::Latch => name.braced("redisson_countdownlatch__channel__"),
        // Redisson's limiters have none.
        Kind::RateLimiter | Kind::TokenBucket => name.prefixed("stanchion_limiter"),
        Kind::Barrier => name.prefixed_alone("stanchion_barrier"),
        Kind::DoubleBarrier => name.prefixed_alone("stanchion_double"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanchion::client::Placement;

    #[test]
    fn keys_next_to_a_name_belong_to_the_name() {
        for text in ["job", "a{7}b", "{x", "with\nnewline"] {
            let name = Name::new("", text, Placement::Anywhere).unwrap();
            for key in keys_of(&name) {
                let shown = String::from_utf8_lossy(&key).into_owned();
                let owner = owner_of(&key).unwrap_or_else(|| panic!("{shown:?} is nobody's"));
                assert_eq!(owner.name, text.as_bytes(), "{shown:?}");
                assert!(is_beside(&shown), "{shown:?}");
            }
        }
    }

    #[test]
    fn a_name_in_braces_has_keys_of_its_own_where_redisson_has_none() {
        let wrapped = Name::new("", "{x}", Placement::Anywhere).unwrap();
        let line = wrapped.prefixed_alone("stanchion_line");
        assert_eq!(owner_of(&line).unwrap().name, b"{x}");
        assert_eq!(owner_of(b"redisson_lock_queue:{x}").unwrap().name, b"x");
    }

    #[test]
    fn a_queue_shows_the_kind_of_its_name_unless_it_is_a_locks() {
        for (key, kind) in [
            ("stanchion_line:{x}", None),
            ("stanchion_rwlock_line:{x}", Some(Kind::Rwlock)),
            ("stanchion_semaphore_line:{x}", Some(Kind::Semaphore)),
            ("stanchion_leased_line:{x}", Some(Kind::LeasedSemaphore)),
        ] {
            let owner = owner_of(key.as_bytes()).unwrap();
            assert_eq!((owner.kind, owner.part), (kind, Part::Line), "{key}");
        }
    }

    #[test]
    fn unknown_keys_are_left_alone() {
        for key in ["stanchion_fence:{@@@A}", "user:1", "job", "a:timeout"] {
            let beside = owner_of(key.as_bytes());
            assert_eq!(beside, None, "{key}");
        }
    }
}
