//! The background reads of the names that have listeners: one task for each name, whatever the number of its listeners.
//!
//! The server reports that a key was written (`CLIENT TRACKING`), and the task reads the state. A poll finds what the server does not
//! report, at the latest after the poll interval. A timer finds the end of a lease. Without listeners there is no task and no command.
//!
//! The order is that of every wait: *register, read, wait*. The keys are read on the connection for messages before the script reads
//! the state, so that the server reports a later write.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use stanchion_core::primitive::{Extension, Handle, WeakHandle};
use stanchion_core::{Name, QueryError};
use stanchion_transport::Moment;

use crate::told::Told;
use crate::{NameState, Visible};

/// The shortest time between two reads of one name. If a lock is taken and released all the time, some of its states are not seen.
const REST: Duration = Duration::from_millis(10);

/// The pause between two reads in an outage.
const PAUSE: Duration = Duration::from_secs(1);

/// The margin after the end of a lease: by then the server has surely ended the lease, because it counts whole milliseconds.
const ENDED: Duration = Duration::from_millis(2);

/// The number of ended leases that are remembered for listeners that lag.
const LAPSED: usize = 1000;

/// The result of the last read.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The number of gaps in which a listener may have missed a change.
    pub(crate) gaps: u64,
    pub(crate) look: Look,
    /// The last holders with ended leases, for listeners that lag: two states that were read far apart do not show the end of a lease.
    pub(crate) lapsed: VecDeque<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Look {
    /// The state has not been read yet.
    #[default]
    None,
    Seen {
        state: Arc<NameState>,
        /// The time before the request was sent.
        asked: Moment,
        /// The number of this read.
        number: u64,
    },
    Failed(QueryError),
}

/// A name that has listeners.
#[derive(Debug)]
pub(crate) struct Lookout {
    keys: Vec<Vec<u8>>,
    /// The streams of the listeners end when this sender is dropped.
    view: watch::Sender<View>,
    /// Notified when the state must be read again.
    bell: Notify,
    /// The number of reads that have begun.
    begun: AtomicU64,
}

/// The names that have listeners in this process.
#[derive(Default)]
pub struct Lookouts {
    /// Locked for a look-up or one change; nothing else is locked under it.
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_name: HashMap<Topic, Arc<Lookout>>,
    /// The same entries by key, because a message names a key.
    by_key: HashMap<Vec<u8>, Vec<Arc<Lookout>>>,
}

/// The family of a kind, and a name. Local state belongs to the locked object.
type Topic = (&'static str, Name);

fn topic(visible: &dyn Visible) -> Topic {
    let (kind, name) = visible.subject();
    (kind.family(), name.clone())
}

impl Lookouts {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to the state of `visible`, and starts its task if there is none. Also returns the number of reads that began before.
    pub(crate) fn listen(
        &self,
        handle: &Handle,
        visible: &Arc<dyn Visible>,
    ) -> (watch::Receiver<View>, u64) {
        let topic = topic(&**visible);
        let mut table = self.table();
        if let Some(lookout) = table.by_name.get(&topic) {
            // Loaded before the notification, so that the read which it causes counts for this listener.
            let begun = lookout.begun.load(Ordering::Relaxed);
            // Causes another read: the first event of a listener must be no older than its call.
            lookout.bell.notify_one();
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
        let (weak, visible) = (handle.downgrade(), Arc::clone(visible));
        handle.runner().serve(look_out(weak, visible, lookout));
        (seen, 0)
    }

    /// Ends the reads of `visible`, unless they are `wanted` and there are listeners again. Returns whether the reads have ended.
    fn leave(&self, visible: &dyn Visible, lookout: &Arc<Lookout>, wanted: bool) -> bool {
        let mut table = self.table();
        // Under the mutex that `listen` takes: a new listener either finds this lookout and is counted, or finds none.
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

/// Reads the state while there are listeners, the client is open, and the server does not refuse.
async fn look_out(core: WeakHandle, visible: Arc<dyn Visible>, lookout: Arc<Lookout>) {
    let mut told = Told::default();
    while let Some(strong) = core.upgrade() {
        let Some(lookouts) = strong.extension::<Lookouts>() else {
            return;
        };
        // Marked as seen before the read, so that a change during the read causes another one.
        let mut changes = strong.servers().changes();
        changes.mark_unchanged();
        let asked = strong.now();
        // Relaxed: `listen` reads the number and notifies the bell. That notification has caused this read, or causes another one.
        let number = lookout.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let looked = tokio::select! {
            biased;
            () = strong.closing().cancelled() => None,
            () = lookout.view.closed() => {
                if lookouts.leave(&*visible, &lookout, true) {
                    return;
                }
                continue;
            }
            state = look(&strong, &*visible, &lookout, &mut told) => Some(state),
        };
        let next = match &looked {
            Some(Ok(state)) => {
                let poll = strong.next_poll();
                state.soonest().map_or(poll, |left| poll.min(left + ENDED))
            }
            Some(Err(_)) => PAUSE,
            None => Duration::ZERO,
        };
        let ends = matches!(&looked, None | Some(Err(QueryError::Rejected { .. })));
        if let Some(looked) = looked {
            let answered = strong.now();
            let moments = (asked, answered);
            show(&lookout.view, told.gaps(), number, moments, looked);
        }
        if ends {
            // The streams of the listeners end when the last reference to the lookout is dropped.
            lookouts.leave(&*visible, &lookout, false);
            return;
        }
        let (closing, at) = (strong.closing().clone(), strong.now());
        // Random: with a fixed pause, every read could fall into the free time of a lock that is taken at regular times.
        let rest = (REST + strong.jitter(REST / 2)).saturating_sub(at.since(asked));
        let rested = Instant::now() + rest;
        // A strong reference is held only during the read, so that the client can be dropped while this task waits.
        drop((strong, lookouts));
        tokio::select! {
            biased;
            () = closing.cancelled() => continue,
            () = lookout.view.closed() => continue,
            () = lookout.bell.notified() => told.spend(),
            // Also when the client was dropped: then `upgrade` fails, and the loop ends.
            _ = changes.changed() => {}
            () = tokio::time::sleep(next) => {}
        }
        tokio::time::sleep_until(rested).await;
    }
}

/// Publishes the result of a read.
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
            // A listener that did not see the failure may have missed changes, too.
            (Look::Failed(_), _) => view.gaps += 1,
            (Look::Seen { state, asked, .. }, Ok(now)) => {
                let ended = now.ended_since(state, answered.since(*asked));
                view.lapsed.extend(ended);
                // Redisson's owners are threads, so the same owner may hold again.
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
    handle: &Handle,
    visible: &dyn Visible,
    lookout: &Lookout,
    told: &mut Told,
) -> Result<NameState, QueryError> {
    let name = visible.subject().1;
    told.begin(handle, name, &lookout.keys).await;
    let reply = handle.query_in_background(&visible.look()).await?;
    told.end(handle, name);
    visible.see(&reply)
}

impl Extension for Lookouts {
    /// Notifies the tasks of a key that was written; empty: all keys, after a flush. Called by the connection's driver, so it must not block.
    fn written(&self, key: &[u8]) {
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
}

impl fmt::Debug for Lookouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookouts")
            .field("names", &self.table().by_name.len())
            .finish_non_exhaustive()
    }
}
