//! Survey of all processes.

use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use stanchion_core::QueryError;
use stanchion_core::primitive::{Handle, unexpected, whole_millis};
use stanchion_transport::{Outage, Reply};

use crate::announcer::{Keys, LASTS};
use crate::console::{Console, console_of, consoles, is_outage};
use crate::{Survey, SurveyedClient, Unreached, local, processes, record};

/// The number of records that are requested together.
const TOGETHER: usize = 128;

/// Returns the holds and waits of all processes that report them: see `Client::survey`.
///
/// # Errors
/// [`QueryError`], if no server answers.
pub async fn survey(handle: &Handle) -> Result<Survey, QueryError> {
    let keys = Keys::new(handle.config());
    let mut unreached = Vec::new();
    let (now, told) = match list(handle, &keys).await {
        Ok(listed) => listed,
        Err(error) if is_outage(&error) => connected(handle, error, &mut unreached).await?,
        Err(error) => return Err(error),
    };
    let mut clients = Vec::new();
    for some in told.chunks(TOGETHER) {
        let each = some
            .iter()
            .filter(|(id, _)| *id != handle.id())
            .map(|(id, until)| read(handle, keys.record(id), now, *until));
        for client in join_all(each).await {
            match client {
                Ok(client) => clients.extend(client),
                Err((server, error)) if is_outage(&error) => {
                    Unreached::add(&mut unreached, server, &error);
                }
                Err((_, error)) => return Err(error),
            }
        }
    }
    let own = local::local_survey(handle);
    if !own.holds.is_empty() || !own.waits.is_empty() {
        clients.push(own);
    }
    clients.sort_by_key(|it| it.client);
    Ok(Survey { clients, unreached })
}

/// The clients that may have a record, each with the time at which the record expires, if the list has it.
type Listed = Vec<(Uuid, Option<u64>)>;

/// Reads the list of the clients that have a record. Returns the time of its server, in ms, too.
async fn list(handle: &Handle, keys: &Keys) -> Result<(u64, Listed), QueryError> {
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
    Ok((now, told))
}

/// Finds the clients by their connections, while the server of the list does not answer: records are spread over all servers.
async fn connected(
    handle: &Handle,
    error: QueryError,
    unreached: &mut Vec<Unreached>,
) -> Result<(u64, Listed), QueryError> {
    let consoles = consoles(handle);
    if consoles.len() < 2 {
        return Err(error);
    }
    let found = processes(handle).await?;
    *unreached = found.unreached;
    for console in consoles {
        if unreached.iter().any(|it| it.server == console.server()) {
            continue;
        }
        if let Ok(now) = time(&console).await {
            let clients = found.list.unwrap_or_default().into_iter();
            return Ok((now, clients.map(|it| (it.client, None)).collect()));
        }
    }
    Err(error)
}

/// Reads a record. An error has the server.
async fn read(
    handle: &Handle,
    key: Vec<u8>,
    now: u64,
    until: Option<u64>,
) -> Result<Option<SurveyedClient>, (String, QueryError)> {
    let console = place(handle, &key).map_err(|error| (String::new(), error))?;
    let failed = |error| (console.server().to_owned(), error);
    let get = [b"GET".as_slice(), key.as_slice()];
    let Reply::Bulk(text) = console.command(&get).await.map_err(failed)? else {
        // The record has expired.
        return Ok(None);
    };
    let lasts = whole_millis(LASTS);
    let until = match until {
        Some(until) => until,
        None => {
            let lasts = [b"PTTL".as_slice(), key.as_slice()];
            let left = console.command(&lasts).await.map_err(failed)?.as_int();
            now + left.and_then(|left| u64::try_from(left).ok()).unwrap_or(0)
        }
    };
    Ok(record::read(&text, now, until.saturating_sub(lasts)))
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
fn listed(reply: &Reply) -> Option<Listed> {
    let pair = |pair: &[Reply]| {
        let id: Uuid = pair.first()?.as_text()?.parse().ok()?;
        Some((id, Some(u64::try_from(pair.get(1)?.as_int()?).ok()?)))
    };
    Some(reply.as_array()?.chunks(2).filter_map(pair).collect())
}
