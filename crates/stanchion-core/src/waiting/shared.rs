//! The state that threads share: each queue behind its mutex, and the table of all queues.
//!
//! The first waiter or visitor of a subject creates its entry in the table. When the last one has left and no holder of this process is
//! alive, the entry is idle, and kept for a while. Then it is marked `retired` and removed from the table. A caller that looked it up in
//! between sees the mark and looks it up again.
//!
//! Generic over the [`Host`]: `crates/stanchion-explorer/tests/threads` runs this file with a mutex that tries many orders of threads.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use dashmap::DashMap;

use super::queue::{Ask, Effect, Effects, Parts, Queue};
use super::sync::{Mutex, MutexGuard, PoisonError};

/// An entry of the table.
pub(super) trait Host: Sized {
    type Parts: Parts;
    type Key: Clone + Debug + Eq + Hash;
    /// The other data under the mutex of the queue.
    type More: Debug + Default;

    fn key(&self) -> &Self::Key;

    fn mutex(&self) -> &Mutex<State<Self>>;

    /// Itself, as the table has it.
    fn this(&self) -> Option<Arc<Self>>;

    /// Something to drop once the queue is unlocked.
    type Later: Default;

    /// Carries out what belongs under the mutex, after an event.
    fn ended(&self, state: &mut State<Self>, effects: &Effects<Self::Parts>) -> Self::Later;

    /// Sends a request in the background.
    fn send(&self, ask: Ask<Self::Parts>);

    fn wake(waker: <Self::Parts as Parts>::Waker);

    fn state(&self) -> MutexGuard<'_, State<Self>> {
        self.mutex().lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The uses that keep a queue in the table of queues.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// True once the queue is about to leave the table: no waiter may join. Never reset.
    retired: bool,
    /// True while the queue is in `Table::warm`.
    warm: bool,
    /// True while a channel is subscribed for this queue, waiters or not.
    pub(super) subscribed: bool,
    /// The number of attempts under way without a place in the queue.
    pub(super) visitors: u32,
}

/// A queue, and what its mutex protects besides.
#[derive(Debug)]
pub(super) struct State<H: Host> {
    pub(super) queue: Queue<H::Parts>,
    pub(super) uses: Uses,
    pub(super) more: H::More,
}

impl<H: Host> Default for State<H> {
    fn default() -> Self {
        Self {
            queue: Queue::default(),
            uses: Uses::default(),
            more: H::More::default(),
        }
    }
}

impl<H: Host> State<H> {
    /// Returns whether nothing refers to this queue, so that its entry may leave the table.
    fn is_idle(&self) -> bool {
        // A visitor returns to the entry.
        self.uses.visitors == 0 && !self.uses.subscribed && self.queue.is_idle()
    }
}

/// All queues of a client.
#[derive(Debug)]
pub(super) struct Table<H: Host> {
    pub(super) entries: DashMap<H::Key, Arc<H>>,
    /// Entries that have been idle since they came in here, or were at some time, in that order.
    warm: Mutex<VecDeque<Arc<H>>>,
    /// The number of idle entries that are kept.
    most: usize,
}

impl<H: Host> Table<H> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: DashMap::new(),
            warm: Mutex::default(),
            most,
        }
    }

    /// Runs `act` with the queue of `key`, so that its entry stays in the table: a waiter joins, or a visitor comes.
    pub(super) fn enter<R>(
        &self,
        key: &H::Key,
        new: impl Fn() -> Arc<H>,
        act: impl FnOnce(&mut State<H>) -> R,
    ) -> (Arc<H>, R) {
        loop {
            let entry = self.get(key, &new);
            let mut state = entry.state();
            // Under the mutex that `keep_warm` marks the entry under. An entry that is leaving the table must not gain a user: the next look-up
            // creates a new one.
            if !state.uses.retired {
                let result = act(&mut state);
                self.carry_out(&entry, state);
                return (entry, result);
            }
        }
    }

    /// Runs `act` with `entry`, or with the present entry of its key: a reader or a permit does not keep its entry, so the waiters may have a new
    /// one. Returns `None` if there is none.
    pub(super) fn present<R>(
        &self,
        entry: &H,
        act: impl FnOnce(&H, MutexGuard<'_, State<H>>) -> R,
    ) -> Option<R> {
        let state = entry.state();
        if !state.uses.retired {
            return Some(act(entry, state));
        }
        drop(state);
        let current = self.entries.get(entry.key());
        // Outside the shard.
        let current = current.map(|it| Arc::clone(&it))?;
        Some(act(&current, current.state()))
    }

    /// Returns the present entry of `key`, which may be retired by the time the caller locks it.
    fn get(&self, key: &H::Key, new: impl FnOnce() -> Arc<H>) -> Arc<H> {
        // A shared look first: `entry` locks the shard for writing, and most callers find the queue there.
        if let Some(entry) = self.entries.get(key) {
            return Arc::clone(&entry);
        }
        Arc::clone(&self.entries.entry(key.clone()).or_insert_with(new))
    }

    /// Passes an event to the queue of `entry`, and carries out its effects.
    pub(super) fn event<R>(&self, entry: &H, event: impl FnOnce(&mut State<H>) -> R) -> R {
        let mut state = entry.state();
        let result = event(&mut state);
        self.carry_out(entry, state);
        result
    }

    /// Carries out the effects of the events so far, and unlocks the queue.
    pub(super) fn carry_out(&self, entry: &H, mut state: MutexGuard<'_, State<H>>) {
        if state.queue.is_empty() {
            state.queue.rest();
        }
        let effects = state.queue.take_effects();
        let later = entry.ended(&mut state, &effects);
        // The queue is reset when no user refers to it. Its entry leaves the table when so many others have become idle after it.
        let idle = state.is_idle();
        let newly = idle && !state.uses.warm && !state.uses.retired;
        if idle {
            state.queue.reset();
            state.uses.warm |= newly;
        }
        drop(state);
        if newly && let Some(this) = entry.this() {
            self.keep_warm(this);
        }
        // Invariant 4: all effects are carried out, and dropped, after the queue is unlocked.
        for effect in effects {
            match effect {
                Effect::Send(ask) => entry.send(ask),
                Effect::Wake(waker) => H::wake(waker),
                Effect::Left(_) | Effect::Untaken(_) | Effect::GiveUp(_) | Effect::Forget(_) => {}
            }
        }
        drop(later);
    }

    /// Keeps an idle entry for a while, and removes the one that has been kept for longest from the table.
    fn keep_warm(&self, entry: Arc<H>) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        warm.push_back(entry);
        let oldest = (warm.len() > self.most).then(|| warm.pop_front()).flatten();
        drop(warm);
        let Some(oldest) = oldest else { return };
        let mut state = oldest.state();
        state.uses.warm = false;
        // Before the mutex is unlocked: a caller that has already looked this entry up must see it.
        state.uses.retired = state.is_idle();
        let retired = state.uses.retired;
        // The table's shard is locked after the queue is unlocked: elsewhere a queue is locked under its shard.
        drop(state);
        if retired {
            // By identity: an entry that was retired before may have a successor.
            self.entries
                .remove_if(oldest.key(), |_, entry| Arc::ptr_eq(entry, &oldest));
        }
    }
}
