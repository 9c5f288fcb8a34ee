//! Messages about writes to the keys of one name: `CLIENT TRACKING`, on the connection for messages.

use stanchion_core::Name;
use stanchion_core::primitive::Handle;
use stanchion_transport::{ConnectionId, Console, Failure, Path, ServerRejection, Wake};

/// The tracking of one name's keys: the connection that tracks them, and the gaps in which a write may have been missed.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The connection on which tracking was requested.
    asked: Option<ConnectionId>,
    /// True if the server refused the request.
    refused: bool,
    /// Set when the keys are read, cleared by a notification: the server reports only one write after each read.
    reads: bool,
    /// The last connection for messages.
    heard_on: Option<ConnectionId>,
    /// True while there is no such connection.
    is_deaf: bool,
    /// The number of times that the connection was lost or replaced since the previous read of the state.
    gaps: u64,
}

impl Told {
    /// Requests a message about the next write, unless one is requested already or was refused. Must be called before the state is read.
    /// Without such messages, polls find the changes.
    pub(crate) async fn begin(&mut self, core: &Handle, name: &Name, keys: &[Vec<u8>]) {
        self.gaps = 0;
        let Some(hearing) = self.hear(core, name) else {
            return;
        };
        let connection = hearing.connection_id();
        let is_asked = connection == self.asked;
        let settled = is_asked && (self.refused || self.reads);
        if core.config().wake == Wake::Poll || connection.is_none() || settled {
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
        // If the connection was replaced during the request, the keys are not tracked on the new one.
        self.reads = hearing.connection_id() == connection;
    }

    /// Checks the connection again. Must be called after the state was read: the server may have lost its data since `begin`.
    pub(crate) fn end(&mut self, core: &Handle, name: &Name) {
        drop(self.hear(core, name));
    }

    /// Returns the number of gaps in which a change may have been missed, up to the last read of the state.
    pub(crate) const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Records that a write may have been reported: the server reports the next one only after the keys were read again.
    pub(crate) const fn spend(&mut self) {
        self.reads = false;
    }

    /// Returns the connection for messages of the server that owns the name, and counts a gap if this connection was lost or replaced. The
    /// first connection is not a gap: it may still be opening when the first read begins.
    fn hear(&mut self, core: &Handle, name: &Name) -> Option<Console> {
        // In a cluster the owner of the slot may have changed.
        let console = core.servers().console(core.slot_of(name));
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
            // Requested again before the next read, on the connection of that time: the slot has moved, or the connection has ended.
            Failure::Rejected(ServerRejection::Cluster { .. })
            | Failure::NotNow(_)
            | Failure::Unanswered(_) => self.asked = None,
            Failure::Rejected(rejection) => {
                tracing::debug!(%name, ?rejection, "the server does not report writes; listeners poll");
                self.refused = true;
            }
        }
    }
}
