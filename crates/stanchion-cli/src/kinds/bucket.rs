//! The facts that are shown of a token bucket. The server knows when the bucket is full, but not its limits: each request brings them.

use std::time::Duration;

use serde_json::json;
use stanchion::Client;

use super::{Facts, time_at};
use crate::beside;
use crate::exit::{self, Failure, Library};
use crate::look::Kind;
use crate::output::whole_millis;
use crate::wording::{Owner, age};

/// 2024-01-01, from which the bucket's moments count.
const EPOCH: u64 = 1_704_067_200_000_000;

pub(super) async fn read(client: &Client, name: &[u8]) -> Result<Facts, Failure> {
    let name = client.name(name).map_err(Library)?;
    let mut facts = Facts::nothing(Kind::TokenBucket, "full");
    facts.waiting = None;
    let signs = beside::signs_of(&name).into_iter();
    let mut keys = signs.filter(|(kind, _)| *kind == Kind::TokenBucket);
    let (Some((_, key)), Some(console)) = (keys.next(), client.console_of(name.as_bytes())) else {
        return Ok(facts);
    };
    let (stored, now) = tokio::join!(
        async { console.command(&[b"GET".as_slice(), &key]).await },
        time_at(client, &name)
    );
    let stored = stored.map_err(Library)?;
    let Some((owner, full)) = stored.as_text().and_then(taken) else {
        return match stored.as_text() {
            None => Ok(facts),
            Some(_) => {
                let rule = "a text that is no token bucket";
                Err(Failure::new(exit::CONFIG, format_args!("{name}: {rule}")))
            }
        };
    };
    facts.exists = true;
    let left = now.map_or(0, |now| (full + EPOCH).saturating_sub(now));
    let left = Duration::from_micros(left);
    if !left.is_zero() {
        facts.state = format!("full in {}", age(left));
        facts.brief = Some(format!("full in {}", age(left)));
    }
    let limits = stored
        .as_text()
        .map_or(0, |text| text.split(' ').count() - 1);
    facts.more.push((
        "limits",
        format!("{limits}, which those who take from it bring"),
    ));
    // There is no owner after the last grant was given back.
    if owner != "-" {
        facts
            .more
            .push(("last taken", format!("by {}", Owner::of(owner).short())));
    }
    facts
        .json
        .insert("full_again_ms".into(), json!(whole_millis(left)));
    facts.json.insert("limits".into(), json!(limits));
    facts.json.insert("last_taken_by".into(), json!(owner));
    Ok(facts)
}

/// The owner of the last grant, and the moment at which all limits are full again, in µs.
fn taken(text: &str) -> Option<(&str, u64)> {
    let mut words = text.split(' ');
    let owner = words.next()?;
    let mut last = None;
    for moment in words {
        // Whole microseconds are enough.
        let micros: u64 = moment.split('.').next()?.parse().ok()?;
        last = last.max(Some(micros));
    }
    Some((owner, last?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_full_with_its_last_limit() {
        assert_eq!(taken("u:1 12.500 7.000"), Some(("u:1", 12)));
        assert_eq!(taken("- 3.000"), Some(("-", 3)));
        for odd in ["", "u:1", "u:1 soon", "u:1 -3"] {
            assert_eq!(taken(odd), None, "{odd:?}");
        }
    }
}
