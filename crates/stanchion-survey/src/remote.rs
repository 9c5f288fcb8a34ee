//! Survey of all processes.

use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use stanchion_core::QueryError;
use stanchion_core::primitive::{Handle, unexpected, whole_millis};
use stanchion_transport::{Outage, Reply};

use crate::announcer::{Keys, LASTS};
use crate::console::{Console, console_of};
use crate::{Survey, SurveyedClient, local, record};

/// The number of records that are requested together.
const TOGETHER: usize = 128;

/// Returns the holds and waits of all processes that report them: see `Client::survey`.
///
/// # Errors
/// [`QueryError`].
pub async fn survey(handle: &Handle) -> Result<Survey, QueryError> {
    let keys = Keys::new(handle.config());
    let list = place(handle, &keys.list)?;
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
            .filter(|(id, _)| *id != handle.id())
            .map(|(id, until)| read(handle, keys.record(id), now, *until));
        for client in join_all(each).await {
            clients.extend(client?);
        }
    }
    let own = local::local_survey(handle);
    if !own.holds.is_empty() || !own.waits.is_empty() {
        clients.push(own);
    }
    clients.sort_by_key(|it| it.client);
    Ok(Survey { clients })
}

async fn read(
    handle: &Handle,
    key: Vec<u8>,
    now: u64,
    until: u64,
) -> Result<Option<SurveyedClient>, QueryError> {
    match place(handle, &key)?
        .command(&[b"GET".as_slice(), key.as_slice()])
        .await?
    {
        Reply::Bulk(text) => {
            let told = until.saturating_sub(whole_millis(LASTS));
            Ok(record::read(&text, now, told))
        }
        // The record has expired.
        _ => Ok(None),
    }
}

fn place(handle: &Handle, key: &[u8]) -> Result<Console, QueryError> {
    console_of(handle, key).ok_or_else(|| QueryError::Unavailable {
        outage: Outage::Unanswered {
            detail: "no server is known to own the key".into(),
        },
    })
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
