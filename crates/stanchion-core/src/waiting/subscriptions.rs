//! The pub/sub multiplexer: one connection, one subscription for each channel that has waiters, kept for a short linger.
//!
//! Messages are hints. What makes waiting correct is the order *subscribe, try, wait* and the poll behind it: on every
//! confirmation, the first and every later one after a reconnect, the waiters of the channel try once.
//!
//! A channel may be that of several queues (`x` and `{x}`): they share its subscription and nothing else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Entry;
use crate::owner::WireOwner;
use crate::primitive::Subject;
use stanchion_transport::Servers;
use stanchion_transport::Wake;
use stanchion_transport::slot::slot;
use stanchion_transport::{Clock, Moment};
use stanchion_transport::{Link, Messages, OnPush, Seat, Subscribe};

pub(crate) struct Subscriptions {
    topics: Mutex<Topics>,
    bell: Notify,
    clock: Arc<dyn Clock>,
    linger: Duration,
    wake: Wake,
}

type Channel = Arc<[u8]>;

/// What there is, and what has changed: a pass of [`Subscriptions::serve`] costs as much as the changes since the last.
#[derive(Default)]
struct Topics {
    by_channel: BTreeMap<Channel, Topic>,
    /// In the state [`State::Wanted`], to be asked for now.
    wanted: VecDeque<Channel>,
    /// Each topic that has been idle, once, by when it may end at the earliest.
    lingering: BinaryHeap<Reverse<(Moment, Channel)>>,
}

struct Topic {
    listeners: Vec<Listener>,
    slot: u16,
    state: State,
    /// Nobody has waited since then.
    idle_since: Option<Moment>,
    /// It has a place in [`Topics::lingering`].
    lingers: bool,
}

/// A queue that a channel is listened to for.
struct Listener {
    subject: Subject,
    /// That queue now: one that was idle may have been made anew.
    entry: Weak<Entry>,
    /// The one waiter it is for; `None`: for the whole queue.
    whom: Option<WireOwner>,
    /// Nobody waits.
    idle: bool,
    /// A message came while nobody waited.
    unheard: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Wanted,
    /// On this connection.
    Asked(Seat),
    Confirmed(Seat),
}

impl State {
    const fn is_confirmed(self) -> bool {
        matches!(self, Self::Confirmed(_))
    }
}

/// A subscription the server refused (ACL) is asked for again after this long; meanwhile waiters poll.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// P10: so many topics are dealt with before the thread, which also renews, may do something else.
const AT_ONCE: usize = 64;

impl Topic {
    /// Whether `entry` is heard, and has heard all since its last waiter asked.
    fn listen(&mut self, entry: &Arc<Entry>, whom: Option<&WireOwner>) -> (bool, bool) {
        self.idle_since = None;
        let confirmed = self.state.is_confirmed();
        if let Some(listener) = self.listener(entry, whom) {
            if !std::ptr::eq(listener.entry.as_ptr(), Arc::as_ptr(entry)) {
                listener.entry = Arc::downgrade(entry);
            }
            listener.idle = false;
            return (confirmed, !std::mem::take(&mut listener.unheard));
        }
        self.listeners.push(Listener::new(entry, whom));
        // Messages that came before now went to the others only.
        (confirmed, !confirmed)
    }

    fn listener(&mut self, entry: &Entry, whom: Option<&WireOwner>) -> Option<&mut Listener> {
        self.listeners
            .iter_mut()
            .find(|listener| listener.whom.as_ref() == whom && listener.subject == *entry.subject())
    }

    /// Whom a message or a confirmation is for.
    fn audience(&self) -> Vec<(Arc<Entry>, Option<WireOwner>)> {
        let present =
            |listener: &Listener| Some((listener.entry.upgrade()?, listener.whom.clone()));
        self.listeners.iter().filter_map(present).collect()
    }
}

