//! Finds rate limiters that a Redisson process with a wrong clock uses: Redisson dates its permits by the clock of its own machine.

use std::time::Duration;

use stanchion::Client;
use stanchion::console::Reply;

use crate::beside;
use crate::entry::Entry;
use crate::kinds::server_micros;
use crate::look::{Kind, ask_all};
use crate::trouble::Trouble;

/// The largest number of limiters that are checked, and of entries of each.
const MOST: usize = 1000;
const ENTRIES: &str = "256";

/// The difference in ms between clocks that are right, at most.
const TOLERATED: u64 = 1000;

/// The beginning of the ids of our own entries, behind the byte with their length: bookings are entries of the future.
const OURS: &[u8] = b"stn0";

/// Adds the trouble to the limiters that have it, as far as the user may read them.
pub(super) async fn check(client: &Client, entries: &mut [Entry]) {
    let limiters = entries.iter_mut();
    let limiters = limiters.filter(|entry| entry.kind == Some(Kind::RateLimiter));
    let (mut asked, mut found) = (Vec::new(), Vec::new());
    for entry in limiters.take(MOST) {
        let (client, key) = (client.clone(), entry.key.clone());
        asked.push(async move { ahead(&client, &key).await });
        found.push(entry);
    }
    for (entry, ahead) in found.into_iter().zip(ask_all(asked).await) {
        entry.trouble.extend(ahead.map(Trouble::ClockAhead));
    }
}

/// The time by which Redisson's last entry is ahead of the server.
async fn ahead(client: &Client, key: &[u8]) -> Option<Duration> {
    let console = client.console_of(key)?;
    let name = stanchion::Name::new("", key, stanchion::client::Placement::Anywhere).ok()?;
    let now = server_micros(&console).await? / 1000;
    let (log, from) = (beside::log_of(&name), (now + TOLERATED).to_string());
    let asked = [
        b"ZRANGEBYSCORE".as_slice(),
        &log,
        from.as_bytes(),
        b"+inf",
        b"WITHSCORES",
        b"LIMIT",
        b"0",
        ENTRIES.as_bytes(),
    ];
    let reply = console.command(&asked).await.ok()?;
    let mut last = None;
    for pair in reply.as_array()?.chunks_exact(2) {
        let Reply::Bulk(entry) = &pair[0] else {
            continue;
        };
        if entry.get(1..).is_some_and(|id| id.starts_with(OURS)) {
            continue;
        }
        // Redisson's scores are whole numbers.
        let score = pair[1].as_text().and_then(|text| text.parse::<u64>().ok());
        last = last.max(score);
    }
    Some(Duration::from_millis(last?.saturating_sub(now)))
}
