//! Which process an owner belongs to: what the server tells of its connections.

use std::collections::BTreeMap;
use std::fmt;

use stanchion::{Client, QueryError};

use crate::wording::{Origin, Owner};

/// A process that is, or was, a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Process {
    /// The name of the application.
    pub(crate) app: String,
    /// The address of one of its connections.
    pub(crate) address: String,
    /// The age of its oldest connection in seconds.
    pub(crate) connected_seconds: u64,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let app = if self.app.is_empty() { "?" } else { &self.app };
        write!(f, "{app}@{}", self.address)
    }
}

/// The processes by the uuid of their client.
#[derive(Clone, Debug, Default)]
pub(crate) struct People {
    processes: BTreeMap<String, Process>,
    /// False where the user may not list connections, or none of them says who it is.
    told: bool,
}

/// What our connections are called: `stanchion:<uuid>:<app>`.
const NAME: &str = "stanchion:";

impl People {
    /// Asks each server for its connections. A user without the right learns nobody's name.
    pub(crate) async fn ask(client: &Client) -> Result<Self, QueryError> {
        let mut people = Self::default();
        for console in client.consoles() {
            let reply = match console.command(&["CLIENT", "LIST"]).await {
                Ok(reply) => reply,
                Err(QueryError::Rejected { .. }) => continue,
                Err(error) => return Err(error),
            };
            people.read(reply.as_text().unwrap_or_default());
        }
        Ok(people)
    }

    fn read(&mut self, list: &str) {
        for line in list.lines() {
            let field = |name: &str| {
                let mut words = line.split(' ');
                words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            };
            let Some((uuid, app)) =
                field("name").and_then(|name| name.strip_prefix(NAME)?.split_once(':'))
            else {
                continue;
            };
            self.told = true;
            let age = field("age").and_then(|age| age.parse().ok()).unwrap_or(0);
            let address = field("addr").unwrap_or_default();
            // The role of the connection may follow the application: `…:sub`.
            let app = app.split(':').next().unwrap_or_default();
            let process = self.processes.entry(uuid.to_owned()).or_default();
            app.clone_into(&mut process.app);
            if age >= process.connected_seconds || process.address.is_empty() {
                process.connected_seconds = age;
                address.clone_into(&mut process.address);
            }
        }
    }

    /// The process of a client.
    pub(crate) fn of(&self, client: &str) -> Option<&Process> {
        self.processes.get(client)
    }

    /// Returns whether an owner's client is connected; `None` where nothing tells: Redisson's connections have no such names.
    pub(crate) fn is_connected(&self, owner: &Owner<'_>) -> Option<bool> {
        let known = self.told && owner.origin == Origin::Stanchion;
        known.then(|| self.processes.contains_key(owner.client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_tell_whose_they_are() {
        let mut people = People::default();
        let uuid = "7c9e0000-0000-8000-8000-000000000001";
        people.read(&format!(
            "id=3 addr=10.0.0.7:51324 laddr=x name=stanchion:{uuid}:billing age=9 idle=0 flags=N\n\
             id=4 addr=10.0.0.7:51325 laddr=x name=stanchion:{uuid}:billing:sub age=12 idle=0\n\
             id=5 addr=10.0.0.9:1 laddr=x name= age=12 idle=0\n"
        ));
        let process = people.of(uuid).unwrap();
        assert_eq!(process.to_string(), "billing@10.0.0.7:51325");
        let connected = |owner: &str| people.is_connected(&Owner::of(owner));
        assert_eq!(connected(&format!("{uuid}:4")), Some(true));
        assert_eq!(
            connected("7c9e0000-0000-8000-8000-000000000002:4"),
            Some(false)
        );
        assert_eq!(connected("7c9e0000-0000-4000-8000-000000000002:4"), None);
    }

    #[test]
    fn a_server_that_tells_nothing_makes_nobody_dead() {
        let mut people = People::default();
        people.read("id=5 addr=10.0.0.9:1 name= age=12\n");
        let owner = Owner::of("7c9e0000-0000-8000-8000-000000000002:4");
        assert_eq!(people.is_connected(&owner), None);
    }
}
