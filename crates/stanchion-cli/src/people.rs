//! Which process an owner belongs to: what the server tells of its connections.

use std::collections::BTreeMap;

use stanchion::{Client, Process, QueryError};

use crate::wording::{Origin, Owner};

/// The connected processes by the uuid of their client.
#[derive(Clone, Debug, Default)]
pub(crate) struct People(BTreeMap<String, Process>);

impl People {
    /// Asks each server for its connections. A user without the right learns of nobody.
    pub(crate) async fn ask(client: &Client) -> Result<Self, QueryError> {
        let processes = client.processes().await?.unwrap_or_default();
        let by_client = processes
            .into_iter()
            .map(|process| (process.client.to_string(), process));
        Ok(Self(by_client.collect()))
    }

    /// The process of an owner, in few words: `billing@10.0.0.7:51324`.
    pub(crate) fn of(&self, owner: &Owner<'_>) -> Option<String> {
        let process = self.0.get(owner.client)?;
        let app = if process.app.is_empty() {
            "?"
        } else {
            &process.app
        };
        Some(format!("{app}@{}", process.address))
    }

    /// Returns whether a connection of an owner's client is seen. `None` where nothing tells: no connection has a name, or it is one
    /// of Redisson's, which have none.
    pub(crate) fn is_connected(&self, owner: &Owner<'_>) -> Option<bool> {
        let told = !self.0.is_empty() && owner.origin == Origin::Stanchion;
        told.then(|| self.0.contains_key(owner.client))
    }
}
