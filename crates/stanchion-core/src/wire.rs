//! The lowest layer of a client: requests, clocks, slots and random numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::about::Tenure;
use crate::description::Request;
use crate::free_by::FreeBy;
use crate::lease::Lease;
use crate::line::{Approach, Yields};
use crate::name::Name;
use crate::wire_owner::WireOwner;
use stanchion_transport::{
    Call, ClientConfig, Clock, Facts, Failure, Moment, Observer, Path, Placement, Realm, Reply,
    Runner, ServerClock, Servers, micros, slot_of,
};

/// The end of the time in which a request may run. The request carries this time, so it is fixed when the request is sent: a later reading of the
/// clocks does not change it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// The server time, in µs, after which the script refuses the request.
    pub(crate) not_after: u64,
    /// The moment on the client's clock by which the server's clock has passed `not_after`.
    pub(crate) ends_by: Moment,
    /// The earliest server time, in µs, at which the request was sent.
    pub(crate) sent: u64,
}

impl Limit {
    /// Makes a request for `owner` that does not wait. The caller's call begins with this request.
    pub(crate) fn request<'a>(&self, owner: &'a WireOwner, lease: Lease) -> Request<'a> {
        Request {
            owner,
            lease,
            not_after: self.not_after,
            since: self.sent,
            waits: false,
            first: false,
            approach: Approach::default(),
            within: None,
            from: None,
            yields: Yields::No,
        }
    }
}

/// The lowest layer: the servers of a client, and what its requests need. Knows no hold and no queue.
pub(crate) struct Wire {
    pub(crate) id: Uuid,
    /// The number of the next wire owner. Any task increments it.
    pub(crate) next_owner: AtomicU64,
    /// The set of keys in which this client locks, for owners that are used with several clients.
    pub(crate) realm: Realm,
    pub(crate) config: ClientConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) facts: Arc<Facts>,
    /// The placement of keys. Known from the start, because every name is made for a placement.
    pub(crate) placement: Placement,
    pub(crate) runner: Arc<Runner>,
    /// The observer of events; `None` if events are not counted.
    pub(crate) sink: Option<Arc<dyn Observer>>,
    /// Locked for one number; no other mutex is taken under it.
    pub(crate) rng: Mutex<fastrand::Rng>,
    /// Cancelled first by a shutdown: nothing new is acquired, waits end, and holds are no longer handed to local waiters.
    pub(crate) closing: CancellationToken,
    /// Cancelled last, by a shutdown or the client's drop: connections, background tasks and the thread end.
    pub(crate) closed: CancellationToken,
}

impl Wire {
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

    /// Returns the prefix of the channel on which each client is notified about its holds of `name`. In a cluster the channel is in the slot of the
    /// name, because a script may publish only there.
    pub(crate) fn notice(&self, name: &Name) -> Vec<u8> {
        let mut channel = match self.placement {
            Placement::Slots => name.slot_key("stanchion_notice"),
            _ => b"stanchion_notice".to_vec(),
        };
        channel.push(b':');
        channel
    }

    /// The channel on which this client is notified about its holds of `name`.
    pub(crate) fn own_channel(&self, name: &Name) -> Vec<u8> {
        let id = self.id.to_string();
        [self.notice(name), id.into_bytes()].concat()
    }

    /// Makes a wire owner that was never used.
    pub(crate) fn next_wire_owner(&self) -> WireOwner {
        // Relaxed: nothing else depends on the number. The number only must not be used twice (R1).
        WireOwner::new(&self.id, self.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a secret of 32 hexadecimal digits. Only tests, which seed the client's random numbers, can repeat it.
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

    /// Reports an event to the observer, if there is one. The observer is foreign code: do not call this under a mutex.
    pub(crate) fn tell(&self, event: impl FnOnce(&dyn Observer)) {
        if let Some(sink) = &self.sink {
            event(&**sink);
        }
    }

    /// Runs a script on the server of its keys.
    ///
    /// Dropping the future does not cancel the request: the script may still run.
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
        // One reading of the clock for all three: a better reading in between would let the sweep run before the server's `not_after` (R2).
        let reached = self.server_clock(name).reach(end.micros());
        let ago = micros(end.since(sent) + reached.within);
        Limit {
            not_after: reached.server_micros,
            ends_by: end + reached.within + Duration::from_millis(2),
            sent: reached.server_micros.saturating_sub(ago),
        }
    }

    /// The time by which a hold has ended if a request with this lease may still be in flight for it.
    pub(crate) fn free_by(&self, tenure: Tenure, lease: Lease) -> FreeBy {
        match tenure {
            // The request may run until its `not_after`, and its lease begins then.
            Tenure::Leased => FreeBy::After(lease.length() + self.config.silence_limit()),
            Tenure::Unleased => FreeBy::Unbounded,
            Tenure::Nothing => FreeBy::After(Duration::ZERO),
        }
    }

    /// The server time, in µs, of [`Wire::limit`].
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
        // Without slots all names have one number, so that renewals of all names share a batch.
        if self.placement == Placement::Slots {
            name.slot()
        } else {
            0
        }
    }

    pub(crate) fn poll_interval(&self) -> Duration {
        // Jitter: processes whose waits began together do not poll together.
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

    /// Waits until a retry makes sense: a short pause has passed and a connection is open. If a connection was open all the time, the
    /// server refuses, or does not answer, and the pauses grow. Waits at most until `until`. Uses no timer of the caller's runtime,
    /// which may have ended.
    pub(crate) async fn recover(&self, until: Moment, retries: &mut Retries) {
        let left = until.since(self.clock.now());
        // One lost connection fails many callers at once. The random part spreads their next requests.
        let pause = Duration::from_millis(10) + self.jitter(Duration::from_millis(30));
        self.runner.sleep(pause.min(left)).await;
        // Created before the check, so that it notices every connection that opens from here on.
        let comes_up = self.servers.comes_up();
        let pause = if self.servers.is_up() {
            let pause = retries.next_pause();
            pause + self.jitter(pause)
        } else {
            *retries = Retries::default();
            // An acquire checks between two such waits whether its client is closing.
            Duration::from_millis(250)
        };
        let left = until.since(self.clock.now()).min(pause);
        if left.is_zero() {
            return;
        }
        tokio::select! {
            biased;
            // Another server, or the same one after a restart, may accept the request.
            () = comes_up => {}
            // Waits end with a shutdown, and its clean-ups have little time.
            () = self.closing.cancelled() => {}
            () = self.runner.sleep(left) => {}
        }
    }
}

/// The attempts of one call that failed in a row while a connection was open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries(u8);

impl Retries {
    /// The longest pause, before jitter.
    // A server that refuses for now (`MISCONF`) gets less than one request a second for each name that is waited for. A failover ends
    // the pause, because a connection comes up.
    const LONGEST: Duration = Duration::from_secs(1);

    /// Returns the next pause: none after the first failure, then 40 ms doubling to [`Retries::LONGEST`].
    fn next_pause(&mut self) -> Duration {
        let before = self.0;
        self.0 = before.saturating_add(1);
        match before {
            0 => Duration::ZERO,
            n => (Duration::from_millis(20) * (1 << n.min(6))).min(Self::LONGEST),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}
