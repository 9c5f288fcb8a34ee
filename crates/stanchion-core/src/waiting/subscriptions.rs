//! The pub/sub multiplexer: one connection, one subscription for each name that has waiters, kept for a short linger.
//!
//! Messages are hints. What makes waiting correct is the order *subscribe, try, wait* and the poll behind it: on every
//! confirmation, the first and every later one after a reconnect, the waiters of the channel try once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Entry;
use crate::clock::{Clock, Moment};
use crate::config::Wake;
use crate::owner::WireOwner;
use crate::slot::slot;
use crate::transport::Servers;
use crate::transport::link::{Link, Messages, OnPush, Seat, Subscribe};

pub(crate) struct Subscriptions {
    topics: Mutex<BTreeMap<Vec<u8>, Topic>>,
    bell: Notify,
    clock: Arc<dyn Clock>,
    linger: Duration,
    wake: Wake,
}

struct Topic {
    entry: Weak<Entry>,
    /// The one waiter it is for; `None`: for the whole queue.
    whom: Option<WireOwner>,
    slot: u16,
    state: State,
    /// Nobody has waited since then.
    idle_since: Option<Moment>,
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

    fn topics(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Topic>> {
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
        if let Some(topic) = topics.get_mut(channel) {
            topic.idle_since = None;
            if !std::ptr::eq(topic.entry.as_ptr(), Arc::as_ptr(entry)) {
                topic.entry = Arc::downgrade(entry);
            }
            let confirmed = topic.state.is_confirmed();
            let unheard = std::mem::take(&mut topic.unheard);
            drop(topics);
            if unheard {
                // It may be about what this waiter has just been told: ask again, as after a confirmation.
                entry.listening_changed();
            }
            return confirmed;
        }
        topics.insert(
            channel.to_vec(),
            Topic {
                entry: Arc::downgrade(entry),
                whom: whom.cloned(),
                slot: slot(channel),
                state: State::Wanted,
                idle_since: None,
                unheard: false,
            },
        );
        drop(topics);
        self.bell.notify_one();
        false
    }

    /// The last waiter of `entry` has left: the subscription ends after the linger.
    pub(crate) fn forget(&self, entry: &Entry) {
        self.forget_channel(entry.channel());
    }

    /// The one waiter that `channel` is for has left.
    pub(crate) fn forget_channel(&self, channel: &[u8]) {
        let mut topics = self.topics();
        if let Some(topic) = topics.get_mut(channel)
            && topic.idle_since.is_none()
        {
            topic.idle_since = Some(self.clock.now());
            drop(topics);
            self.bell.notify_one();
        }
    }

    /// Whether our own connection is among the receivers of a message on `channel`.
    pub(crate) fn hears(&self, channel: &[u8]) -> bool {
        self.topics()
            .get(channel)
            .is_some_and(|topic| topic.state.is_confirmed())
    }

    /// What the connection's driver calls for each push.
    pub(crate) fn on_push(self: &Arc<Self>) -> OnPush {
        let this = Arc::clone(self);
        Arc::new(move |channel: &[u8], payload: &[u8]| this.message(channel, payload))
    }

    fn message(&self, channel: &[u8], payload: &[u8]) {
        let (entry, whom) = match self.topics().get_mut(channel) {
            Some(topic) => {
                topic.unheard |= topic.idle_since.is_some();
                (topic.entry.upgrade(), topic.whom.clone())
            }
            None => return,
        };
        if let Some(entry) = entry {
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
        let mut changes = servers.changes();
        loop {
            changes.borrow_and_update();
            self.reconcile(&servers, kind);
            let next = self.end_lingering(&servers, kind);
            tokio::select! {
                biased;
                () = closed.cancelled() => return,
                () = self.bell.notified() => {}
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(next.unwrap_or(Duration::MAX)), if next.is_some() => {}
            }
        }
    }

    /// Asks for what is wanted, on the connection that it belongs on now. What was asked for on another is gone.
    fn reconcile(self: &Arc<Self>, servers: &Arc<Servers>, kind: Messages) {
        let mut deaf = Vec::new();
        let mut wanted = Vec::new();
        for (channel, topic) in self.topics().iter_mut() {
            let link = servers.subscriber(topic.slot);
            let seat = link.as_ref().and_then(Link::seat);
            if let State::Asked(old) | State::Confirmed(old) = topic.state
                && Some(old) != seat
            {
                if topic.state.is_confirmed() && topic.whom.is_none() {
                    deaf.extend(topic.entry.upgrade());
                }
                topic.state = State::Wanted;
            }
            if topic.state == State::Wanted
                && let (Some(link), Some(seat)) = (link, seat)
            {
                topic.state = State::Asked(seat);
                wanted.push((channel.clone(), link, seat));
            }
        }
        for entry in deaf {
            entry.listening_changed();
        }
        for (channel, link, seat) in wanted {
            let (this, servers) = (Arc::clone(self), Arc::clone(servers));
            tokio::spawn(async move {
                let outcome = link.subscribe(&channel, Subscribe::Start, kind).await;
                this.answered(&channel, seat, outcome.is_ok());
                if let Err(failure) = outcome {
                    tracing::debug!(channel = %String::from_utf8_lossy(&channel), ?failure, "subscribing failed; waiters poll");
                    servers.doubt();
                    tokio::time::sleep(REFUSED_PAUSE).await;
                    this.bell.notify_one();
                }
            });
        }
    }

    fn answered(&self, channel: &[u8], seat: Seat, confirmed: bool) {
        let mut topics = self.topics();
        let Some(topic) = topics
            .get_mut(channel)
            .filter(|topic| topic.state == State::Asked(seat))
        else {
            return;
        };
        topic.state = if confirmed {
            State::Confirmed(seat)
        } else {
            State::Wanted
        };
        let (entry, whom) = (topic.entry.upgrade(), topic.whom.clone());
        drop(topics);
        if let (true, Some(entry)) = (confirmed, entry) {
            match whom {
                Some(owner) => entry.listening_for(&owner),
                None => entry.listening_changed(),
            }
        }
    }

    /// Unsubscribes what has lingered long enough. Returns when to look again.
    fn end_lingering(self: &Arc<Self>, servers: &Servers, kind: Messages) -> Option<Duration> {
        let now = self.clock.now();
        let mut next: Option<Duration> = None;
        let mut over = Vec::new();
        self.topics().retain(|channel, topic| {
            let Some(since) = topic.idle_since else {
                return true;
            };
            let left = self.linger.saturating_sub(now.since(since));
            if left.is_zero() && !matches!(topic.state, State::Asked(_)) {
                if let State::Confirmed(seat) = topic.state {
                    over.push((channel.clone(), topic.slot, seat));
                }
                return false;
            }
            let left = left.max(Duration::from_millis(10));
            next = Some(next.map_or(left, |next| next.min(left)));
            true
        });
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

    fn renew_overtaken(&self, channel: &[u8]) {
        let mut topics = self.topics();
        if let Some(topic) = topics.get_mut(channel)
            && topic.state.is_confirmed()
        {
            topic.state = State::Wanted;
            drop(topics);
            self.bell.notify_one();
        }
    }
}

impl std::fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriptions")
            .field("topics", &self.topics().len())
            .finish_non_exhaustive()
    }
}
