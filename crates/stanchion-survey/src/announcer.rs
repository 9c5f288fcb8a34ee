//! Keeps the record of a process on the server while there is something to report.
//!
//! A background task checks every 5 s, without network requests. The task writes the record if a hold has lasted for 5 s or a call has waited
//! for 1 s, and writes it again on every second check. With nothing left to report, it removes the record. The first wait that
//! lasts for a second is reported at once, so that a hang is visible during an investigation. Short holds and short waits cost nothing.
//!
//! A failed write is dropped, because the next check writes again. The record of a process that died expires.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use stanchion_core::primitive::{Handle, HeldHere, whole_millis};

use crate::{Site, WeakSite, local, own, record};
use stanchion_transport::{
    ClientConfig, Failure, Moment, Path, Presence, Reply, ServerRejection, timeout,
};

/// The pause between two checks; up to a tenth more or less. Every second check refreshes the record.
const LOOK: Duration = Duration::from_secs(5);

/// The age of a hold from which the client reports.
const HELD: Duration = Duration::from_secs(5);

/// The age of a wait from which the client reports, and the time after which the first wait is checked.
const WAITED: Duration = Duration::from_secs(1);
const FIRST_WAIT: Duration = Duration::from_millis(1250);

/// The time after which a record expires: three refreshes.
pub(crate) const LASTS: Duration = Duration::from_secs(30);

/// One write in this many also removes the expired processes from the list, and extends the TTL of the list. The first write does so too,
/// and so does a write that may have created the list. Therefore entries of processes that died neither accumulate nor stay.
const CLEANS: u32 = 64;
const LIST_LASTS: Duration = Duration::from_secs(3600);

/// The keys of the list of all clients that report, and of the record of one client.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) list: Vec<u8>,
    prefix: String,
}

impl Keys {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        let prefix = &config.key_prefix;
        Self {
            list: format!("{prefix}stanchion_clients").into_bytes(),
            prefix: format!("{prefix}stanchion_client"),
        }
    }

    pub(crate) fn record(&self, client: &Uuid) -> Vec<u8> {
        format!("{}:{{{client}}}", self.prefix).into_bytes()
    }
}

/// The reports of a client: the record on the server, and a flag for waiting calls.
pub(crate) struct Announcer {
    presence: Presence,
    /// The moment of the connect.
    since: OnceLock<Moment>,
    /// Set from the first waiter that parks until the next check for long waits. Waiters set it, the background task clears it before the check.
    armed: AtomicBool,
    /// Notified by the waiter that sets `armed`.
    bell: Arc<Notify>,
    /// Locked during the requests that change the record: by the background task, and at the end by a shutdown.
    told: Mutex<Announced>,
}

#[derive(Debug, Default)]
struct Announced {
    /// The record on the server, as far as it is known.
    text: Option<String>,
    /// Set if a record may be on the server.
    written: bool,
    /// Set if the record contains a wait.
    waits: bool,
    /// The number of checks since the last write, and the number of writes.
    looks: u32,
    writes: u32,
    /// A local moment, and the server's time at this moment, in µs.
    clock: Option<(Moment, u64)>,
    /// The state of the connections when the server refused the user. Writes are not tried again before this state changes.
    refused: Option<u64>,
    warned: bool,
    /// Set after a shutdown.
    ended: bool,
}

impl Announcer {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        Self {
            presence: config.presence,
            since: OnceLock::new(),
            armed: AtomicBool::new(false),
            bell: Arc::default(),
            told: Mutex::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.presence != Presence::Off
    }

