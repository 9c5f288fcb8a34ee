//! The looks at the names that somebody listens to: one task for each name, whatever the number of its listeners.
//!
//! The server tells that a key was written (`CLIENT TRACKING`), and the task looks. A poll finds what the server does not tell, at the
//! latest after the poll interval; a timer finds the end of a lease. While nobody listens there is no task and no command.
//!
//! The order is that of every wait: *be told, look, wait*. The keys are read on the connection for messages before the script looks, so
//! that a write after the look is told.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::told::Told;
use super::{NameState, Visible};
use crate::error::QueryError;
use crate::name::Name;
use crate::primitive::Resend;
use crate::query::query;
use crate::shared::Core;
use stanchion_transport::{Moment, Path};

/// The shortest time between two looks at a name: of one that is taken and released all the time not every state is seen.
const REST: Duration = Duration::from_millis(10);

/// The pause between two looks in an outage.
const PAUSE: Duration = Duration::from_secs(1);

/// The time after the end of a lease at which the server has surely ended it: its milliseconds are whole ones.
const ENDED: Duration = Duration::from_millis(2);

/// The number of ended leases that are remembered for listeners that lag.
const LAPSED: usize = 1000;

/// The result of the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// The number of times that somebody may have missed something.
    pub(super) gaps: u64,
    pub(super) look: Look,
    /// The holders whose leases have ended, the last ones. A listener that lags cannot tell that from two looks far apart.
    pub(super) lapsed: VecDeque<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Look {
    /// Nobody has looked yet.
    #[default]
    None,
    Seen {
        state: Arc<NameState>,
        /// Before the request was sent.
        asked: Moment,
        /// The number of this look.
        number: u64,
    },
    Failed(QueryError),
}

/// A name that somebody listens to.
#[derive(Debug)]
pub(super) struct Lookout {
    keys: Vec<Vec<u8>>,
    /// The listeners' streams end with it.
    view: watch::Sender<View>,
    /// Rung when there may be something to see.
    bell: Notify,
    /// The number of looks that have begun.
    begun: AtomicU64,
}

/// The names that somebody in this process listens to.
#[derive(Default)]
pub(crate) struct Lookouts {
    /// Locked for a look-up or one change; nothing else is locked under it.
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_name: HashMap<Topic, Arc<Lookout>>,
    /// The same by their keys: a message names a key.
    by_key: HashMap<Vec<u8>, Vec<Arc<Lookout>>>,
}