impl Listener {
    fn new(entry: &Arc<Entry>, whom: Option<&WireOwner>) -> Self {
        Self {
            subject: entry.subject().clone(),
            entry: Arc::downgrade(entry),
            whom: whom.cloned(),
            idle: false,
            unheard: false,
        }
    }
}

impl Subscriptions {
    pub(crate) fn new(clock: Arc<dyn Clock>, linger: Duration, wake: Wake) -> Arc<Self> {
        Arc::new(Self {
            topics: Mutex::default(),
            bell: Notify::new(),
            clock,
            linger,
            wake,
        })
    }

    fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes for `entry` unless that is done. Returns whether the server has confirmed.
    pub(crate) fn want(&self, entry: &Arc<Entry>) -> bool {
        self.want_on(entry, entry.channel(), None)
    }

    /// Subscribes to `channel` for the one waiter `owner` of `entry`.
    pub(crate) fn want_for(&self, entry: &Arc<Entry>, owner: &WireOwner, channel: &[u8]) {
        self.want_on(entry, channel, Some(owner));
    }

    fn want_on(&self, entry: &Arc<Entry>, channel: &[u8], whom: Option<&WireOwner>) -> bool {
        if self.wake == Wake::Poll {
            return false;
        }
        let mut topics = self.topics();
        if let Some(topic) = topics.by_channel.get_mut(channel) {
            let (confirmed, heard_all) = topic.listen(entry, whom);
            drop(topics);
            if !heard_all {
                // It may be about what this waiter has just been told: ask again, as after a confirmation.
                entry.listening_changed();
            }
            return confirmed;
        }
        let name: Channel = channel.into();
        topics.by_channel.insert(
            Arc::clone(&name),
            Topic {
                listeners: vec![Listener::new(entry, whom)],
                slot: slot(channel),
                state: State::Wanted,
                idle_since: None,
                lingers: false,
            },
        );
        topics.wanted.push_back(name);
        drop(topics);
        self.bell.notify_one();
        false
    }

    /// The last waiter of `entry` has left: the subscription ends after the linger, unless others listen.
    pub(crate) fn forget(&self, entry: &Entry) {
        self.forget_on(entry, entry.channel(), None);
    }

    /// The one waiter `owner` of `entry` that `channel` is for has left.
    pub(crate) fn forget_for(&self, entry: &Entry, owner: &WireOwner, channel: &[u8]) {
        self.forget_on(entry, channel, Some(owner));
    }

    fn forget_on(&self, entry: &Entry, channel: &[u8], whom: Option<&WireOwner>) {
        let mut guard = self.topics();
        let topics = &mut *guard;
        let Some((name, _)) = topics.by_channel.get_key_value(channel) else {
            return;
        };
        let name = Arc::clone(name);
        let Some(topic) = topics.by_channel.get_mut(channel) else {
            return;
        };
        if let Some(listener) = topic.listener(entry, whom) {
            listener.idle = true;
        }
        if topic.idle_since.is_some() || topic.listeners.iter().any(|listener| !listener.idle) {
            return;
        }
        let now = self.clock.now();
        topic.idle_since = Some(now);
        if !std::mem::replace(&mut topic.lingers, true) {
            // Whoever fell idle before ends before: the timer that runs is early enough.
            let first = topics.lingering.is_empty();
            topics.lingering.push(Reverse((now + self.linger, name)));
            drop(guard);
            if first {
                self.bell.notify_one();
            }
        }
    }

    /// Whether our own connection is among the receivers of a message on `channel`.
    pub(crate) fn hears(&self, channel: &[u8]) -> bool {
        let topics = self.topics();
        let topic = topics.by_channel.get(channel);
        topic.is_some_and(|topic| topic.state.is_confirmed())
    }

    /// Whether a message on the channel of `entry` is told to its waiters.
    pub(crate) fn reaches(&self, entry: &Entry) -> bool {
        let mut topics = self.topics();
        let topic = topics.by_channel.get_mut(entry.channel());
        topic.is_some_and(|topic| {
            topic.state.is_confirmed() && topic.listener(entry, None).is_some()
        })
    }

