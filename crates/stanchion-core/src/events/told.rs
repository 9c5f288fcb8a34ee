//! Being told of writes: `CLIENT TRACKING` for the keys of one name, on the connection for messages.

use crate::name::Name;
use crate::shared::Core;
use stanchion_transport::{ConnectionId, Console, Failure, Path, ServerRejection, Wake};

/// The state of one name's tracking: who was asked to tell of its writes, and what may have been missed.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The connection that was asked for it.
    asked: Option<ConnectionId>,
    /// True if the server refused to.
    refused: bool,
    /// True until a write is told: the server tells of one.
    reads: bool,
    /// The last connection for messages.
    heard_on: Option<ConnectionId>,
    /// True while there is none.
    is_deaf: bool,
    /// The times that it was lost or replaced since the look before.
    gaps: u64,
}

impl Told {
    /// To be called before a look: asks the server to tell of the next write. Where it does not, or is not asked, polls find what has
    /// happened.
    pub(super) async fn begin(&mut self, core: &Core, name: &Name, keys: &[Vec<u8>]) {
        self.gaps = 0;
        let Some(hearing) = self.hear(core, name) else {
            return;
        };
        let connection = hearing.connection_id();
        let is_asked = connection == self.asked;
        let settled = is_asked && (self.refused || self.reads);
        if core.config.wake == Wake::Poll || connection.is_none() || settled {
            return;
        }
        if !is_asked {
            (self.asked, self.refused, self.reads) = (connection, false, false);
            let on: [&[u8]; 3] = [b"CLIENT", b"TRACKING", b"ON"];
            if let Err(failure) = hearing.command(Path::Background, &on).await {
                return self.not(name, &failure);
            }
        }
        let mut read: Vec<&[u8]> = vec![b"EXISTS"];
        read.extend(keys.iter().map(Vec::as_slice));
        if let Err(failure) = hearing.command(Path::Background, &read).await {
            return self.not(name, &failure);
        }
        // A new one has not been asked to tell.
        self.reads = hearing.connection_id() == connection;
    }

    /// To be called after the look: what was seen may be of a server that has lost its data since it was asked to tell.
    pub(super) fn end(&mut self, core: &Core, name: &Name) {
        drop(self.hear(core, name));
    }

    /// Returns the number of times that something may have been missed, up to the last look.
    pub(super) const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Notes that a write was told: the server tells of the next when it is asked again.
    pub(super) const fn spend(&mut self) {
        self.reads = false;
    }

    /// Returns the server that has the name, by the connection for messages, and notes whether that is another one. A first one may be on
    /// its way when the first look begins: that is no gap.
    fn hear(&mut self, core: &Core, name: &Name) -> Option<Console> {
        // In a cluster the owner of the slot may have changed.
        let console = core.servers.console(core.slot_of(name));
        let hearing = console.map(|console| console.hearing());
        let connection = hearing.as_ref().and_then(Console::connection_id);
        if let Some(before) = self.heard_on {
            let is_lost = connection.is_none() && !self.is_deaf;
            if is_lost || connection.is_some_and(|now| now != before) {
                self.gaps += 1;
            }
            self.is_deaf = connection.is_none();
        }
        self.heard_on = connection.or(self.heard_on);
        hearing
    }

    fn not(&mut self, name: &Name, failure: &Failure) {
        match failure {
            // Asked again with the next look, on the connection that there is then: the slot has moved, or the connection has ended.
            Failure::Rejected(ServerRejection::Cluster { .. })
            | Failure::NotNow(_)
            | Failure::Unanswered(_) => self.asked = None,
            Failure::Rejected(rejection) => {
                tracing::debug!(%name, ?rejection, "the server does not tell of writes; listeners poll");
                self.refused = true;
            }
        }
    }
}
