//! The state of a read-write lock as the server reports it.

use std::time::Duration;

use serde::Serialize;
use stanchion_client::primitive::{Reply, as_millis, natural, unexpected};
use stanchion_client::{FencingToken, HoldMode, NameHolder, NameState, QueryError};

use crate::layout::WRITE;

/// The state of a read-write lock at the time of the server's reply. The lock may have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RwLockStatus {
    /// The writer, if there is one.
    pub writer: Option<RwLockHolder>,
    /// The readers: all of them, or 1000 chosen at random. While there is a writer, its own read holds.
    pub readers: Vec<RwLockHolder>,
    /// The number of owners that read. Readers whose lease has ended do not count; Redisson's count until a script finds
    /// them dead.
    pub reader_count: u64,
    /// The rest of the longest lease; `None` when the lock is free, or has no TTL (locks of stanchion and Redisson
    /// always have one).
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
    /// True while a writer waits at the head of the queue and holds new readers off. Always false if the lock was asked without
    /// [`Preference::Writer`](crate::Preference::Writer).
    pub readers_held_off: bool,
    /// The last fencing token of the counter that this lock uses. By default that is a counter that the names of one hash
    /// slot share.
    pub last_token: Option<FencingToken>,
    /// The number of waiting processes. Processes with this library are counted exactly, from the queue on the server and their
    /// subscriptions. A process that only polls ([`Wake::Poll`](stanchion_client::Wake::Poll)) counts until a script finds it dead. Redisson
    /// processes are counted by their subscriptions. `None` when the user may not count these (`+pubsub`), or no reply came.
    pub waiting_processes: Option<u64>,
}

/// A holder of a read-write lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct RwLockHolder {
    /// The owner: `<client uuid>:<number>`, for Redisson `<instance uuid>:<thread id>`.
    pub owner: String,
    /// The number of its holds.
    pub hold_count: u32,
    /// The rest of its lease; of a reader in Redisson with several holds that of its first. `None` when the server does not report it.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
}

impl RwLockStatus {
    /// The most holders that a status lists: a reply of a few tens of kilobytes.
    pub(crate) const MOST: u32 = 1000;

    /// Returns whether the lock had a reader or a writer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-is_held").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let reading = prices.read().await?;
    /// assert!(prices.status().await?.is_held()); // by any client, this one included
    /// reading.release().await?;
    /// assert!(!prices.status().await?.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.writer.is_some() || self.reader_count > 0
    }

    /// Converts the status to the state that events report.
    pub(crate) fn seen(self) -> NameState {
        let unlisted = self.reader_count.saturating_sub(self.readers.len() as u64);
        let seen = |mode| {
            move |it: RwLockHolder| {
                NameHolder::new(it.owner, mode, it.hold_count).remaining(it.remaining)
            }
        };
        let writer = self.writer.into_iter().map(seen(HoldMode::Exclusive));
        let readers = self.readers.into_iter().map(seen(HoldMode::Shared));
        NameState::held(writer.chain(readers).collect(), unlisted)
    }

    pub(crate) fn read(reply: &Reply) -> Result<Self, QueryError> {
        Self::parse(reply).ok_or_else(|| unexpected(reply))
    }

    fn parse(reply: &Reply) -> Option<Self> {
        let [ttl, token, mode, holders, writer_waits, fields @ ..] = reply.as_array()? else {
            return None;
        };
        let holders = natural(holders)?;
        let mut status = Self {
            remaining: u64::try_from(ttl.as_int()?).ok().map(Duration::from_millis),
            readers_held_off: writer_waits.as_int()? == 1,
            last_token: natural(token).and_then(FencingToken::new),
            ..Self::default()
        };
        let is_written = mode.as_text()? == "write";
        for triple in fields.chunks_exact(3) {
            let [field, count, left] = triple else {
                return None;
            };
            let hold_count = count.as_int()?.try_into().ok()?;
            let remaining = natural(left).map(Duration::from_millis);
            let field = field.as_text()?;
            match field.strip_suffix(WRITE).filter(|_| is_written) {
                Some(owner) => {
                    status.writer = Some(RwLockHolder {
                        owner: owner.to_owned(),
                        hold_count,
                        remaining: status.remaining,
                    });
                }
                None => status.readers.push(RwLockHolder {
                    owner: field.to_owned(),
                    hold_count,
                    remaining,
                }),
            }
        }
        status.readers.sort();
        status.reader_count = holders - u64::from(status.writer.is_some()).min(holders);
        Some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    fn holder(owner: &str, hold_count: u32, remaining: Option<u64>) -> RwLockHolder {
        RwLockHolder {
            owner: owner.into(),
            hold_count,
            remaining: remaining.map(Duration::from_millis),
        }
    }

    #[test]
    fn a_writer_that_reads_is_both() {
        let reply = Reply::Array(vec![
            Reply::Int(1500),
            text("17"),
            text("write"),
            Reply::Int(2),
            Reply::Int(1),
            text("u:1:write"),
            text("2"),
            Reply::Int(-2),
            text("u:2"),
            text("1"),
            Reply::Int(700),
        ]);
        let status = RwLockStatus::read(&reply).unwrap();
        assert_eq!(status.writer, Some(holder("u:1", 2, Some(1500))));
        assert_eq!(status.readers, [holder("u:2", 1, Some(700))]);
        assert_eq!(status.reader_count, 1);
        assert_eq!(status.remaining, Some(Duration::from_millis(1500)));
        assert_eq!(status.last_token, FencingToken::new(17));
        assert!(status.readers_held_off && status.is_held());
    }

    #[test]
    fn a_free_lock_has_no_holder() {
        let nothing = [
            Reply::Int(-2),
            text(""),
            text(""),
            Reply::Int(0),
            Reply::Int(0),
        ];
        let status = RwLockStatus::read(&Reply::Array(nothing.into())).unwrap();
        assert_eq!(status, RwLockStatus::default());
        assert!(!status.is_held());
    }

    #[test]
    fn anything_else_is_refused() {
        for odd in [
            Reply::Nil,
            Reply::Int(1),
            Reply::Array(vec![Reply::Int(1); 4]),
        ] {
            assert!(RwLockStatus::read(&odd).is_err(), "{odd:?}");
        }
    }
}