    /// What the connection's driver calls for each push.
    pub(crate) fn on_push(self: &Arc<Self>) -> OnPush {
        let this = Arc::clone(self);
        Arc::new(move |channel: &[u8], payload: &[u8]| this.message(channel, payload))
    }

    fn message(&self, channel: &[u8], payload: &[u8]) {
        let mut topics = self.topics();
        let Some(topic) = topics.by_channel.get_mut(channel) else {
            return;
        };
        for listener in &mut topic.listeners {
            listener.unheard |= listener.idle;
        }
        let audience = topic.audience();
        drop(topics);
        for (entry, whom) in audience {
            entry.woken(self.clock.now(), whom.as_ref(), payload);
        }
    }

    /// Keeps the servers' subscriptions equal to ours until the client is gone.
    pub(crate) async fn serve(
        self: Arc<Self>,
        servers: Arc<Servers>,
        kind: Messages,
        closed: CancellationToken,
    ) {
        let work = Arc::clone(&self).keep_up(servers, kind);
        tokio::select! {
            biased;
            () = closed.cancelled() => {}
            () = work => {}
        }
    }

    async fn keep_up(self: Arc<Self>, servers: Arc<Servers>, kind: Messages) {
        let mut changes = servers.changes();
        changes.mark_changed();
        loop {
            match changes.has_changed() {
                Ok(true) => {
                    changes.borrow_and_update();
                    self.look_at_all(&servers).await;
                }
                Ok(false) => {}
                Err(_) => return,
            }
            let all_asked = self.ask(&servers, kind);
            let next = self.end_lingering(&servers, kind);
            if !all_asked || next == Some(Duration::ZERO) {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.bell.notified() => {}
                changed = changes.changed() => match changed {
                    Ok(()) => changes.mark_changed(),
                    Err(_) => return,
                },
                () = tokio::time::sleep(next.unwrap_or(Duration::MAX)), if next.is_some() => {}
            }
        }
    }

