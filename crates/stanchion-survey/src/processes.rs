//! Processes behind owners, from the names of their connections.
//!
//! Each connection of a client is named `stanchion:<uuid>:<app>:<pid>@<host>` on the server. The name of a background connection ends with
//! `:bg`, that of a connection for messages with `:sub`. Therefore `CLIENT LIST` shows which process the first part of an owner belongs to.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use uuid::Uuid;

use stanchion_core::primitive::{Handle, as_millis, unexpected};
use stanchion_core::{QueryError, Rejection};

use crate::Unreached;
use crate::console::{consoles, is_outage};

/// Returns the processes that are connected now: see `Client::processes`.
///
/// # Errors
/// [`QueryError`], if no server answers.
pub async fn processes(handle: &Handle) -> Result<Processes, QueryError> {
    let consoles = consoles(handle);
    let lists = consoles
        .iter()
        .map(|console| console.command(&["CLIENT", "LIST"]));
    let (mut found, mut permitted) = (BTreeMap::new(), false);
    let (mut unreached, mut outage) = (Vec::new(), None);
    for (console, listed) in consoles.iter().zip(join_all(lists).await) {
        match listed {
            Ok(reply) => {
                permitted = true;
                let text = reply.as_text().ok_or_else(|| unexpected(&reply))?;
                collect(text, &mut found);
            }
            Err(QueryError::Rejected {
                rejection: Rejection::NotPermitted { .. },
            }) => {}
            Err(error) if is_outage(&error) => {
                Unreached::add(&mut unreached, console.server().to_owned(), &error);
                outage = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match outage {
        Some(error) if unreached.len() == consoles.len() => Err(error),
        _ => Ok(Processes {
            list: permitted.then(|| found.into_values().collect()),
            unreached,
        }),
    }
}

/// The connected clients, as far as the servers answer. See [`processes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Processes {
    /// The clients, ordered by id. `None`: the user may not list connections (`+client|list`).
    pub list: Option<Vec<Process>>,
    /// The servers that did not answer. A client without a connection to another server is missing.
    pub unreached: Vec<Unreached>,
}

/// A client of this library as its servers see it, in this process or in another. See [`processes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Process {
    /// The id of the client: the first part of each of its owners.
    #[serde(serialize_with = "text")]
    pub client: Uuid,
    /// The name of the application: `ClientConfig::name`.
    pub app: String,
    /// The process id on its machine. `None`: the client does not publish it (`Presence::Off`, an older version).
    pub pid: Option<u32>,
    /// The name of its machine. `None`: the client does not publish it, or runs on another system than Linux.
    pub host: Option<String>,
    /// The address of its oldest connection, as the server sees it.
    pub address: String,
    /// The user that it is logged in as; `None` if the server does not report the user.
    pub user: Option<String>,
    /// The age of its oldest connection, in whole seconds. The client has been connected for at least this long.
    #[serde(rename = "connected_ms", serialize_with = "millis")]
    pub connected: Duration,
    /// The number of its connections, on all servers.
    pub connections: u32,
}

impl Process {
    /// Returns whether this client made `owner`, a holder as a status shows it.
    #[must_use]
    pub fn is_of(&self, owner: &str) -> bool {
        let client = owner.split_once(':').map(|(client, _)| client);
        client.and_then(|it| it.parse().ok()) == Some(self.client)
    }
}

/// Adds the clients in a list of connections to `found`.
fn collect(list: &str, found: &mut BTreeMap<Uuid, Process>) {
    for line in list.lines() {
        let Some(seen) = read(line) else { continue };
        let known = found.entry(seen.client).or_insert_with(|| Process {
            connections: 0,
            ..seen.clone()
        });
        known.connections += 1;
        if seen.connected > known.connected {
            known.connected = seen.connected;
            known.address = seen.address;
        }
    }
}

/// Reads one connection; `None` if it does not belong to this library.
fn read(line: &str) -> Option<Process> {
    // Redis and Valkey add fields with each version and promise no order, so fields are found by name.
    let field = |name: &str| {
        let mut fields = line.split(' ').filter_map(|pair| pair.split_once('='));
        fields.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let mut name = field("name")?.split(':');
    if name.next() != Some("stanchion") {
        return None;
    }
    // The name of another program's connection may have any form.
    let client = name.next()?.parse().ok()?;
    let app = name.next()?.to_owned();
    let place = name.next().and_then(|part| part.split_once('@'));
    Some(Process {
        client,
        app,
        pid: place.and_then(|(pid, _)| pid.parse().ok()),
        host: place.and_then(|(_, host)| (!host.is_empty()).then(|| host.to_owned())),
        address: field("addr").unwrap_or_default().to_owned(),
        user: field("user").map(str::to_owned),
        connected: Duration::from_secs(field("age").and_then(|it| it.parse().ok()).unwrap_or(0)),
        connections: 1,
    })
}

fn millis<S: serde::Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    as_millis(&Some(*length), serializer)
}

fn text<S: serde::Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0197a6f1-7425-80de-944b-e07fc1f90ae7";

    fn found(list: &str) -> Vec<Process> {
        let mut found = BTreeMap::new();
        collect(list, &mut found);
        found.into_values().collect()
    }

    #[test]
    fn the_connections_of_a_client_are_one_process() {
        let list = format!(
            "id=3 addr=10.0.0.7:51324 laddr=10.0.0.1:6379 fd=8 name=stanchion:{ID}:orders-api:88@web-1 age=7 idle=0 user=app resp=2\n\
             id=4 addr=10.0.0.7:51325 fd=9 name=stanchion:{ID}:orders-api:88@web-1:bg age=9 user=app lib-name=stanchion\n\
             id=5 addr=10.0.0.8:1 name= age=70 user=default\n\
             id=6 addr=[::1]:1 name=stanchion:not-a-uuid:x age=1\n\
             id=7 addr=/run/s:0 name=stanchion age=1\n\
             nonsense\n"
        );
        let [process] = &found(&list)[..] else {
            panic!("{:?}", found(&list));
        };
        assert_eq!(process.app, "orders-api");
        assert_eq!(
            (process.pid, process.host.as_deref()),
            (Some(88), Some("web-1"))
        );
        assert_eq!(process.address, "10.0.0.7:51325");
        assert_eq!(process.user.as_deref(), Some("app"));
        assert_eq!(process.connected, Duration::from_secs(9));
        assert_eq!(process.connections, 2);
        assert!(process.is_of(&format!("{ID}:42")));
        assert!(!process.is_of(ID) && !process.is_of("7c9e6679-7425-40de-944b-e07fc1f90ae7:42"));
    }

    #[test]
    fn fields_may_be_missing_and_in_any_order() {
        let list = format!("name=stanchion:{ID}::sub id=9");
        let [process] = &found(&list)[..] else {
            panic!("one process");
        };
        assert_eq!((process.pid, process.host.as_ref()), (None, None));
        assert_eq!((process.app.as_str(), process.address.as_str()), ("", ""));
        assert_eq!(
            (process.user.as_ref(), process.connected),
            (None, Duration::ZERO)
        );
    }
}
