//! What a connection owes: an answer counts when it arrives, whether or not anybody fetches it.
//!
//! A future that was polled once and left (in a `select!` whose other arm is busy) has its answer and does not know. If
//! it counted itself, it would look like a connection that does not answer.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The requests and answers of one connection.
#[derive(Debug, Default)]
pub(super) struct Books {
    owed: AtomicUsize,
    answered: AtomicU64,
}

impl Books {
    /// Whether an answer is missing.
    pub(super) fn owes(&self) -> bool {
        self.owed.load(Ordering::Relaxed) > 0
    }

    /// How many answers have come.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// One request and its answer.
    pub(super) async fn enter<T>(self: &Arc<Self>, exchange: impl Future<Output = T>) -> T {
        let entry = Arc::new(Entry {
            books: Arc::clone(self),
            open: AtomicBool::new(false),
            caller: AtomicWaker::new(),
        });
        let waker = Waker::from(Arc::clone(&entry));
        let dropped = Closing(entry);
        let mut exchange = pin!(exchange);
        let mut polled = false;
        poll_fn(|cx| {
            let entry = &dropped.0;
            entry.caller.register(cx.waker());
            // Also after a wake that brought no answer.
            let counted = entry.open() && std::mem::replace(&mut polled, true);
            let answer = exchange.as_mut().poll(&mut Context::from_waker(&waker));
            if answer.is_ready() && counted {
                entry.close();
            } else if answer.is_ready() {
                entry.arrived();
            }
            answer
        })
        .await
    }
}

/// One request. It is woken by whoever has the answer.
struct Entry {
    books: Arc<Books>,
    open: AtomicBool,
    caller: AtomicWaker,
}

impl Entry {
    /// Returns whether it was closed.
    fn open(&self) -> bool {
        let was_closed = !self.open.swap(true, Ordering::Relaxed);
        if was_closed {
            self.books.owed.fetch_add(1, Ordering::Relaxed);
        }
        was_closed
    }

    /// Returns whether it was open.
    fn close(&self) -> bool {
        let was_open = self.open.swap(false, Ordering::Relaxed);
        if was_open {
            self.books.owed.fetch_sub(1, Ordering::Relaxed);
        }
        was_open
    }

    fn arrived(&self) {
        if self.close() {
            self.books.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.arrived();
        self.caller.wake();
    }
}

/// A request whose future is dropped is waited for no longer.
struct Closing(Arc<Entry>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn an_answer_counts_when_it_arrives() {
        let books = Arc::new(Books::default());
        let (answer, answered) = oneshot::channel();
        let mut asked = Box::pin(books.enter(answered));
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
        let mut asked = Box::pin(books.enter(async {
            tokio::task::yield_now().await;
            std::future::pending::<()>().await;
        }));
        assert!(poll!(asked.as_mut()).is_pending());
        assert!(poll!(asked.as_mut()).is_pending());
        assert!(books.owes());
        drop(asked);
        assert!(!books.owes(), "nobody waits");
    }
}
