//! The pub/sub multiplexer: one connection to each server, and one subscription for each channel that has waiters.
//!
//! The life of a subscription ([`Topic`]): the first waiter of a channel creates it as `Wanted`, and rings the bell. The task
//! [`Subscriptions::serve`] sends the request (`Asked`), and the server's reply makes it `Confirmed`. When its connection is
//! lost or its slot moves it is `Wanted` again. When the last waiter has left it stays for a linger, so that a lock that is taken
//! often is not subscribed to each time; then it is unsubscribed and removed.
//!
//! Messages are hints. Waiting is correct because of the order *subscribe, try, wait* and the poll behind it: on every
//! confirmation, the first and every later one after a reconnect, the first waiter of each queue tries once.
//!
//! A message counts only on the connection of its topic (P1). After a failover a client may still be subscribed at the former
//! master, which as a replica repeats the messages of the new one: a grant would arrive twice. A message that arrives before the
//! subscription is confirmed waits for that: it may come from a replica.
//!
//! Several queues may have one channel (`x` and `{x}`): they share its subscription and nothing else.
//!
//! Long: one state machine for each topic, and everything that moves it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment};
use crate::config::Wake;
use crate::failure::Failure;
use crate::link::{ConnectionId, Link, Messages, OnPush, Subscribe};
use crate::printable::Printable;
use crate::servers::Servers;
use crate::slot::slot_of;

/// The subscriptions of a client. `E` identifies a receiver, see [`Listen`].
pub struct Subscriptions<E> {
    /// Locked by waiters (under the mutex of their queue, too), by the connection's driver for each message, and by `serve`.
    /// Never held across an await, and no queue is locked under it: the audience of a message is copied out first.
    topics: Mutex<Topics<E>>,
    /// Rung when `serve` has something to do before its next timer. Only `serve` waits for it.
    bell: Notify,
    clock: Arc<dyn Clock>,
    linger: Duration,
    wake: Wake,
    /// Called with each message to a holder. Set once, after the client has been made.
    on_notice: OnceLock<OnNotice>,
    /// True once the client has a subscription for its lifetime.
    hears_for_ever: AtomicBool,
    /// True once the server has refused a channel with notices, and the log has a warning.
    refused: AtomicBool,
}

type Channel = Arc<[u8]>;

/// Receives the channel and payload of each notice.
pub type OnNotice = Arc<dyn Fn(&[u8], &[u8]) + Send + Sync>;

/// All subscriptions, and lists of those that changed, so that a pass of [`Subscriptions::serve`] costs only as much as the
/// changes since the last.
struct Topics<E> {
    by_channel: BTreeMap<Channel, Topic<E>>,
    /// The channels of the topics that have a second one, by that. A message on either is for the same listeners.
    by_second: BTreeMap<Channel, Channel>,
    /// The channels to subscribe to now, in the state [`State::Wanted`].
    wanted: VecDeque<Channel>,
    /// The topics that have been idle, each once, by their earliest end.
    lingering: BinaryHeap<Reverse<(Moment, Channel)>>,
    /// The channels with an unsubscription in flight. A channel is subscribed to again only after the reply: the requests could
    /// overtake each other.
    ending: BTreeSet<Channel>,
}

impl<E> Default for Topics<E> {
    fn default() -> Self {
        Self {
            by_channel: BTreeMap::new(),
            by_second: BTreeMap::new(),
            wanted: VecDeque::new(),
            lingering: BinaryHeap::new(),
            ending: BTreeSet::new(),
        }
    }
}

struct Topic<E> {
    /// The second channel, subscribed to after the first.
    second: Option<Channel>,
    /// The queues and single waiters that ever listened. They leave with the topic.
    listeners: Vec<Listener<E>>,
    slot: u16,
    /// True for a channel with notices to holders: it needs no waiter, and is kept until `idle_since`.
    notices: bool,
    /// Moved by `serve` and its tasks only.
    state: State,
    /// The connection on which the subscription was last requested, unless that connection is lost. Messages on others do not count.
    connection: Option<ConnectionId>,
    /// The messages that arrived before the subscription was confirmed, at most [`MOST_EARLY`].
    early: Vec<Box<[u8]>>,
    /// The moment since which no waiter has listened.
    idle_since: Option<Moment>,
    /// True while it is in [`Topics::lingering`].
    lingers: bool,
}