    pub(crate) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }

    pub(crate) fn begin(&self, now: Moment) {
        self.since.get_or_init(|| now);
    }

    pub(crate) fn since(&self) -> Option<Moment> {
        self.since.get().copied()
    }

    /// Notifies the background task that a call waits. Costs one load, except for the first waiter.
    pub(crate) fn waits(&self) {
        // If no task runs, `armed` stays set, and the bell is not notified a second time.
        if !self.armed.load(Ordering::Relaxed) && !self.armed.swap(true, Ordering::AcqRel) {
            self.bell.notify_one();
        }
    }

    /// Removes the record, if there is one, by `until` at the latest, because the process is about to end. Returns whether it is certain
    /// that no record is left (P8); otherwise the record expires.
    pub(crate) async fn leave(&self, core: &Handle, until: Moment) -> bool {
        if !self.is_on() {
            return true;
        }
        let left = until.since(core.now());
        if left.is_zero() {
            return self.told.try_lock().is_ok_and(|told| !told.written);
        }
        let leaving = async {
            let mut told = self.told.lock().await;
            told.ended = true;
            !std::mem::take(&mut told.written) || remove(core).await
        };
        timeout(left, pin!(leaving)).await.unwrap_or(false)
    }

    /// Checks whether there is something to report, and writes the record when it is due.
    async fn look(&self, core: &Site) {
        let mut told = self.told.lock().await;
        if told.ended {
            return;
        }
        let now = core.now();
        let waited = |began: Moment| now.since(began) >= WAITED;
        let lasts = |hold: &HeldHere| {
            let waits = hold.due() > now;
            now.since(hold.began()) >= if waits { WAITED } else { HELD }
        };
        let tells = core.oldest_wait().is_some_and(waited) || core.holds().iter().any(lasts);
        told.looks += 1;
        if !tells {
            told.text = None;
            told.waits = false;
            told.written = told.written && !remove(core).await;
        } else if told.text.is_none() || told.looks >= 2 {
            told.tell(core, self.presence).await;
        }
    }

    /// Reports the first long wait. Returns the time of the next check for one, if a call waits.
    async fn look_at_waits(&self, core: &Site) -> Option<Moment> {
        // Cleared before the check, so that a waiter which parks after the check notifies the bell.
        self.armed.store(false, Ordering::Release);
        let began = core.oldest_wait()?;
        if core.now().since(began) < WAITED {
            self.armed.store(true, Ordering::Release);
            return Some(began + FIRST_WAIT);
        }
        let mut told = self.told.lock().await;
        // Later waits are reported with the next refresh.
        if !told.ended && !told.waits {
            told.tell(core, self.presence).await;
        }
        None
    }
}

impl Announced {
    async fn tell(&mut self, core: &Site, presence: Presence) {
        let connections = *core.servers().changes().borrow();
        if self.refused == Some(connections) {
            return;
        }
        let keys = Keys::new(core.config());
        let at = core.now();
        let now = self.server_micros(core, at);
        let seen = local::look(core, at, record::MOST_HOLDS, record::MOST_WAITS);
        own::among(&core.surveys.own, &seen);
        let text = record::write(&seen, now, presence == Presence::On);
        self.looks = 0;
        let written = std::mem::replace(&mut self.written, true);
        // The text on the server is unknown until the reply arrives, also if the reply is too late.
        let last = self.text.take();
        let clean = last.is_none() || self.writes.is_multiple_of(CLEANS);
        self.writes = self.writes.wrapping_add(1);
        let (told, listed) = tokio::join!(
            put(core, &keys, &text, last.as_ref() != Some(&text)),
            list(core, &keys, now / 1000, clean)
        );
        if matches!(&told, Err(Failure::Rejected(_))) {
            self.written = written;
        }
        match told.and(listed) {
            Ok(()) => {
                self.refused = None;
                self.waits = !seen.waits.is_empty();
                self.text = Some(text);
            }
            Err(Failure::Rejected(ServerRejection::NotPermitted { detail })) => {
                self.refused = Some(connections);
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(
                        detail,
                        "not permitted to report the holds and waits of this client; grant %W~stanchion_client* or set Presence::Off"
                    );
                }
            }
            Err(failure) => {
                tracing::debug!(
                    ?failure,
                    "the holds and waits of this client were not reported"
                );
                // In a cluster the slot may have moved.
                core.servers().doubt();
            }
        }
    }

    /// Returns the server's time, in µs. Computed from one reading of its clock while this is right within 1 s, so that an unchanged state
    /// has the same text each time.
    fn server_micros(&mut self, core: &Handle, now: Moment) -> u64 {
        let read = list_micros(core, now);
        let (at, then) = *self.clock.get_or_insert((now, read));
        let reckoned = then + stanchion_transport::micros(now.since(at));
        if reckoned.abs_diff(read) < 1_000_000 {
            return reckoned;
        }
        self.clock = Some((now, read));
        read
    }
}

/// Returns the time in µs of the server that keeps the list. All times in records are of this one clock, wherever the records are kept.
pub(crate) fn list_micros(core: &Handle, at: Moment) -> u64 {
    let list = Keys::new(core.config()).list;
    core.server_micros(core.slot_of_key(&list), at)
}