    /// A connection has come or gone, or a slot has moved: what was asked for elsewhere is gone, and wanted again.
    async fn look_at_all(&self, servers: &Servers) {
        let mut after: Option<Channel> = None;
        loop {
            let mut deaf = Vec::new();
            {
                let mut guard = self.topics();
                let topics = &mut *guard;
                let from = after.take().map_or(Bound::Unbounded, Bound::Excluded);
                let rest = topics.by_channel.range_mut((from, Bound::Unbounded));
                for (channel, topic) in rest.take(AT_ONCE) {
                    after = Some(Arc::clone(channel));
                    let seat = servers.subscriber(topic.slot).as_ref().and_then(Link::seat);
                    match topic.state {
                        State::Asked(old) | State::Confirmed(old) if Some(old) == seat => continue,
                        State::Confirmed(_) => deaf.extend(topic.audience()),
                        State::Asked(_) | State::Wanted => {}
                    }
                    topic.state = State::Wanted;
                    topics.wanted.push_back(Arc::clone(channel));
                }
            }
            for (entry, whom) in deaf {
                if whom.is_none() {
                    entry.listening_changed();
                }
            }
            if after.is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Asks for what is wanted, on the connection that it belongs on now. Returns whether that was all.
    fn ask(self: &Arc<Self>, servers: &Arc<Servers>, kind: Messages) -> bool {
        let mut guard = self.topics();
        let topics = &mut *guard;
        let mut asked = Vec::new();
        let batch = topics.wanted.len().min(AT_ONCE);
        for channel in topics.wanted.drain(..batch) {
            // Without a connection it stays wanted: the next change comes with one.
            if let Some(topic) = topics.by_channel.get_mut(&channel)
                && topic.state == State::Wanted
                && let Some(link) = servers.subscriber(topic.slot)
                && let Some(seat) = link.seat()
            {
                topic.state = State::Asked(seat);
                asked.push((channel, link, seat));
            }
        }
        let is_all = topics.wanted.is_empty();
        drop(guard);
        for (channel, link, seat) in asked {
            let (this, servers) = (Arc::clone(self), Arc::clone(servers));
            tokio::spawn(async move {
                let outcome = link.subscribe(&channel, Subscribe::Start, kind).await;
                this.answered(&channel, seat, outcome.is_ok());
                if let Err(failure) = outcome {
                    tracing::debug!(channel = %String::from_utf8_lossy(&channel), ?failure, "subscribing failed; waiters poll");
                    servers.doubt();
                    tokio::time::sleep(REFUSED_PAUSE).await;
                    this.topics().wanted.push_back(channel);
                    this.bell.notify_one();
                }
            });
        }
        is_all
    }

    fn answered(&self, channel: &[u8], seat: Seat, confirmed: bool) {
        let mut topics = self.topics();
        let Some(topic) = topics
            .by_channel
            .get_mut(channel)
            .filter(|topic| topic.state == State::Asked(seat))
        else {
            return;
        };
        if !confirmed {
            topic.state = State::Wanted;
            return;
        }
        topic.state = State::Confirmed(seat);
        let audience = topic.audience();
        drop(topics);
        for (entry, whom) in audience {
            match whom {
                Some(owner) => entry.listening_for(&owner),
                None => entry.listening_changed(),
            }
        }
    }

    /// Unsubscribes what has lingered long enough. Returns when to look again.
    fn end_lingering(self: &Arc<Self>, servers: &Servers, kind: Messages) -> Option<Duration> {
        let now = self.clock.now();
        let mut over = Vec::new();
        let mut guard = self.topics();
        let topics = &mut *guard;
        for _ in 0..AT_ONCE {
            if topics
                .lingering
                .peek()
                .is_none_or(|Reverse((end, _))| *end > now)
            {
                break;
            }
            let Some(Reverse((_, channel))) = topics.lingering.pop() else {
                break;
            };
            let Some(topic) = topics.by_channel.get_mut(&channel) else {
                continue;
            };
            topic.lingers = false;
            let Some(since) = topic.idle_since else {
                continue;
            };
            // Somebody has waited meanwhile; or the confirmation is on its way, and what ends must be known to have begun.
            let end = since + self.linger;
            let end = match topic.state {
                State::Asked(_) => end.max(now + Duration::from_millis(10)),
                State::Wanted | State::Confirmed(_) => end,
            };
            if end > now {
                topic.lingers = true;
                topics.lingering.push(Reverse((end, channel)));
                continue;
            }
            if let State::Confirmed(seat) = topic.state {
                over.push((Arc::clone(&channel), topic.slot, seat));
            }
            topics.by_channel.remove(&channel);
        }
        let next = topics.lingering.peek();
        let next = next.map(|Reverse((end, _))| end.since(now));
        drop(guard);
        for (channel, slot, seat) in over {
            // On a connection that has gone the subscription has, too.
            let link = servers.subscriber(slot);
            let Some(link) = link.filter(|link| link.seat() == Some(seat)) else {
                continue;
            };
            let this = Arc::clone(self);
            tokio::spawn(async move {
                drop(link.subscribe(&channel, Subscribe::Stop, kind).await);
                // Somebody may have asked for it again meanwhile, and been overtaken.
                this.renew_overtaken(&channel);
            });
        }
        next
    }

    fn renew_overtaken(&self, channel: &Channel) {
        let mut topics = self.topics();
        if let Some(topic) = topics.by_channel.get_mut(channel)
            && topic.state.is_confirmed()
        {
            topic.state = State::Wanted;
            topics.wanted.push_back(Arc::clone(channel));
            drop(topics);
            self.bell.notify_one();
        }
    }
}

impl std::fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriptions")
            .field("topics", &self.topics().by_channel.len())
            .finish_non_exhaustive()
    }
}
