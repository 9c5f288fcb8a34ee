//! The state that the parts of a client share.
//!
//! Clients, holds and acquires keep the [`Core`] alive; the background tasks hold it weakly or only its parts, and end with its
//! `closed` token, which its drop cancels.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::actor::Labels;
use crate::agenda::Agenda;
use crate::description::{Request, Tenure};
use crate::events::Lookouts;
use crate::free_by::FreeBy;
use crate::hold::losses::Losses;
use crate::hold::releases::Releases;
use crate::lease::Lease;
use crate::line::Approach;
use crate::name::Name;
use crate::observe::Counts;
use crate::survey::{Announcer, Looks, OwnHolds};
use crate::waiting::{LockEntries, Subscriptions};
use crate::wire_owner::WireOwner;
use stanchion_transport::{
    Call, ClientConfig, Clock, Facts, Failure, Moment, Observer, Path, Placement, Realm, Reply,
    Runner, ServerClock, Servers, micros, slot_of,
};

/// The end of the time in which a request may run. Fixed when it is sent, because the request carries it: a later reading of the
/// clocks does not change it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// The server time, in µs, after which it must refuse itself.
    pub(crate) not_after: u64,
    /// The moment on the client's clock by which the server's has passed `not_after`.
    pub(crate) ends_by: Moment,
    /// The earliest server time, in µs, at which it was sent.
    pub(crate) sent: u64,
}

impl Limit {
    /// A request for `owner` that asks once and whose caller's call begins with it.
    pub(crate) fn request<'a>(&self, owner: &'a WireOwner, lease: Lease) -> Request<'a> {
        Request {
            owner,
            lease,
            not_after: self.not_after,
            since: self.sent,
            waits: false,
            first: false,
            queued: false,
            approach: Approach::default(),
            within: None,
            from: None,
        }
    }
}

/// The state that the parts of a client share.
pub(crate) struct Core {
    pub(crate) id: Uuid,
    /// The number of the next wire owner. Any task counts it up.
    pub(crate) next_owner: AtomicU64,
    /// The set of keys that this client locks by, for owners that are used with several clients.
    pub(crate) realm: Realm,
    pub(crate) config: ClientConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) facts: Arc<Facts>,
    /// Of keys: known from the start, as names are made by it.
    pub(crate) placement: Placement,
    /// These three have mutexes of their own, in the lock order of [`crate::waiting`].
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) entries: LockEntries,
    /// The names that somebody listens to.
    pub(crate) lookouts: Arc<Lookouts>,
    /// Counts the messages that keys were written which an operator's tool asked about.
    pub(crate) writes: watch::Sender<u64>,
    pub(crate) timetable: Arc<Agenda>,
    pub(crate) losses: Losses,
    /// The releases of the last seconds, for another master.
    pub(crate) releases: Arc<Releases>,
    /// This process as others may see it.
    pub(crate) presence: Announcer,
    /// The labels of actors.
    pub(crate) labels: Arc<Labels>,
    /// What waits that look for deadlocks have read. Its asynchronous mutex is held across requests, by tasks of the background.
    pub(crate) looks: Looks,
    /// The names that were warned of because their holder waits for them.
    pub(crate) own: OwnHolds,
    pub(crate) runner: Arc<Runner>,
    /// Told of events; `None` where nobody counts them.
    pub(crate) sink: Option<Arc<dyn Observer>>,
    /// The holds, where there is a sink.
    pub(crate) counts: Counts,
    /// Locked for one number; no other mutex is taken under it.
    pub(crate) rng: Mutex<fastrand::Rng>,
    /// Cancelled first by a shutdown: nothing new is acquired, waits end, and holds are no longer handed to local waiters.
    pub(crate) closing: CancellationToken,
    /// Cancelled last, by a shutdown or the core's drop: connections, background tasks and the thread end.
    pub(crate) closed: CancellationToken,
}

impl Core {
    /// The server's time in µs when the client's clock reads `moment`, by the clock of the server of `slot`.
    pub(crate) fn server_micros(&self, slot: u16, moment: Moment) -> u64 {
        self.servers
            .clock(slot)
            .reach(moment.micros())
            .server_micros
    }

    /// The slot of a key of the client's own.
    pub(crate) fn slot_of_key(&self, key: &[u8]) -> u16 {
        if self.placement == Placement::Slots {
            slot_of(key)
        } else {
            0
        }
    }