/// The family of a kind, and a name: local state belongs to what is locked.
type Topic = (&'static str, Name);

fn topic(visible: &dyn Visible) -> Topic {
    let (kind, name) = visible.subject();
    (kind.family(), name.clone())
}

impl Lookouts {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears that a key was written. Called by the connection's driver: it must not block. Empty: all keys, the server was flushed.
    pub(crate) fn written(&self, key: &[u8]) {
        let table = self.table();
        if key.is_empty() {
            table
                .by_name
                .values()
                .for_each(|lookout| lookout.bell.notify_one());
        } else if let Some(told) = table.by_key.get(key) {
            told.iter().for_each(|lookout| lookout.bell.notify_one());
        }
    }

    /// Listens to what `visible` shows: begins to look at it, if nobody does. Returns also the number of looks that began before.
    pub(super) fn listen(
        &self,
        core: &Arc<Core>,
        visible: &Arc<dyn Visible>,
    ) -> (watch::Receiver<View>, u64) {
        let topic = topic(&**visible);
        let mut table = self.table();
        if let Some(lookout) = table.by_name.get(&topic) {
            // The first thing that a listener is told is no older than its call.
            lookout.bell.notify_one();
            let begun = lookout.begun.load(Ordering::Relaxed);
            return (lookout.view.subscribe(), begun);
        }
        let (view, seen) = watch::channel(View::default());
        let lookout = Arc::new(Lookout {
            keys: visible.keys(),
            view,
            bell: Notify::new(),
            begun: AtomicU64::new(0),
        });
        for key in &lookout.keys {
            let told = table.by_key.entry(key.clone()).or_default();
            told.push(Arc::clone(&lookout));
        }
        table.by_name.insert(topic, Arc::clone(&lookout));
        drop(table);
        let (weak, visible) = (Arc::downgrade(core), Arc::clone(visible));
        core.runner.serve(look_out(weak, visible, lookout));
        (seen, 0)
    }

    /// Ends the looks at `visible`, unless somebody listens again and they are `wanted`. Returns whether they have ended.
    fn leave(&self, visible: &dyn Visible, lookout: &Arc<Lookout>, wanted: bool) -> bool {
        let mut table = self.table();
        // Under the mutex that `listen` takes: who comes now finds this lookout and is counted, or none.
        if wanted && lookout.view.receiver_count() > 0 {
            return false;
        }
        table.by_name.remove(&topic(visible));
        for key in &lookout.keys {
            if let Some(told) = table.by_key.get_mut(key) {
                told.retain(|other| !Arc::ptr_eq(other, lookout));
                if told.is_empty() {
                    table.by_key.remove(key);
                }
            }
        }
        true
    }
}

/// Looks while somebody listens, the client is open, and the server does not refuse.
async fn look_out(core: Weak<Core>, visible: Arc<dyn Visible>, lookout: Arc<Lookout>) {
    let mut told = Told::default();
    while let Some(strong) = core.upgrade() {
        // Marked as seen before the look, so that a change during it causes another.
        let mut changes = strong.servers.changes();
        changes.mark_unchanged();
        let asked = strong.clock.now();
        // Relaxed: who has rung the bell has read the number before, and this look was woken by it or comes before another.
        let number = lookout.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let looked = tokio::select! {
            biased;
            () = strong.closing.cancelled() => None,
            () = lookout.view.closed() => {
                if strong.lookouts.leave(&*visible, &lookout, true) {
                    return;
                }
                continue;
            }
            state = look(&strong, &*visible, &lookout, &mut told) => Some(state),
        };
        let next = match &looked {
            Some(Ok(state)) => {
                let poll = strong.poll_interval();
                state.soonest().map_or(poll, |left| poll.min(left + ENDED))
            }
            Some(Err(_)) => PAUSE,
            None => Duration::ZERO,
        };
        let ends = matches!(&looked, None | Some(Err(QueryError::Rejected { .. })));
        if let Some(looked) = looked {
            let answered = strong.clock.now();
            let moments = (asked, answered);
            show(&lookout.view, told.gaps(), number, moments, looked);
        }
        if ends {
            // The listeners' streams end with the last copy of the lookout.
            strong.lookouts.leave(&*visible, &lookout, false);
            return;
        }
        let (closing, at) = (strong.closing.clone(), strong.clock.now());
        // At random: of a lock that is taken at regular times every look could find it free.
        let rest = (REST + strong.jitter(REST / 2)).saturating_sub(at.since(asked));
        let rested = Instant::now() + rest;
        // Kept only while it looks: the client may end meanwhile.
        drop(strong);
        tokio::select! {
            biased;
            () = closing.cancelled() => continue,
            () = lookout.view.closed() => continue,
            () = lookout.bell.notified() => told.spend(),
            // Also when the client is gone: then there is nothing to upgrade.
            _ = changes.changed() => {}
            () = tokio::time::sleep(next) => {}
        }
        tokio::time::sleep_until(rested).await;
    }
}

/// Publishes what was seen.
fn show(
    view: &watch::Sender<View>,
    gaps: u64,
    number: u64,
    (asked, answered): (Moment, Moment),
    looked: Result<NameState, QueryError>,
) {
    view.send_modify(|view| {
        view.gaps += gaps;
        match (&view.look, &looked) {
            // Whoever did not read of the failure has missed as much.
            (Look::Failed(_), _) => view.gaps += 1,
            (Look::Seen { state, asked, .. }, Ok(now)) => {
                let ended = now.ended_since(state, answered.since(*asked));
                view.lapsed.extend(ended);
                // Redisson's owners are threads, and come again.
                let back = |holder: &String| now.holders.iter().any(|it| it.holder == *holder);
                view.lapsed.retain(|holder| !back(holder));
                let over = view.lapsed.len().saturating_sub(LAPSED);
                view.lapsed.drain(..over);
            }
            _ => {}
        }
        view.look = match looked {
            Ok(state) => Look::Seen {
                state: Arc::new(state),
                asked,
                number,
            },
            Err(error) => Look::Failed(error),
        };
    });
}

async fn look(
    core: &Arc<Core>,
    visible: &dyn Visible,
    lookout: &Lookout,
    told: &mut Told,
) -> Result<NameState, QueryError> {
    let name = visible.subject().1;
    told.begin(core, name, &lookout.keys).await;
    let call = visible.look();
    let reply = query(core, Path::Background, &call, Resend::UntilAnswered).await?;
    told.end(core, name);
    visible.see(&reply)
}

impl fmt::Debug for Lookouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookouts")
            .field("names", &self.table().by_name.len())
            .finish_non_exhaustive()
    }
}
