//! Leaders and candidates, as the server reports them.

use std::time::Duration;

use serde::{Serialize, Serializer};
use stanchion_client::primitive::{Reply, as_millis, holder_in, natural, unexpected};
use stanchion_client::{FencingToken, QueryError};

/// The leader of an election, as the server replied. The state may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Leader {
    /// The owner, `<client uuid>:<number>`, a new one for each term. For Redisson `<instance uuid>:<thread id>`.
    pub id: String,
    /// The fencing token of the term; `None` without tokens, and for a holder of the plain lock (Redisson's) of that name.
    pub token: Option<FencingToken>,
    /// The value of the campaign, or the value that was proclaimed last; `None` for a holder of the plain lock.
    #[serde(serialize_with = "as_text")]
    pub value: Option<Vec<u8>>,
    /// The priority; 0 for a holder of the plain lock.
    pub priority: i32,
    /// The remaining lease; `None` for a lock without a TTL, which no stanchion or Redisson lock is.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
    /// The time since the leader was elected, by the server's clock; `None` for a holder of the plain lock.
    #[serde(serialize_with = "as_millis")]
    pub since: Option<Duration>,
}

/// A candidate: a process that campaigns. The leader is not a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Candidate {
    /// The owner, `<client uuid>:<number>`, a new one for each campaign. This is the argument of
    /// [`hand_over`](crate::Leadership::hand_over).
    pub id: String,
    /// The priority.
    pub priority: i32,
    /// The value of the campaign.
    #[serde(serialize_with = "bytes_as_text")]
    pub value: Vec<u8>,
    /// The time until it stops being a candidate, unless it sends another request; it polls every 5 s.
    #[serde(serialize_with = "one_as_millis")]
    pub remaining: Duration,
}

/// The leader, with the number of its value. Observers compare these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) leader: Option<Leader>,
    /// The number as the server wrote it; empty for none.
    pub(crate) change: String,
}

impl Sight {
    pub(crate) fn read(reply: &Reply) -> Result<Self, QueryError> {
        let bad = || unexpected(reply);
        let [now, ttl, rest @ ..] = reply.as_array().ok_or_else(bad)? else {
            return Err(bad());
        };
        let (fields, term) = rest.split_at(rest.len().min(2));
        let Some((id, _)) = holder_in(fields)? else {
            return Ok(Self::default());
        };
        let ttl = ttl.as_int().ok_or_else(bad)?;
        let mut sight = Self::default();
        let mut leader = Leader {
            id,
            token: None,
            value: None,
            priority: 0,
            remaining: u64::try_from(ttl).ok().map(Duration::from_millis),
            since: None,
        };
        if let [priority, since, token, change, value] = term {
            let now = natural(now).ok_or_else(bad)?;
            leader.priority = number(priority).unwrap_or_default();
            leader.since = natural(since).map(|us| Duration::from_micros(now.saturating_sub(us)));
            leader.token = natural(token).and_then(FencingToken::new);
            leader.value = bytes(value);
            change
                .as_text()
                .unwrap_or_default()
                .clone_into(&mut sight.change);
        }
        sight.leader = Some(leader);
        Ok(sight)
    }

    /// The leader's owner; empty for none.
    pub(crate) fn owner(&self) -> &str {
        self.leader.as_ref().map_or("", |leader| &leader.id)
    }
}

impl Candidate {
    pub(crate) fn read_all(reply: &Reply) -> Result<Vec<Self>, QueryError> {
        let items = reply.as_array().ok_or_else(|| unexpected(reply))?;
        let candidate = |three: &[Reply]| {
            let [id, left, entry] = three else {
                return None;
            };
            let entry = bytes(entry)?;
            let at = entry.iter().position(|byte| *byte == b' ')?;
            let priority = std::str::from_utf8(&entry[..at]).ok()?.parse().ok()?;
            Some(Self {
                id: id.as_text()?.to_owned(),
                priority,
                value: entry[at + 1..].to_vec(),
                remaining: Duration::from_millis(natural(left)?),
            })
        };
        items
            .chunks(3)
            .map(|three| candidate(three).ok_or_else(|| unexpected(reply)))
            .collect()
    }
}

fn number(reply: &Reply) -> Option<i32> {
    i32::try_from(reply.as_int()?).ok()
}

fn bytes(reply: &Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

/// Serializes the bytes as text, with `\u{fffd}` for invalid UTF-8.
fn as_text<S: Serializer>(value: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = value.as_deref().map(String::from_utf8_lossy);
    text.serialize(serializer)
}

fn bytes_as_text<S: Serializer>(value: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    String::from_utf8_lossy(value).serialize(serializer)
}

fn one_as_millis<S: Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    as_millis(&Some(*length), serializer)
}
