//! Counts the replies that a connection owes. The supervisor uses the count to notice a silent server.
//!
//! A reply counts when it arrives, not when its caller polls again. A caller may poll once and then be busy for long (in a
//! `select!` with another arm that runs): the reply is there, but the future has not seen it. If only polls were counted,
//! the connection would look silent and would be dropped.
//!
//! The wake shows the arrival: [`Books::enter`] gives the redis crate a special waker, which counts the reply and then wakes
//! the caller. A wake without a reply is corrected at the next poll. The wakers are reused.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The largest number of wakers that are kept for later requests.
const SPARE: usize = 256;

/// The requests and replies of one connection. Calls change the counters, and the supervisor reads them.
#[derive(Debug, Default)]
pub(crate) struct Books {
    counts: Arc<ReplyCounts>,
    /// Entries without any other reference. Locked for one access.
    spare: Mutex<Vec<Kept>>,
}

/// `Relaxed` suffices: the counters order nothing else, and the supervisor reads them again after a tick.
#[derive(Debug, Default)]
struct ReplyCounts {
    owed: AtomicUsize,
    answered: AtomicU64,
    /// The number of messages. Messages answer no request.
    told: AtomicU64,
}

/// A shared handle to a connection's counters: how many replies are owed, and how many have arrived.
#[derive(Clone)]
pub(crate) struct Owed(Arc<ReplyCounts>);

impl Owed {
    /// Counts a message.
    pub(crate) fn told(&self) {
        self.0.told.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of replies and messages that have arrived completely.
    pub(crate) fn arrived(&self) -> u64 {
        let answered = self.0.answered.load(Ordering::Relaxed);
        answered.wrapping_add(self.0.told.load(Ordering::Relaxed))
    }

    pub(crate) fn replies(&self) -> usize {
        self.0.owed.load(Ordering::Relaxed)
    }
}

impl Books {
    pub(crate) fn owed(&self) -> Owed {
        Owed(Arc::clone(&self.counts))
    }

    /// Returns whether a reply is owed.
    pub(crate) fn owes(&self) -> bool {
        self.counts.owed.load(Ordering::Relaxed) > 0
    }

    /// Returns the number of replies that have arrived.
    pub(crate) fn answered(&self) -> u64 {
        self.counts.answered.load(Ordering::Relaxed)
    }

    /// Runs `exchange`, a request and its reply, and counts it from the first poll on.
    pub(crate) async fn enter<T>(&self, mut exchange: Pin<&mut impl Future<Output = T>>) -> T {
        // Created before the first poll, because a caller may drop this future at any point after the first poll.
        let opened = Opened {
            books: self,
            kept: Some(self.entry()),
        };
        let mut polled = false;
        poll_fn(|cx| {
            let Some(Kept { entry, waker }) = &opened.kept else {
                // OK: only the drop takes it.
                return Poll::Pending;
            };
            // Registered before the poll: the driver may store the reply and wake the entry on its own thread right after the poll.
            entry.caller.register(cx.waker());
            // The entry is opened again after a wake without a reply.
            // The reply counts as owed while the bytes are still in the redis crate's queue: a driver that does not take them is
            // as silent as a server.
            let counted = entry.open() && std::mem::replace(&mut polled, true);
            // The entry's waker, not the caller's: the entry's waker counts the reply even if the caller does not poll again.
            let answer = exchange.as_mut().poll(&mut Context::from_waker(waker));
            // The wake has counted this reply. Only the debt that this poll opened again must be closed.
            if answer.is_ready() && counted {
                entry.close();
            } else if answer.is_ready() {
                // The reply was ready before any wake: at the first poll, or after the driver stored it and before the driver woke the entry.
                entry.arrived();
            }
            answer
        })
        .await
    }

