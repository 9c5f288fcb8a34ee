//! Survey of all processes.

use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use super::announcer::{Keys, LASTS};
use super::{Survey, SurveyedClient, local, record};
use crate::client::Client;
use crate::console::Console;
use crate::error::QueryError;
use crate::millis::whole_millis;
use crate::reading::unexpected;
use stanchion_transport::{Outage, Reply};

/// The number of records that are requested together.
const TOGETHER: usize = 128;

impl Client {
    /// Returns the reported holds and waits of the clients on these servers. A client reports while it has a hold that is at least 5 s old
    /// or a call that has waited for at least 1 s, and refreshes its report every 10 s. This client is included with its current state.
    ///
    /// Not included: clients with [`Presence::Off`](crate::Presence::Off) or without the right to write their records, older versions, Redisson's,
    /// and clients with another key prefix. The reports are not verified: a user that may write the records can write anything.
    ///
    /// On the wire: `ZRANGEBYSCORE` and one `GET` for each client, up to 64 KiB each. Needs the rights to read
    /// `stanchion_client*`; with the right to write, expired processes are removed from the list.
    ///
    /// # Errors
    /// [`QueryError`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn survey(&self) -> Result<Survey, QueryError> {
        let keys = Keys::new(&self.core().config);
        let list = self.place(&keys.list)?;
        let now = time(&list).await?;
        let before = (now - 1).to_string();
        let clean = [
            b"ZREMRANGEBYSCORE",
            keys.list.as_slice(),
            b"-inf",
            before.as_bytes(),
        ];
        // This fails if the user may only read. The result is the same without it.
        list.command(&clean).await.ok();
        let from = now.to_string();
        let living = [
            b"ZRANGEBYSCORE",
            keys.list.as_slice(),
            from.as_bytes(),
            b"+inf",
            b"WITHSCORES",
        ];
        let reply = list.command(&living).await?;
        let told = listed(&reply).ok_or_else(|| unexpected(&reply))?;
        let mut clients = Vec::new();
        for some in told.chunks(TOGETHER) {
            let each = some
                .iter()
                .filter(|(id, _)| *id != self.id())
                .map(|(id, until)| self.read(keys.record(id), now, *until));
            for client in join_all(each).await {
                clients.extend(client?);
            }
        }
        let own = local::look_now(self.core());
        if !own.holds.is_empty() || !own.waits.is_empty() {
            clients.push(own);
        }
        clients.sort_by_key(|it| it.client);
        Ok(Survey { clients })
    }

    async fn read(
        &self,
        key: Vec<u8>,
        now: u64,
        until: u64,
    ) -> Result<Option<SurveyedClient>, QueryError> {
        match self.place(&key)?.command(&[b"GET", key.as_slice()]).await? {
            Reply::Bulk(text) => {
                let told = until.saturating_sub(whole_millis(LASTS));
                Ok(record::read(&text, now, told))
            }
            // The record has expired.
            _ => Ok(None),
        }
    }

    fn place(&self, key: &[u8]) -> Result<Console, QueryError> {
        self.console_of(key).ok_or_else(|| QueryError::Unavailable {
            outage: Outage::Unanswered {
                detail: "no server is known to own the key".into(),
            },
        })
    }
}

/// The server's time, in ms.
async fn time(console: &Console) -> Result<u64, QueryError> {
    let reply = console.command(&["TIME"]).await?;
    let read = || {
        let [seconds, micros] = reply.as_array()? else {
            return None;
        };
        let seconds = Duration::from_secs(seconds.as_int()?.try_into().ok()?);
        let micros = Duration::from_micros(micros.as_int()?.try_into().ok()?);
        Some(whole_millis(seconds + micros))
    };
    read().ok_or_else(|| unexpected(&reply))
}

/// Returns the clients in the list, and when their records expire. An entry that is not an id belongs to another program.
fn listed(reply: &Reply) -> Option<Vec<(Uuid, u64)>> {
    let pair = |pair: &[Reply]| {
        let id: Uuid = pair.first()?.as_text()?.parse().ok()?;
        Some((id, u64::try_from(pair.get(1)?.as_int()?).ok()?))
    };
    Some(reply.as_array()?.chunks(2).filter_map(pair).collect())
}