/// A queue that listens to channels. `E` identifies a receiver of one channel's messages in a queue: it must differ between the queues that share a
/// channel. No method is called under the mutex of the topics.
pub trait Listen<E>: Send + Sync {
    /// Keeps the queue as long as a subscription lasts, so that its messages find the waiters that join in that time.
    fn keep(&self);

    /// The subscription for `receiver` has ended: ends [`Listen::keep`] if it was that of the whole queue.
    fn unkept(&self, receiver: &E);

    /// Handles a message: a hint to try (P4), or a grant. Returns false if the message must be remembered for the next waiter.
    fn woken(&self, receiver: &E, payload: &[u8]) -> bool;

    /// The subscription for `receiver` was confirmed, or lost: a waiter sends a request.
    fn listening_changed(&self, receiver: &E, confirmed: bool);

    /// A message came while no waiter listened: a waiter sends a request.
    fn missed(&self);
}

/// A queue that listens to a channel.
struct Listener<E> {
    receiver: E,
    /// The present queue of `receiver`: an idle one is removed, and a later waiter creates another. Weak, because a subscription must not keep a queue
    /// alive through its linger.
    queue: Weak<dyn Listen<E>>,
    /// True while no waiter listens.
    idle: bool,
    /// True if a message came while no waiter listened. The next waiter then sends one more request.
    unheard: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not requested, or requested on a connection that is lost.
    Wanted,
    /// Sent on this connection, not answered yet.
    Asked(ConnectionId),
    /// Confirmed by the server on this connection.
    Confirmed(ConnectionId),
}

impl State {
    const fn is_confirmed(self) -> bool {
        matches!(self, Self::Confirmed(_))
    }
}

/// The pause before a subscription that the server refused (ACL) is requested again. Waiters poll during the pause.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// The number of topics handled before the task yields (P10): the same thread also sends renewals.
const AT_ONCE: usize = 64;

/// The number of messages that are kept until a subscription is confirmed: for one round trip or two. More are dropped, because
/// the queue sends a request after the confirmation.
const MOST_EARLY: usize = 64;

impl<E: Clone + PartialEq> Topic<E> {
    /// Adds `queue` as a listener. Returns whether the subscription is confirmed, and whether `queue` has received every message
    /// since the last request of a waiter.
    fn listen(&mut self, queue: &Arc<dyn Listen<E>>, receiver: &E) -> (bool, bool) {
        self.idle_since = None;
        let confirmed = self.state.is_confirmed();
        if let Some(listener) = self.listener(receiver) {
            // The old queue was idle and has left the table.
            if !std::ptr::addr_eq(listener.queue.as_ptr(), Arc::as_ptr(queue)) {
                listener.queue = Arc::downgrade(queue);
            }
            listener.idle = false;
            // Taken: this waiter sends a request because of the message, and its reply is recent enough for later waiters.
            return (confirmed, !std::mem::take(&mut listener.unheard));
        }
        self.listeners.push(Listener::new(queue, receiver));
        // A message may have come before now, when only the other queues listened.
        (confirmed, !confirmed)
    }

    fn listener(&mut self, receiver: &E) -> Option<&mut Listener<E>> {
        self.listeners
            .iter_mut()
            .find(|listener| listener.receiver == *receiver)
    }

    /// The queues, or single waiters, that a message or a confirmation is for. The caller wakes them after it has unlocked the
    /// topics: a queue may not be locked under them.
    fn audience(&self) -> Vec<(Arc<dyn Listen<E>>, E)> {
        let present =
            |listener: &Listener<E>| Some((listener.queue.upgrade()?, listener.receiver.clone()));
        self.listeners.iter().filter_map(present).collect()
    }
}

