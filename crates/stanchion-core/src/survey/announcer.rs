//! Keeps a process's record on the server while there is something to tell.
//!
//! A task of the background looks every 5 s, without the network. While the client holds something for 5 s or longer, or a call waits for
//! 1 s or longer, it writes the record, again every second look; with nothing left to tell it removes it. The first wait that
//! lasts a second is told at once, so that a hang shows while somebody looks. Short holds and short waits cost nothing.
//!
//! A write that fails is dropped: the next look writes anew, and the record of a process that died ends by itself.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{local, own, record};
use crate::hold::state::HoldState;
use crate::shared::Core;
use stanchion_transport::{
    ClientConfig, Failure, Moment, Path, Presence, Reply, ServerRejection, timeout,
};

/// The pause between two looks; up to a tenth more or less. Every second look is a beat.
const LOOK: Duration = Duration::from_secs(5);

/// The age from which a hold is told.
const HELD: Duration = Duration::from_secs(5);

/// The age from which a wait is told, and when the first is looked at.
const WAITED: Duration = Duration::from_secs(1);
const FIRST_WAIT: Duration = Duration::from_millis(1250);

/// The time after which a record ends by itself: three beats.
pub(super) const LASTS: Duration = Duration::from_secs(30);

/// One beat of so many also removes the processes that ended without a word from the list, and lengthens the list's own time. So do
/// the first beat, and one that may have made the list: nothing that ended processes leave grows, or stays.
const CLEANS: u32 = 64;
const LIST_LASTS: Duration = Duration::from_secs(3600);

/// The list of all clients that tell something, and the record of one.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) list: Vec<u8>,
    prefix: String,
}

impl Keys {
    pub(super) fn new(config: &ClientConfig) -> Self {
        let prefix = &config.key_prefix;
        Self {
            list: format!("{prefix}stanchion_clients").into_bytes(),
            prefix: format!("{prefix}stanchion_client"),
        }
    }

    pub(super) fn record(&self, client: &Uuid) -> Vec<u8> {
        format!("{}:{{{client}}}", self.prefix).into_bytes()
    }
}

/// The announcements of a client: what it has told, and whether somebody waits.
pub(crate) struct Announcer {
    presence: Presence,
    since: Moment,
    host: OnceLock<Option<String>>,
    /// True from the first waiter that parks until the background has looked for long waits. Set by waiters, cleared before the look.
    armed: AtomicBool,
    /// Rung by the waiter that sets `armed`.
    bell: Arc<Notify>,
    /// Locked across the requests that change the record: by the background, and at the end by a shutdown.
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// The record that the server has, as far as is known.
    text: Option<String>,
    /// True if a record may be there.
    written: bool,
    /// True if the record tells of a wait.
    waits: bool,
    /// The number of looks since the last write, and of writes.
    looks: u32,
    writes: u32,
    /// A moment, and the server's time then, in µs.
    clock: Option<(Moment, u64)>,
    /// The state of the connections in which the user was refused. Nothing is tried before it has changed.
    refused: Option<u64>,
    warned: bool,
    /// True after a shutdown.
    ended: bool,
}

