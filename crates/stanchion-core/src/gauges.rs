//! The gauges of a client, once a second.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::shared::Core;
use stanchion_transport::{Gauges, Observer};

/// The interval at which the gauges are set.
const BEAT: Duration = Duration::from_secs(1);

/// Sets the gauges until the client is closed or dropped. Holds the core only while it reads the figures.
pub(crate) async fn run(core: Weak<Core>, sink: Arc<dyn Observer>, closed: CancellationToken) {
    while let Some(gauges) = core.upgrade().map(|core| look(&core)) {
        sink.gauges(&gauges);
        tokio::select! {
            biased;
            () = closed.cancelled() => return,
            () = tokio::time::sleep(BEAT) => {}
        }
    }
}

/// Returns the present figures of a client.
fn look(core: &Core) -> Gauges {
    let (waiting, oldest) = core.entries.census();
    let mut gauges = Gauges::default();
    gauges.held = core.counts.held();
    gauges.waiting = waiting;
    gauges.oldest_wait = oldest.map_or(Duration::ZERO, |joined| core.clock.now().since(joined));
    gauges.connected = core.servers.connected();
    gauges
}
