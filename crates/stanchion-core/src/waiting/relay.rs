//! The relay: one process of a queue on the server subscribes to Redisson's releases on behalf of the others.

use std::sync::Arc;

use super::lock_entry::LockEntry;
use crate::description::Synchronizer;
use crate::hold::debt::Debt;
use crate::hold::holds::Holds;
use crate::hold::sweep::finished;
use crate::line::{Reason, Role};
use crate::receiver::Part;
use crate::shared::Core;
use stanchion_transport::Path;

/// Returns whether this is a release of Redisson's. Payloads of stanchion have a zero in front, which Redisson's clients read as the same.
fn is_redissons(payload: &[u8]) -> bool {
    payload.len() < 2 || !payload.starts_with(b"0")
}

impl LockEntry {
    /// Returns whether this client is subscribed to the releases of Redisson's clients; in a queue with an entry for each waiter, to its own
    /// channel.
    pub(crate) fn hears(&self, core: &Holds, debt: &Debt) -> bool {
        if debt.sync.sharing().keeps_each_waiter() {
            return core.subscriptions.hears(&self.channel);
        }
        let channel = self
            .neighbours(&*debt.sync)
            .filter(|_| debt.claim().is_queued());
        channel.is_some_and(|channel| core.subscriptions.hears(channel))
    }

    /// The channel on which Redisson's clients publish releases of this name.
    pub(super) fn neighbours<'a>(&self, sync: &'a dyn Synchronizer) -> Option<&'a [u8]> {
        sync.server_queue()?.neighbours(self.name())
    }

    /// Becomes the relay, or stops being it, as the server's reply demands. Not to be called under a queue's mutex.
    pub(super) fn play(self: &Arc<Self>, core: &Core, sync: &dyn Synchronizer, role: Role) {
        let Some(channel) = self.neighbours(sync) else {
            return;
        };
        match role {
            // A relay stays subscribed while it waits: its subscription may be one that lingers, and the server relies on it.
            Role::Keep if !core.subscriptions.hears(channel) => {}
            Role::Keep | Role::Take => {
                let line = self.receiver(Part::Line);
                // L7: Redisson's clients subscribe to the first channel only.
                let mark = [channel, b":stanchion"].concat();
                core.subscriptions.want(self, &line, channel, Some(&mark));
            }
            Role::Leave => core
                .subscriptions
                .forget(&self.receiver(Part::Line), channel),
        }
    }

    /// Handles a release of Redisson's: the relay serves the queue on the server.
    pub(super) fn heard_for_line(
        &self,
        core: &Arc<Core>,
        sync: &Arc<dyn Synchronizer>,
        payload: &[u8],
    ) {
        if !is_redissons(payload) {
            return;
        }
        let Some(call) = sync.server_queue().and_then(|queue| queue.tend(true)) else {
            return self.admit_first(Reason::Told);
        };
        let (core, sync) = (Arc::clone(core), Arc::clone(sync));
        let runner = Arc::clone(&core.runner);
        runner.serve(async move {
            if let Ok(reply) = core.call(Path::Background, &call).await {
                finished(&core, &*sync, reply);
            }
        });
    }
}