impl Announcer {
    pub(crate) fn new(config: &ClientConfig, now: Moment) -> Self {
        Self {
            presence: config.presence,
            since: now,
            host: OnceLock::new(),
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

    pub(super) const fn since(&self) -> Moment {
        self.since
    }

    /// The name of this machine. Read once, from the kernel and not from the environment, which may hold anything.
    pub(super) fn host(&self) -> Option<String> {
        let read = || {
            let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
            Some(text.trim().chars().take(64).collect())
        };
        self.host.get_or_init(read).clone()
    }

    /// Tells the background that a call waits. Costs one load, but for the first of them.
    pub(crate) fn somebody_waits(&self) {
        // Without a reader `armed` would stay set: nobody rings twice.
        if !self.armed.load(Ordering::Relaxed) && !self.armed.swap(true, Ordering::AcqRel) {
            self.bell.notify_one();
        }
    }

    /// Removes the record, if there is one, by `until` at the latest: the process is about to end. Returns whether it is certain
    /// that none is left (P8); otherwise it ends by itself.
    pub(crate) async fn leave(&self, core: &Core, until: Moment) -> bool {
        if !self.is_on() {
            return true;
        }
        let left = until.since(core.clock.now());
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

    /// Looks whether there is something to tell, and tells it when it is time.
    async fn look(&self, core: &Core) {
        let mut told = self.told.lock().await;
        if told.ended {
            return;
        }
        let now = core.clock.now();
        let waited = |began: Moment| now.since(began) >= WAITED;
        let lasts = |hold: &Arc<HoldState>| {
            let waits = hold.dates().0 > now;
            now.since(hold.began()) >= if waits { WAITED } else { HELD }
        };
        let tells =
            core.entries.oldest().is_some_and(waited) || core.timetable.holds().iter().any(lasts);
        told.looks += 1;
        if !tells {
            told.text = None;
            told.waits = false;
            told.written = told.written && !remove(core).await;
        } else if told.text.is_none() || told.looks >= 2 {
            told.tell(core, self.presence).await;
        }
    }

    /// Tells of the first long wait. Returns when to look for one again, if somebody waits.
    async fn look_at_waits(&self, core: &Core) -> Option<Moment> {
        // Before the look: whoever parks after it rings.
        self.armed.store(false, Ordering::Release);
        let began = core.entries.oldest()?;
        if core.clock.now().since(began) < WAITED {
            self.armed.store(true, Ordering::Release);
            return Some(began + FIRST_WAIT);
        }
        let mut told = self.told.lock().await;
        // Later ones wait for the next beat.
        if !told.ended && !told.waits {
            told.tell(core, self.presence).await;
        }
        None
    }
}

impl Told {
    async fn tell(&mut self, core: &Core, presence: Presence) {
        let connections = *core.servers.changes().borrow();
        if self.refused == Some(connections) {
            return;
        }
        let keys = Keys::new(&core.config);
        let at = core.clock.now();
        let now = self.server_micros(core, at);
        let seen = local::look(core, at, record::MOST_HOLDS, record::MOST_WAITS);
        own::among(core, &seen);
        let text = record::write(&seen, now, presence == Presence::On);
        self.looks = 0;
        let written = std::mem::replace(&mut self.written, true);
        // Unknown until the answer, also where that does not come in time.
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
                        "not permitted to tell what this client holds and waits for; grant %W~stanchion_client* or set Presence::Off"
                    );
                }
            }
            Err(failure) => {
                tracing::debug!(
                    ?failure,
                    "did not tell what this client holds and waits for"
                );
                // In a cluster the slot may have moved.
                core.servers.doubt();
            }
        }
    }

    /// The server's time, in µs. By one reading of its clock as long as that is about right: what has not changed is then the same
    /// text each time.
    fn server_micros(&mut self, core: &Core, now: Moment) -> u64 {
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

/// The time in µs of the server that keeps the list: the times of records are of this one clock, wherever they are kept.
pub(super) fn list_micros(core: &Core, at: Moment) -> u64 {
    let list = Keys::new(&core.config).list;
    core.server_micros(core.slot_of_key(&list), at)
}

pub(super) async fn send(core: &Core, key: &[u8], parts: &[&[u8]]) -> Result<Reply, Failure> {
    let slot = core.slot_of_key(key);
    let Some(console) = core.servers.console(slot) else {
        return Ok(Reply::Nil);
    };
    console.command(Path::Background, parts).await
}

async fn put(core: &Core, keys: &Keys, text: &str, news: bool) -> Result<(), Failure> {
    let (key, ms) = (keys.record(&core.id), LASTS.as_millis().to_string());
    if !news {
        let lengthened = send(core, &key, &[b"PEXPIRE", &key, ms.as_bytes()]).await?;
        // It may have ended, or been deleted, meanwhile.
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

async fn list(core: &Core, keys: &Keys, now: u64, clean: bool) -> Result<(), Failure> {
    let until = now + crate::millis::whole_millis(LASTS);
    let (key, id, until) = (&keys.list, core.id.to_string(), until.to_string());
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
    // A list that is made again has no TTL, and has not had this client. After a failed beat the next one cleans.
    if !clean && added.as_int() != Some(1) {
        return Ok(());
    }
    let lasts = LIST_LASTS.as_millis().to_string();
    let lengthen = [b"PEXPIRE", key.as_slice(), lasts.as_bytes()];
    send(core, key, &lengthen).await.map(drop)
}

/// Returns whether the server has answered.
async fn remove(core: &Core) -> bool {
    let keys = Keys::new(&core.config);
    let (key, id) = (keys.record(&core.id), core.id.to_string());
    let delete = [b"DEL".as_slice(), &key];
    let forget = [b"ZREM".as_slice(), &keys.list, id.as_bytes()];
    let gone = tokio::join!(send(core, &key, &delete), send(core, &keys.list, &forget));
    tracing::trace!(?gone, "told nothing any more");
    gone.0.is_ok() && gone.1.is_ok()
}

/// Tells what there is to tell, until the client is closed or dropped: it keeps the core only while it looks.
pub(crate) async fn run(core: Weak<Core>, bell: Arc<Notify>, closed: CancellationToken) {
    let Some(strong) = core.upgrade() else { return };
    // Of its own: how often somebody looks changes nothing else that is drawn.
    let seed = strong.config.seams().seed;
    let mut rng = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
    let mut look_at = strong.clock.now() + pause(&mut rng);
    let mut waits_at = Moment::FAR;
    drop(strong);
    loop {
        let Some(strong) = core.upgrade() else { return };
        // Requests end with their connection; this is for a server that answers one by one, late.
        let limit = strong.config.operation_timeout;
        let now = strong.clock.now();
        if now >= look_at {
            look_at = now + pause(&mut rng);
            let looking = strong.presence.look(&strong);
            tokio::time::timeout(limit, looking).await.ok();
        } else if now >= waits_at {
            let looking = strong.presence.look_at_waits(&strong);
            let next = tokio::time::timeout(limit, looking).await.ok().flatten();
            waits_at = next.unwrap_or(Moment::FAR);
        }
        let now = strong.clock.now();
        drop(strong);
        tokio::select! {
            biased;
            () = closed.cancelled() => return,
            () = bell.notified() => waits_at = waits_at.min(now + FIRST_WAIT),
            () = tokio::time::sleep(look_at.min(waits_at).since(now)) => {}
        }
    }
}

/// The pause until the next look. Processes that started together do not look together.
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