    /// Makes a wire owner that was never used.
    pub(crate) fn next_wire_owner(&self) -> WireOwner {
        // Relaxed: nothing else depends on the number, it only must not be given twice (R1).
        WireOwner::new(&self.id, self.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a secret of 32 hexadecimal digits. Repeatable only where the client's random numbers are: in tests.
    pub(crate) fn secret(&self) -> String {
        let random = match self.config.seams().seed {
            Some(_) => self
                .rng
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .u128(..),
            None => Uuid::new_v4().as_u128(),
        };
        format!("{random:032x}")
    }

    /// Tells of an event, if somebody counts them. Foreign code: not to be called under a mutex.
    pub(crate) fn tell(&self, event: impl FnOnce(&dyn Observer)) {
        if let Some(sink) = &self.sink {
            event(&**sink);
        }
    }

    /// Runs a script on the server of its keys.
    ///
    /// Dropping the future does not take the request back: the script may still run.
    pub(crate) async fn call(&self, path: Path, call: &Call) -> Result<Reply, Failure> {
        self.servers.call(path, call).await
    }

    /// Reads the clock of the server of `name` now, after a request was refused as late.
    pub(crate) async fn synchronise(&self, path: Path, name: &Name) {
        self.servers.synchronise(path, self.slot_of(name)).await;
    }

    pub(crate) fn server_clock(&self, name: &Name) -> Arc<ServerClock> {
        self.servers.clock(self.slot_of(name))
    }

    /// The end of the time in which a request sent at `sent` may run (P3). By then its caller has given up on its connection.
    pub(crate) fn limit(&self, name: &Name, sent: Moment) -> Limit {
        let end = sent + self.config.silence_limit();
        // One reading for all three: a better one in between would let the sweep come before the server's `not_after` (R2).
        let reached = self.server_clock(name).reach(end.micros());
        let ago = micros(end.since(sent) + reached.within);
        Limit {
            not_after: reached.server_micros,
            ends_by: end + reached.within + Duration::from_millis(2),
            sent: reached.server_micros.saturating_sub(ago),
        }
    }

    /// The time after which a hold has ended for which a request with this lease may be under way.
    pub(crate) fn free_by(&self, tenure: Tenure, lease: Lease) -> FreeBy {
        match tenure {
            // The request may run until its `not_after`, and its lease begins then.
            Tenure::Leased => FreeBy::After(lease.length() + self.config.silence_limit()),
            Tenure::Unleased => FreeBy::Unbounded,
            Tenure::Nothing => FreeBy::After(Duration::ZERO),
        }
    }

    /// The server time, in µs, of [`Core::limit`].
    pub(crate) fn not_after(&self, name: &Name, sent: Moment) -> u64 {
        self.limit(name, sent).not_after
    }

    /// Records the server's time, from a reply to a request sent at `sent`.
    pub(crate) fn observe(&self, name: &Name, server_micros: u64, sent: Moment) {
        self.server_clock(name)
            .observe(server_micros, sent.micros(), self.clock.now().micros());
    }

    /// The moment on the client's clock at which the server's reads `server_micros`, or a little earlier.
    pub(crate) fn moment_of(&self, name: &Name, server_micros: u64) -> Moment {
        let clock = self.server_clock(name);
        Moment::from_nanos(clock.back(server_micros).saturating_mul(1000))
    }

    /// The moment on the client's clock at which the server's read `server_micros`, or a little earlier. Never later than now: for
    /// messages, whose times are in the past.
    pub(crate) fn when(&self, name: &Name, server_micros: u64) -> Moment {
        // P1: the server decided before its message arrived. The offset of the clocks may be wrong: the server's clock was stepped since
        // the last reading, or another node, with another clock, has become the master.
        self.moment_of(name, server_micros).min(self.clock.now())
    }

    pub(crate) fn slot_of(&self, name: &Name) -> u16 {
        // Elsewhere one number for all, so that renewals of all names share a batch.
        if self.placement == Placement::Slots {
            name.slot()
        } else {
            0
        }
    }

    pub(crate) fn poll_interval(&self) -> Duration {
        // At random, so that processes whose waits began together do not ask together.
        self.config.poll_interval - self.jitter(self.config.poll_interval / 10)
    }

    /// A random duration up to `most`.
    pub(crate) fn jitter(&self, most: Duration) -> Duration {
        most.mul_f64(
            self.rng
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .f64(),
        )
    }

    /// Waits until trying again makes sense: a short pause has passed and a connection is open; at most until `until`.
    /// Uses no timer of the caller's runtime, which may have ended.
    pub(crate) async fn recover(&self, until: Moment) {
        let left = until.since(self.clock.now());
        // One lost connection fails many callers at once. The random part spreads what they send next.
        let pause = Duration::from_millis(10) + self.jitter(Duration::from_millis(30));
        self.runner.sleep(pause.min(left)).await;
        // Made before the look: it hears of every connection that opens from here on.
        let comes_up = self.servers.comes_up();
        if self.servers.is_up() {
            return;
        }
        let left = until
            .since(self.clock.now())
            // An acquire looks in between whether its client is closing.
            .min(Duration::from_millis(250));
        tokio::select! {
            biased;
            () = comes_up => {}
            () = self.runner.sleep(left) => {}
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
