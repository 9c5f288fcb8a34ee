//! A listener's stream of events: those that it has not received yet.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::poll_fn;
use futures_util::stream::{Stream, StreamExt as _, unfold};
use tokio::sync::watch;

use stanchion_core::QueryError;
use stanchion_core::primitive::Handle;

use crate::lookout::{Look, Lookouts, View};
use crate::{Event, NameState, Visible};

/// A stream of the events of a name: acquires and releases, ended leases, the number of free permits, the opening of a latch,
/// the rounds of a barrier.
///
/// Made by the `events` method of a lock, a semaphore, a latch or a barrier. Like every [`Stream`](futures_util::Stream), it does nothing unless
/// polled.
///
/// # Guarantees
/// * The first event is [`Event::Now`], the state of the name at a moment after the first poll. The later events, applied to that state,
///   give the state at a later moment.
/// * An event is a hint and grants nothing: to hold a name, acquire it.
/// * Events come in the order in which they must have happened.
/// * A change is reported about two round trips after it, or up to 15 ms later if another change came just before. If a message is lost,
///   or the server does not report writes, the next poll (5 s) reports the change. The end of a lease is reported when it ends.
/// * The client reads the state of a name at most 100 times a second. A state that begins and ends between two reads is not reported: a
///   lock that is taken and released within a millisecond may never be seen held.
/// * A listener that lags receives the difference between its last event and the present state. Its memory does not grow.
/// * After a period in which more may have been missed, [`Event::Now`] is sent again. Such periods are an outage, which
///   [`Event::Unknown`] reports, and the change to a new connection, for example after a failover.
/// * The stream ends when the client is shut down. The stream also ends when the server refuses (a right is missing, the name belongs to
///   something else); then the last event is [`Event::Unknown`].
///
/// # Cost
/// Nothing while there are no listeners. All listeners of a process to one name share its reads. Each change, and each renewal, costs an
/// `EXISTS` and a script that only reads; without changes, one such script in a poll interval. Holders and waiters pay nothing.
///
/// # Drop
/// When the last listener of a name is dropped, the reads of the name end. The server then reports at most one more write.
#[must_use = "a stream does nothing unless polled"]
pub struct Events {
    stream: Pin<Box<dyn Stream<Item = Event> + Send>>,
}

impl Events {
    /// Returns the stream of events of a name. Sends nothing until it is polled.
    pub fn of(handle: &Handle, visible: Arc<dyn Visible>) -> Self {
        let listener = Listener {
            handle: handle.clone(),
            visible,
            view: None,
            begun: 0,
            known: None,
            is_unknown: false,
            untold: VecDeque::new(),
            is_over: false,
        };
        let stream = unfold(listener, |mut listener| async move {
            let next = listener.next().await?;
            Some((next, listener))
        });
        Self {
            // After its end the stream returns `None` at every poll, and does not panic.
            stream: Box::pin(stream.fuse()),
        }
    }

    /// Waits for the next event, at first the present state. Returns `None` after the client was shut down, or the server refused.
    ///
    /// # Cancel safety
    /// Safe: the next call returns an event that this call has not returned.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|cx| self.stream.as_mut().poll_next(cx)).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The state of one stream.
struct Listener {
    handle: Handle,
    visible: Arc<dyn Visible>,
    /// `None` until the first poll.
    view: Option<watch::Receiver<View>>,
    /// The number of reads that had begun at the first poll. Their results are not used for this listener.
    begun: u64,
    /// The state after the events that were sent so far, and the number of gaps that were reported.
    known: Option<(Arc<NameState>, u64)>,
    /// True after [`Event::Unknown`].
    is_unknown: bool,
    untold: VecDeque<Event>,
    is_over: bool,
}

impl Listener {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.untold.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let mut view = match self.view.take() {
                Some(view) => view,
                None => {
                    let lookouts = self.handle.extension::<Lookouts>()?;
                    let (view, begun) = lookouts.listen(&self.handle, &self.visible);
                    self.begun = begun;
                    view
                }
            };
            let seen = view.borrow_and_update().clone();
            self.hear(&seen);
            let view = self.view.insert(view);
            if self.untold.is_empty() {
                let closing = self.handle.closing();
                let ended = tokio::select! {
                    biased;
                    () = closing.cancelled() => true,
                    changed = view.changed() => changed.is_err(),
                };
                self.is_over = ended;
            }
        }
    }

    fn hear(&mut self, view: &View) {
        match &view.look {
            Look::None => {}
            Look::Failed(error) => {
                self.is_over = matches!(error, QueryError::Rejected { .. });
                if self.is_over || !self.is_unknown {
                    self.is_unknown = true;
                    self.untold.push_back(Event::Unknown(error.clone()));
                }
            }
            Look::Seen { state, number, .. } => {
                let went_on = self.known.take().filter(|(_, gaps)| *gaps == view.gaps);
                match went_on.filter(|_| !self.is_unknown) {
                    Some((known, _)) => self.untold.extend(state.since(&known, &view.lapsed)),
                    // This read began before the first poll, for another listener.
                    None if *number <= self.begun => return,
                    None => self.untold.push_back(Event::Now((**state).clone())),
                }
                self.is_unknown = false;
                self.known = Some((Arc::clone(state), view.gaps));
            }
        }
    }
}