impl<E: Clone> Listener<E> {
    fn new(queue: &Arc<dyn Listen<E>>, receiver: &E) -> Self {
        Self {
            receiver: receiver.clone(),
            queue: Arc::downgrade(queue),
            idle: false,
            unheard: false,
        }
    }
}

impl<E: Clone + PartialEq + Send + Sync + 'static> Subscriptions<E> {
    /// Makes the subscriptions of a client, none at first. Each lasts for `linger` after its last listener.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, linger: Duration, wake: Wake) -> Arc<Self> {
        Arc::new(Self {
            topics: Mutex::default(),
            bell: Notify::new(),
            clock,
            linger,
            wake,
            on_notice: OnceLock::new(),
            hears_for_ever: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        })
    }

    fn topics(&self) -> MutexGuard<'_, Topics<E>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes `queue` to `channel` for `receiver`, unless it is subscribed, and to the channel `second`, which belongs to this `channel` only. Returns
    /// whether the server has confirmed the first. Not to be called under a queue's mutex: it may lock that of `queue`.
    pub fn want(
        &self,
        queue: &Arc<impl Listen<E> + 'static>,
        receiver: &E,
        channel: &[u8],
        second: Option<&[u8]>,
    ) -> bool {
        if self.wake == Wake::Poll {
            return false;
        }
        let queue: &Arc<dyn Listen<E>> = &(Arc::clone(queue) as _);
        // First, so that the end of the topic, which takes it back, comes after it.
        queue.keep();
        let mut topics = self.topics();
        if let Some(topic) = topics.by_channel.get_mut(channel) {
            let (confirmed, heard_all) = topic.listen(queue, receiver);
            // A queue may not be locked under the topics (lock order).
            drop(topics);
            if !heard_all {
                // A message without a receiver may be newer than this waiter's reply: retry, as after a confirmation.
                queue.missed();
            }
            return confirmed;
        }
        let name: Channel = channel.into();
        let second: Option<Channel> = second.map(Into::into);
        if let Some(second) = &second {
            let (second, name) = (Arc::clone(second), Arc::clone(&name));
            topics.by_second.insert(second, name);
        }
        topics.by_channel.insert(
            Arc::clone(&name),
            Topic {
                second,
                listeners: vec![Listener::new(queue, receiver)],
                slot: slot_of(channel),
                notices: false,
                state: State::Wanted,
                connection: None,
                early: Vec::new(),
                idle_since: None,
                lingers: false,
            },
        );
        topics.wanted.push_back(name);
        drop(topics);
        // `notify_one` keeps one ring while `serve` is busy, so none is missed.
        self.bell.notify_one();
        false
    }

    /// Sets the receiver of messages to holders.
    pub fn on_notice(&self, receiver: OnNotice) {
        // Once: by the client that these are the subscriptions of.
        drop(self.on_notice.set(receiver));
    }

    /// Returns whether messages can arrive, and the client has no subscription for its lifetime yet.
    pub fn may_hear_for_ever(&self) -> bool {
        self.wake == Wake::Messages && !self.hears_for_ever.load(Ordering::Relaxed)
    }

    /// Subscribes to a channel with notices until `until`, and a linger longer.
    pub fn hear(&self, channel: &[u8], until: Moment) {
        if self.wake == Wake::Poll {
            return;
        }
        let ends = (until != Moment::FAR).then_some(until);
        if ends.is_none() && self.hears_for_ever.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut guard = self.topics();
        let topics = &mut *guard;
        if let Some(topic) = topics.by_channel.get_mut(channel) {
            topic.idle_since = topic.idle_since.max(ends);
            return;
        }
        let name: Channel = channel.into();
        topics.by_channel.insert(
            Arc::clone(&name),
            Topic {
                second: None,
                listeners: Vec::new(),
                slot: slot_of(channel),
                notices: true,
                state: State::Wanted,
                connection: None,
                early: Vec::new(),
                idle_since: ends,
                lingers: ends.is_some(),
            },
        );
        if let Some(ends) = ends {
            let name = Arc::clone(&name);
            topics.lingering.push(Reverse((ends + self.linger, name)));
        }
        topics.wanted.push_back(name);
        drop(guard);
        self.bell.notify_one();
    }

    /// Handles a refusal by the server. Returns whether it is final on this connection.
    fn is_refused(&self, channel: &[u8], failure: &Failure) -> bool {
        let topics = self.topics();
        let notices = topics.by_channel.get(channel).is_some_and(|it| it.notices);
        drop(topics);
        if !notices || !matches!(failure, Failure::Rejected(_)) {
            return false;
        }
        if !self.refused.swap(true, Ordering::Relaxed) {
            let channel = Printable::new(channel);
            tracing::warn!(%channel, ?failure, "no right to hear that a hold was taken by force: the next renewal finds out");
        }
        true
    }

    /// Lets the subscription to `channel` end after the linger, unless others listen: the last waiter of `receiver` has left.
    pub fn forget(&self, receiver: &E, channel: &[u8]) {
        let mut guard = self.topics();
        let topics = &mut *guard;
        let Some((name, _)) = topics.by_channel.get_key_value(channel) else {
            return;
        };
        let name = Arc::clone(name);
        let Some(topic) = topics.by_channel.get_mut(channel) else {
            return;
        };
        if let Some(listener) = topic.listener(receiver) {
            listener.idle = true;
        }
        if topic.idle_since.is_some() || topic.listeners.iter().any(|listener| !listener.idle) {
            return;
        }
        let now = self.clock.now();
        topic.idle_since = Some(now);
        // Once in the heap: a lock that is taken often would add an entry with every release.
        if !std::mem::replace(&mut topic.lingers, true) {
            let end = now + self.linger;
            // All queues linger for the same time, so a timer that runs for one of them is early enough; those of holders end later.
            let next = topics.lingering.peek();
            let first = next.is_none_or(|Reverse((next, _))| end < *next);
            topics.lingering.push(Reverse((end, name)));
            drop(guard);
            if first {
                self.bell.notify_one();
            }
        }
    }

    /// Returns whether this client's connection is among the receivers of a message on `channel`.
    pub fn hears(&self, channel: &[u8]) -> bool {
        let topics = self.topics();
        let topic = topics.by_channel.get(channel);
        // Also without a waiter: the server counts this connection among the receivers until it is unsubscribed.
        topic.is_some_and(|topic| topic.state.is_confirmed())
    }

    /// The callback that the connection's driver calls for each message.
    pub fn on_push(self: &Arc<Self>) -> OnPush {
        let this = Arc::clone(self);
        Arc::new(move |on: ConnectionId, channel: &[u8], payload: &[u8]| {
            this.message(on, channel, payload);
        })
    }

    fn message(&self, on: ConnectionId, channel: &[u8], payload: &[u8]) {
        let mut topics = self.topics();
        let first = topics.by_second.get(channel).map(Arc::clone);
        let channel = first.as_deref().unwrap_or(channel);
        let Some(topic) = topics.by_channel.get_mut(channel) else {
            return;
        };
        if topic.connection != Some(on) {
            return;
        }
        if matches!(topic.state, State::Asked(_)) {
            if topic.early.len() < MOST_EARLY {
                topic.early.push(payload.into());
            }
            return;
        }
        self.deliver(topics, channel, payload);
    }

    /// Passes a message on to its receivers.
    fn deliver(&self, mut topics: MutexGuard<'_, Topics<E>>, channel: &[u8], payload: &[u8]) {
        let Some(topic) = topics.by_channel.get_mut(channel) else {
            return;
        };
        if topic.notices {
            drop(topics);
            if let Some(receiver) = self.on_notice.get() {
                receiver(channel, payload);
            }
            return;
        }
        for listener in &mut topic.listeners {
            // Its queue is gone. Under the mutex that `listen` takes: a waiter that comes now is either in the audience or finds the
            // mark (P4).
            listener.unheard |= listener.queue.strong_count() == 0;
        }
        let audience = topic.audience();
        drop(topics);
        for (queue, receiver) in audience {
            if !queue.woken(&receiver, payload) {
                self.unheard(channel, &receiver);
            }
        }
    }

    /// Records that a message came while no waiter listened. A waiter that has joined since sends its request after the message.
    fn unheard(&self, channel: &[u8], receiver: &E) {
        if let Some(topic) = self.topics().by_channel.get_mut(channel)
            && let Some(listener) = topic.listener(receiver)
        {
            listener.unheard |= listener.idle;
        }
    }

    /// Keeps the servers' subscriptions equal to the topics until the client is closed.
    pub async fn serve(
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
        // The connections may be older than this task: the first pass looks at all of them.
        changes.mark_changed();
        loop {
            match changes.has_changed() {
                Ok(true) => {
                    // Marked as seen before the look, so that a change during it causes another.
                    changes.borrow_and_update();
                    self.look_at_all(&servers).await;
                }
                Ok(false) => {}
                Err(_) => return,
            }
            let all_asked = self.ask(&servers, kind);
            let next = self.end_lingering(&servers, kind);
            if !all_asked || next == Some(Duration::ZERO) {
                // P10: more is left to do, and this thread also sends renewals.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.bell.notified() => {}
                changed = changes.changed() => match changed {
                    // `changed` has marked it as seen. The top of the loop handles it.
                    Ok(()) => changes.mark_changed(),
                    Err(_) => return,
                },
                () = tokio::time::sleep(next.unwrap_or(Duration::MAX)), if next.is_some() => {}
            }
        }
    }

    /// Marks subscriptions on lost connections, or on a node that no longer serves their slot, as wanted again. Runs when a
    /// connection was opened or lost, or a slot has moved.
    async fn look_at_all(&self, servers: &Servers) {
        let mut after: Option<Channel> = None;
        let mut down = false;
        loop {
            let mut deaf = Vec::new();
            {
                // In a block: the guard may live neither to the queues below nor to the await (lock order).
                let mut guard = self.topics();
                let topics = &mut *guard;
                let from = after.take().map_or(Bound::Unbounded, Bound::Excluded);
                let rest = topics.by_channel.range_mut((from, Bound::Unbounded));
                // By channel, not by position: topics come and go while the mutex is unlocked between two parts.
                for (channel, topic) in rest.take(AT_ONCE) {
                    after = Some(Arc::clone(channel));
                    let link = servers.subscriber(topic.slot);
                    down |= link.as_ref().is_some_and(Link::is_down);
                    let connection = link.as_ref().and_then(Link::connection_id);
                    match topic.state {
                        State::Asked(old) | State::Confirmed(old) if Some(old) == connection => {
                            continue;
                        }
                        // Only these relied on messages. The others poll already.
                        State::Confirmed(_) => deaf.extend(topic.audience()),
                        State::Asked(_) | State::Wanted => {}
                    }
                    topic.connection = None;
                    topic.early.clear();
                    // The channel may be in the list already. `ask` skips a topic that is no longer wanted, so twice does no harm.
                    topic.state = State::Wanted;
                    topics.wanted.push_back(Arc::clone(channel));
                }
            }
            for (queue, receiver) in deaf {
                queue.listening_changed(&receiver, false);
            }
            // The map is loaded before the next subscription, because a demoted master ends its subscriptions; and after each failed
            // attempt to connect, because the other masters may learn of the new master late.
            if std::mem::take(&mut down) {
                servers.doubt();
            }
            if after.is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sends a batch of the wanted subscriptions, each on the connection that serves its slot now. Returns whether none is left.
    fn ask(self: &Arc<Self>, servers: &Arc<Servers>, kind: Messages) -> bool {
        let mut guard = self.topics();
        let topics = &mut *guard;
        let mut asked = Vec::new();
        let batch = topics.wanted.len().min(AT_ONCE);
        for channel in topics.wanted.drain(..batch) {
            // Without a connection it stays wanted: `look_at_all` queues it again when one is opened. While an older subscription
            // ends it stays so, too, see `ended`.
            if let Some(topic) = topics.by_channel.get_mut(&channel)
                && topic.state == State::Wanted
                && !topics.ending.contains(&channel)
                && let Some(link) = servers.subscriber(topic.slot)
                && let Some(connection) = link.connection_id()
            {
                // Before it is sent: an answer that comes after the connection was replaced is then recognised as old.
                topic.state = State::Asked(connection);
                topic.connection = Some(connection);
                asked.push((channel, topic.second.clone(), link, connection));
            }
        }
        let is_all = topics.wanted.is_empty();
        drop(guard);
        for (channel, second, link, connection) in asked {
            let (this, servers) = (Arc::clone(self), Arc::clone(servers));
            // A task for each, so that a server that is slow to confirm one delays no other.
            tokio::spawn(async move {
                let outcome = link.subscribe(&channel, Subscribe::Start, kind).await;
                this.answered(&channel, connection, outcome.is_ok());
                if outcome.is_ok()
                    && let Some(second) = second
                {
                    this.subscribe_second(&channel, &second, &link, kind).await;
                }
                if let Err(failure) = outcome {
                    if this.is_refused(&channel, &failure) {
                        // Requested again with the next connection, when the rights may have changed.
                        return;
                    }
                    tracing::debug!(channel = %Printable::new(&channel), ?failure, "subscribing failed; waiters poll");
                    servers.doubt();
                    tokio::time::sleep(REFUSED_PAUSE).await;
                    this.topics().wanted.push_back(channel);
                    this.bell.notify_one();
                }
            });
        }
        is_all
    }

    /// Subscribes to the second channel of a topic. If refused, a relay counts as a client of Redisson's, and other messages on it are missed.
    async fn subscribe_second(&self, channel: &[u8], second: &[u8], link: &Link, kind: Messages) {
        drop(link.subscribe(second, Subscribe::Start, kind).await);
        // L7: a relay's second channel without the first would hide a client of Redisson's from the count, and starve that client.
        if !self.hears(channel) {
            drop(link.subscribe(second, Subscribe::Stop, kind).await);
        }
    }

    /// Records the server's reply, and lets the listeners send requests if it confirms.
    fn answered(&self, channel: &[u8], connection: ConnectionId, confirmed: bool) {
        let mut topics = self.topics();
        let Some(topic) = topics
            .by_channel
            .get_mut(channel)
            // A reply on a connection that was lost since does not count: the topic is requested again.
            .filter(|topic| topic.state == State::Asked(connection))
        else {
            return;
        };
        let early = std::mem::take(&mut topic.early);
        if !confirmed {
            topic.state = State::Wanted;
            topic.connection = None;
            return;
        }
        topic.state = State::Confirmed(connection);
        let audience = topic.audience();
        drop(topics);
        for payload in early {
            self.deliver(self.topics(), channel, &payload);
        }
        for (queue, receiver) in audience {
            queue.listening_changed(&receiver, true);
        }
    }

    /// Unsubscribes the topics at the end of their linger. Returns the pause until the next one ends.
    fn end_lingering(self: &Arc<Self>, servers: &Servers, kind: Messages) -> Option<Duration> {
        let now = self.clock.now();
        let (mut over, mut idle) = (Vec::new(), Vec::new());
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
            // The topic has a waiter again, and returns to the heap when the last one has left.
            let Some(since) = topic.idle_since else {
                continue;
            };
            // A later waiter may have restarted the linger. And a subscription is ended only after its confirmation: until then
            // it is not known whether there is one.
            let end = since + self.linger;
            let end = match topic.state {
                // The answer has no timer here, so look again soon.
                State::Asked(_) => end.max(now + Duration::from_millis(10)),
                State::Wanted | State::Confirmed(_) => end,
            };
            if end > now {
                topic.lingers = true;
                topics.lingering.push(Reverse((end, channel)));
                continue;
            }
            if let State::Confirmed(connection) = topic.state {
                topics.ending.insert(Arc::clone(&channel));
                over.push((
                    Arc::clone(&channel),
                    topic.second.clone(),
                    topic.slot,
                    connection,
                ));
            }
            // A waiter that comes now begins a new topic, which subscribes when this has ended.
            let topic = topics.by_channel.remove(&channel);
            if let Some(second) = topic.as_ref().and_then(|topic| topic.second.as_ref()) {
                topics.by_second.remove(second);
            }
            idle.extend(topic.iter().flat_map(Topic::audience));
        }
        let next = topics.lingering.peek();
        let next = next.map(|Reverse((end, _))| end.since(now));
        drop(guard);
        for (queue, receiver) in idle {
            queue.unkept(&receiver);
        }
        for (channel, second, slot, connection) in over {
            // A subscription on a lost connection has ended with it.
            let link = servers.subscriber(slot);
            let Some(link) = link.filter(|link| link.connection_id() == Some(connection)) else {
                self.ended(&channel);
                continue;
            };
            let this = Arc::clone(self);
            tokio::spawn(async move {
                if let Some(second) = second {
                    drop(link.subscribe(&second, Subscribe::Stop, kind).await);
                }
                // If this fails, messages without a listener arrive until the connection ends.
                drop(link.subscribe(&channel, Subscribe::Stop, kind).await);
                this.ended(&channel);
            });
        }
        next
    }

    /// Records that a subscription has ended. A waiter that came in between is subscribed now.
    fn ended(&self, channel: &Channel) {
        let mut topics = self.topics();
        topics.ending.remove(channel);
        if topics.by_channel.contains_key(channel) {
            topics.wanted.push_back(Arc::clone(channel));
            drop(topics);
            self.bell.notify_one();
        }
    }
}