    fn entry(&self) -> Kept {
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        spare.unwrap_or_else(|| {
            let entry = Arc::new(Entry {
                counts: Arc::clone(&self.counts),
                open: AtomicBool::new(false),
                caller: AtomicWaker::new(),
            });
            let waker = Waker::from(Arc::clone(&entry));
            Kept { entry, waker }
        })
    }
}

/// An entry, and a waker made from it.
#[derive(Debug)]
struct Kept {
    entry: Arc<Entry>,
    waker: Waker,
}

/// One request. The redis crate wakes this entry when the reply arrives.
#[derive(Debug)]
struct Entry {
    counts: Arc<ReplyCounts>,
    /// True while the entry is counted in [`ReplyCounts::owed`]. Polls of the caller's task set it. The first of these clears it:
    /// a poll, the driver's wake or the drop.
    open: AtomicBool,
    /// Set by the caller's task at each poll, woken by the driver.
    caller: AtomicWaker,
}

impl Entry {
    /// Opens the entry. Returns whether it was closed.
    fn open(&self) -> bool {
        let was_closed = !self.open.swap(true, Ordering::Relaxed);
        if was_closed {
            self.counts.owed.fetch_add(1, Ordering::Relaxed);
        }
        was_closed
    }

    /// Closes the entry. Returns whether it was open.
    fn close(&self) -> bool {
        let was_open = self.open.swap(false, Ordering::Relaxed);
        if was_open {
            self.counts.owed.fetch_sub(1, Ordering::Relaxed);
        }
        was_open
    }

    fn arrived(&self) {
        if self.close() {
            self.counts.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The count comes first: a caller that was woken without a reply polls, and opens the entry again. In the other
        // order this call would close that new debt.
        self.arrived();
        self.caller.wake();
    }
}

/// Closes the entry when the caller's future has ended or was dropped: no task waits for that reply any longer.
struct Opened<'a> {
    books: &'a Books,
    kept: Option<Kept>,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else {
            return;
        };
        // The redis crate sends no wake for a request after its future was dropped. An open debt would make the supervisor
        // drop a healthy connection. The reply does not count as answered, because no reply was seen.
        kept.entry.close();
        // Otherwise the waker would keep the caller's task alive.
        drop(kept.entry.caller.take());
        // `entry` and `waker` are the only references: while the driver has one, a late wake would count for the next request.
        if Arc::strong_count(&kept.entry) == 2 {
            let mut spare = self
                .books
                .spare
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if spare.len() < SPARE {
                spare.push(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use futures_util::poll;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn an_answer_counts_when_it_arrives() {
        let books = Arc::new(Books::default());
        let (answer, mut answered) = oneshot::channel();
        let mut asked = Box::pin(books.enter(Pin::new(&mut answered)));
        assert!(!books.owes(), "nothing is sent before the first poll");
        assert!(poll!(asked.as_mut()).is_pending());
        assert!(books.owes());
        answer.send(7).unwrap();
        assert_eq!((books.owes(), books.answered()), (false, 1));
        assert_eq!(asked.await, Ok(7));
        assert_eq!((books.owes(), books.answered()), (false, 1), "once");
    }

    #[tokio::test]
    async fn a_wake_without_an_answer_is_taken_back_at_the_next_poll() {
        let books = Arc::new(Books::default());
        let mut exchange = pin!(async {
            tokio::task::yield_now().await;
            std::future::pending::<()>().await;
        });
        let mut asked = Box::pin(books.enter(exchange.as_mut()));
        assert!(poll!(asked.as_mut()).is_pending());
        assert!(poll!(asked.as_mut()).is_pending());
        assert!(books.owes());
        drop(asked);
        assert!(!books.owes(), "nobody waits");
    }

    #[tokio::test]
    async fn an_entry_is_reused_only_after_its_last_waker_is_gone() {
        let books = Books::default();
        let spare = || books.spare.lock().unwrap().len();
        let (answer, answered) = oneshot::channel();
        answer.send(7).unwrap();
        assert_eq!(books.enter(pin!(answered)).await, Ok(7));
        assert_eq!(spare(), 1);

        // The driver keeps the waker of a request after the caller has dropped the request.
        let mut kept = None;
        {
            let mut exchange = pin!(poll_fn(|cx| {
                kept = Some(cx.waker().clone());
                Poll::<()>::Pending
            }));
            let mut asked = Box::pin(books.enter(exchange.as_mut()));
            assert!(poll!(asked.as_mut()).is_pending());
            assert_eq!(spare(), 0, "used again");
        }
        assert_eq!(spare(), 0, "it can still be woken");
        let (_answer, mut answered) = oneshot::channel::<()>();
        let mut asked = Box::pin(books.enter(Pin::new(&mut answered)));
        assert!(poll!(asked.as_mut()).is_pending());
        kept.unwrap().wake();
        assert!(books.owes(), "a late wake counts for no other request");
    }
}
