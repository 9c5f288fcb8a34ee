//! Faults that wait for a request.

use std::sync::Arc;

use tokio::sync::watch;

use crate::eventually::eventually;

use super::{Matcher, Shared, State, Then};

/// A reply to be swallowed.
#[derive(Debug)]
pub(super) struct Rule {
    matcher: Matcher,
    hits: usize,
    then: Then,
}

impl Rule {
    pub(super) const fn new(matcher: Matcher, then: Then) -> Self {
        Self {
            matcher,
            hits: 0,
            then,
        }
    }
}

/// Requests that are held back; created by [`crate::Proxy::hold_requests`]. Dropping it releases them.
#[derive(Debug)]
pub struct Held {
    state: Arc<HeldState>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct HeldState {
    matcher: Matcher,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    hits: usize,
    held: usize,
    fate: Option<Fate>,
}

/// The fate of a request that was held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Released,
    Discarded,
}

impl Held {
    pub(super) fn start(shared: Arc<Shared>, matcher: Matcher) -> Self {
        let state = Arc::new(HeldState {
            matcher,
            progress: watch::Sender::default(),
        });
        shared.lock().holds.push(Arc::clone(&state));
        Self { state, shared }
    }

    /// Returns the number of requests held back so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.progress.borrow().held
    }

    /// Waits until `n` requests are held back.
    ///
    /// # Panics
    /// After 10 s.
    pub async fn wait(&self, n: usize) {
        let what = format!("{n} requests are held by {:?}", self.state.matcher);
        eventually(&what, || self.count() >= n).await;
    }

    /// Passes the requests on to the server, also those whose client has gone. Later requests pass.
    pub fn release(self) {
        self.end(Fate::Released);
    }

    /// Drops the requests: they never reach the server, and their connections are reset. Later requests pass.
    pub fn discard(self) {
        self.end(Fate::Discarded);
    }

    fn end(&self, fate: Fate) {
        let mut state = self.shared.lock();
        state.holds.retain(|h| !Arc::ptr_eq(h, &self.state));
        drop(state);
        self.state.progress.send_modify(|p| {
            // The first fate counts: `discard` is followed by a drop.
            p.fate.get_or_insert(fate);
        });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(Fate::Released);
    }
}

impl HeldState {
    /// Waits until the requests are released or discarded.
    pub(super) async fn fate(&self) -> Fate {
        let mut progress = self.progress.subscribe();
        let ended = progress.wait_for(|p| p.fate.is_some()).await;
        // The sender is in `self`, so it outlives the wait.
        ended.ok().and_then(|p| p.fate).unwrap_or(Fate::Discarded)
    }

    fn takes(&self, args: &[Vec<u8>]) -> bool {
        if !self.matcher.matches(args) {
            return false;
        }
        let mut taken = false;
        self.progress.send_modify(|p| {
            p.hits += 1;
            taken = self.matcher.nth.is_none_or(|nth| nth == p.hits);
            p.held += usize::from(taken);
        });
        taken
    }
}

impl State {
    /// Returns the hold that takes this request.
    pub(super) fn holder(&self, args: &[Vec<u8>]) -> Option<Arc<HeldState>> {
        self.holds.iter().find(|h| h.takes(args)).map(Arc::clone)
    }

    /// Records a request that is passed on now. Returns the fault if its reply is to be swallowed.
    pub(super) fn forward(&mut self, args: &[Vec<u8>]) -> Option<Then> {
        self.seen.push(args.to_vec());
        let hit = self.swallows.iter_mut().position(|rule| {
            let matches = rule.matcher.matches(args);
            rule.hits += usize::from(matches);
            matches && rule.matcher.nth.is_none_or(|nth| nth == rule.hits)
        })?;
        Some(self.swallows.remove(hit).then)
    }
}