impl<E> std::fmt::Debug for Subscriptions<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriptions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;

    /// Moves the topic `c`, as `ask` does.
    fn ask(subscriptions: &Subscriptions<()>, on: ConnectionId) {
        let mut topics = subscriptions.topics();
        let topic = topics.by_channel.get_mut(b"c".as_slice()).unwrap();
        topic.state = State::Asked(on);
        topic.connection = Some(on);
    }

    #[test]
    fn a_message_counts_on_the_connection_of_its_topic_alone() {
        let subscriptions =
            Subscriptions::<()>::new(Arc::new(BootClock), Duration::ZERO, Wake::Messages);
        let heard = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let receiver = Arc::clone(&heard);
        subscriptions.on_notice(Arc::new(move |_, payload| {
            receiver.lock().unwrap().push(payload.to_vec());
        }));
        let heard = || std::mem::take(&mut *heard.lock().unwrap());
        subscriptions.hear(b"c", Moment::FAR);
        let push = subscriptions.on_push();
        let [former, present] = [1, 2].map(|link| ConnectionId::new(link, 1));
        push(former, b"c", b"before");
        assert!(heard().is_empty());

        ask(&subscriptions, former);
        push(former, b"c", b"early");
        assert!(heard().is_empty(), "P1: it may be a replica");
        subscriptions.answered(b"c", former, true);
        push(former, b"c", b"late");
        push(present, b"c", b"elsewhere");
        assert_eq!(heard(), [b"early".as_slice(), b"late"]);

        ask(&subscriptions, present);
        push(former, b"c", b"twice");
        push(present, b"c", b"twice");
        subscriptions.answered(b"c", present, true);
        assert_eq!(heard(), [b"twice"], "P1: a second copy does not count");

        ask(&subscriptions, former);
        push(former, b"c", b"of a replica");
        subscriptions.answered(b"c", former, false);
        push(former, b"c", b"of a replica");
        assert!(heard().is_empty());
    }
}