pub(crate) async fn send(core: &Handle, key: &[u8], parts: &[&[u8]]) -> Result<Reply, Failure> {
    let slot = core.slot_of_key(key);
    let Some(console) = core.servers().console(slot) else {
        return Ok(Reply::Nil);
    };
    console.command(Path::Background, parts).await
}

async fn put(core: &Handle, keys: &Keys, text: &str, news: bool) -> Result<(), Failure> {
    let (key, ms) = (keys.record(&core.id()), LASTS.as_millis().to_string());
    if !news {
        let lengthened = send(core, &key, &[b"PEXPIRE", &key, ms.as_bytes()]).await?;
        // The record may have expired or have been deleted.
        if lengthened.as_int() == Some(1) {
            return Ok(());
        }
    }
    let set = [
        b"SET",
        key.as_slice(),
        text.as_bytes(),
        b"PX",
        ms.as_bytes(),
    ];
    send(core, &key, &set).await.map(drop)
}

async fn list(core: &Handle, keys: &Keys, now: u64, clean: bool) -> Result<(), Failure> {
    let until = now + whole_millis(LASTS);
    let (key, id, until) = (&keys.list, core.id().to_string(), until.to_string());
    let added = send(core, key, &[b"ZADD", key, until.as_bytes(), id.as_bytes()]).await?;
    if clean {
        let before = now.to_string();
        let ended = [
            b"ZREMRANGEBYSCORE",
            key.as_slice(),
            b"-inf",
            before.as_bytes(),
        ];
        send(core, key, &ended).await?;
    }
    // A list that was created again has no TTL and did not contain this client. After a failed write, the next write cleans.
    if !clean && added.as_int() != Some(1) {
        return Ok(());
    }
    let lasts = LIST_LASTS.as_millis().to_string();
    let lengthen = [b"PEXPIRE", key.as_slice(), lasts.as_bytes()];
    send(core, key, &lengthen).await.map(drop)
}

/// Returns whether the server has replied.
async fn remove(core: &Handle) -> bool {
    let keys = Keys::new(core.config());
    let (key, id) = (keys.record(&core.id()), core.id().to_string());
    let delete = [b"DEL".as_slice(), &key];
    let forget = [b"ZREM".as_slice(), &keys.list, id.as_bytes()];
    let gone = tokio::join!(send(core, &key, &delete), send(core, &keys.list, &forget));
    tracing::trace!(?gone, "the record of this client was removed");
    gone.0.is_ok() && gone.1.is_ok()
}

/// Reports the state of the client until the client is closed or dropped. Keeps the core alive only during a check.
pub(crate) async fn run(core: WeakSite, bell: Arc<Notify>, closed: CancellationToken) {
    let Some(strong) = core.upgrade() else { return };
    // A separate generator, so that the number of checks does not change any other random value.
    let seed = strong.config().seams().seed;
    let mut rng = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
    let mut look_at = strong.now() + pause(&mut rng);
    let mut waits_at = Moment::FAR;
    drop(strong);
    loop {
        let Some(strong) = core.upgrade() else { return };
        // Requests end with their connection. This limit is for a server that replies late to one request after the other.
        let limit = strong.config().operation_timeout;
        let now = strong.now();
        if now >= look_at {
            look_at = now + pause(&mut rng);
            let looking = strong.surveys.announcer.look(&strong);
            tokio::time::timeout(limit, looking).await.ok();
        } else if now >= waits_at {
            let looking = strong.surveys.announcer.look_at_waits(&strong);
            let next = tokio::time::timeout(limit, looking).await.ok().flatten();
            waits_at = next.unwrap_or(Moment::FAR);
        }
        let now = strong.now();
        drop(strong);
        tokio::select! {
            biased;
            () = closed.cancelled() => return,
            () = bell.notified() => waits_at = waits_at.min(now + FIRST_WAIT),
            () = tokio::time::sleep(look_at.min(waits_at).since(now)) => {}
        }
    }
}

/// Returns the pause before the next check. Random, so that processes which started together do not check together.
fn pause(rng: &mut fastrand::Rng) -> Duration {
    LOOK.mul_f64(0.9 + 0.2 * rng.f64())
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcer")
            .field("presence", &self.presence)
            .finish_non_exhaustive()
    }
}
