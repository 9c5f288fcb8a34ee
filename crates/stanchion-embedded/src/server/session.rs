//! A session: the server's state of one connection.

use std::collections::BTreeSet;

use crate::clock::Now;
use crate::connection::{Connection, Flow, Life, Limits};
use crate::reply::Protocol;
use crate::switches::Switches;

/// The id of a session, never used twice in one engine. Clients see it as `CLIENT ID`.
pub(crate) type SessionId = u64;

/// The server's state of one connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// The caller's name for the connection, with which faults select it.
    pub(crate) label: Option<String>,
    pub(crate) connection: Connection,
    pub(crate) protocol: Protocol,
    pub(crate) db: usize,
    pub(crate) name: String,
    pub(crate) library: [String; 2],
    pub(crate) is_authenticated: bool,
    pub(crate) since: Now,
    pub(crate) channels: BTreeSet<Vec<u8>>,
    pub(crate) shard_channels: BTreeSet<Vec<u8>>,
    /// True when the client is gone but bytes that it sent are still kept in the frozen connection.
    pub(crate) is_orphan: bool,
    /// True while a fault holds back one of its requests, and everything sent later.
    pub(crate) is_delayed: bool,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        label: Option<&str>,
        now: Now,
        switches: &Switches,
        limits: Limits,
    ) -> Self {
        let flow = match switches.is_frozen(label) {
            true => Flow::Frozen,
            false => Flow::Moving,
        };
        Self {
            id,
            label: label.map(str::to_owned),
            connection: Connection::new(flow, switches.delay(label), limits),
            protocol: Protocol::Resp2,
            db: 0,
            name: String::new(),
            library: [String::new(), String::new()],
            is_authenticated: switches.password.is_none(),
            since: now,
            channels: BTreeSet::new(),
            shard_channels: BTreeSet::new(),
            is_orphan: false,
            is_delayed: false,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.is_orphan && self.connection.lock().life == Life::Open
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.channels.len() + self.shard_channels.len()
    }

    /// Returns whether only commands about subscriptions are accepted: RESP2 with at least one subscription.
    pub(crate) fn is_subscriber_only(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions() > 0
    }

    pub(crate) fn has_label(&self, label: Option<&str>) -> bool {
        label.is_none() || self.label.as_deref() == label
    }
}
