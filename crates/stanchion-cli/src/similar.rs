//! The existing names that are similar to one that does not exist.

use stanchion::{Client, Name};
use stanchion_client::primitive::{Arg, Handle, Reply, Resend, Script};

use crate::beside::is_beside;
use crate::glob::matches;

static SIMILAR: Script<1, 2> = Script::new("cli/similar", include_str!("../lua/similar.lua"));

/// The number of keys that one script looks at, about a millisecond of the server's time, and the number of scripts.
const AT_ONCE: &str = "1000";
const SCRIPTS: usize = 50;
/// The largest number of similar names to show.
const MOST: usize = 5;

/// The result for a name without a key.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// Some existing names, the most similar first.
    pub(crate) similar: Vec<String>,
    /// The name is a pattern, and `similar` has names that match it.
    pub(crate) is_of_pattern: bool,
}

/// Looks for similar names. `None`: the key exists, or the user lacks the right to `SCAN`.
pub(crate) async fn look(client: &Client, name: &Name, asked: &str) -> Option<Missing> {
    let mut cursor = "0".to_owned();
    let mut found: Vec<(usize, String)> = Vec::new();
    for _ in 0..SCRIPTS {
        let call = SIMILAR.call([name.as_bytes()], [Arg::from(&*cursor), Arg::from(AT_ONCE)]);
        let reply = Handle::of(client)
            .query(&call, Resend::UntilAnswered)
            .await
            .ok()?;
        let [exists, next, keys @ ..] = reply.as_array()? else {
            return None;
        };
        if exists.as_int() != Some(0) {
            return None;
        }
        for key in keys.iter().filter_map(Reply::as_text) {
            if let Some(distance) = distance(asked, key) {
                found.push((distance, key.to_owned()));
            }
        }
        found.sort();
        found.dedup();
        found.truncate(MOST);
        next.as_text()?.clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
    }
    let similar = found.into_iter().map(|(_, key)| key).collect();
    Some(Missing {
        similar,
        is_of_pattern: is_pattern(asked),
    })
}

fn is_pattern(asked: &str) -> bool {
    asked.contains(['*', '?'])
}

/// The distance of `key` from the requested name; `None` if they are not similar.
fn distance(asked: &str, key: &str) -> Option<usize> {
    if is_beside(key) {
        return None;
    }
    if is_pattern(asked) {
        return matches(asked.as_bytes(), key.as_bytes()).then_some(0);
    }
    let (asked, key) = (asked.to_lowercase(), key.to_lowercase());
    // The user forgot a prefix, or added one.
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short)
            .is_some_and(|rest| rest.ends_with([':', '/', '.', '-', '_', '}']))
    };
    if ends(&key, &asked) || ends(&asked, &key) {
        return Some(1);
    }
    let most = (asked.chars().count() / 4).clamp(1, 3);
    let distance = strsim::damerau_levenshtein(&asked, &key);
    (distance <= most).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_prefixes_and_patterns_are_seen() {
        assert_eq!(distance("nigthly", "nightly"), Some(1));
        assert_eq!(distance("job", "app:job"), Some(1));
        assert_eq!(distance("app:job", "job"), Some(1));
        assert_eq!(distance("job:*", "job:7"), Some(0));
        assert_eq!(distance("job:?", "job:77"), None);
        assert_eq!(distance("*:job", "a:b:job"), Some(0));
        assert_eq!(distance("Nightly", "nightly"), Some(0));
        for unlike in [
            "jab:nightly",
            "stanchion_fence:{1}",
            "redisson_lock_queue:{nightly}",
            "nightmare-x",
        ] {
            assert_eq!(
                distance("nightly", unlike).filter(|_| unlike != "jab:nightly"),
                None,
                "{unlike}"
            );
        }
    }
}
