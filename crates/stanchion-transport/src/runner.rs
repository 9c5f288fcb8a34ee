//! Runs background work, and futures that finish after their caller has dropped them.
//!
//! [`Runner::serve`] runs tasks for the client's life. A shutdown waits for the work of [`Runner::finish`] and [`Persistent`].

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::config::Background;
use crate::timer::{sleep, timeout};

/// Runs background work on the client's own thread, or on the runtime that connected.
#[derive(Clone, Debug)]
pub struct Runner {
    handle: Handle,
    /// The work that a shutdown waits for.
    tracker: TaskTracker,
    /// The number of tasks that were dropped before their end, with their runtime or by a panic.
    lost: Arc<AtomicUsize>,
}

impl Runner {
    /// Starts the client's thread if the configuration requires one. The thread ends when `closed` is cancelled.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub async fn start(background: Background, closed: CancellationToken) -> io::Result<Self> {
        let tracker = TaskTracker::new();
        let handle = match background {
            // Virtual time and simulations: the work must use the time of the runtime that drives the test.
            Background::CurrentRuntime => Handle::current(),
            Background::OwnThread => {
                // The join handle is not kept: joining the thread would block the caller that drops the last client (P9).
                // The thread ends without a join.
                let (started, starting) = oneshot::channel();
                // A plain thread, not a blocking task, because the caller's runtime may end first.
                std::thread::Builder::new()
                    .name("stanchion".into())
                    .spawn(move || {
                        // One thread for everything, because these tasks only wait for the network. Blocking work, the
                        // reading of certificate files, runs on a blocking thread (`tls.rs`).
                        match tokio::runtime::Builder::new_current_thread()
                            .enable_all()
                            .build()
                        {
                            Ok(runtime) => {
                                // An error means that the caller was dropped. No client will use this thread, so the thread ends.
                                if started.send(Ok(runtime.handle().clone())).is_ok() {
                                    // When this call returns, the runtime and every task that still waits are dropped.
                                    // `drain` waits earlier for the work that must not be dropped.
                                    runtime.block_on(closed.cancelled());
                                }
                            }
                            // The receiver waits below. If the caller was dropped, no task needs the error.
                            Err(error) => drop(started.send(Err(error))),
                        }
                    })?;
                starting.await.unwrap_or_else(|_| {
                    Err(io::Error::other("the background thread ended at once"))
                })?
            }
        };
        Ok(Self {
            handle,
            tracker,
            lost: Arc::default(),
        })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs work that must end before the client ends. Never blocks or panics. A runtime that has ended drops the work.
    pub fn finish(&self, work: impl Future<Output = ()> + Send + 'static) {
        let unfinished = Unfinished(Some(Arc::clone(&self.lost)));
        let work = async move {
            let mut unfinished = unfinished;
            work.await;
            unfinished.0 = None;
        };
        self.tracker.spawn_on(work, &self.handle);
    }

    /// Makes a shutdown wait until the returned value is dropped.
    fn busy(&self) -> TaskTrackerToken {
        self.tracker.token()
    }

    /// Runs work for the client's life.
    pub fn serve(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    /// Sleeps on the runner's timers, so that the caller's runtime needs no timers.
    pub async fn sleep(&self, pause: Duration) {
        // Dropping the caller's future does not end this task, but the task holds only its timer.
        let slept = self
            .handle
            .spawn(async move { tokio::time::sleep(pause).await })
            .await;
        // A runner that has ended cannot sleep, and a loop without a pause would occupy the caller's executor.
        if slept.is_err() && Handle::try_current().is_ok() {
            sleep(pause).await;
        }
    }

    /// Waits up to `grace` for the work to end. Returns the number of tasks that are unfinished or were dropped before their end.
    pub async fn drain(&self, grace: Duration) -> usize {
        // `wait` returns only for a closed tracker. A closed tracker still accepts work.
        self.tracker.close();
        let drained = timeout(grace, pin!(self.tracker.wait())).await;
        // A shutdown drains twice, and the second drain must count the work that was added in between.
        self.tracker.reopen();
        // `len()` alone is wrong: work that began after the wait ended would count as unfinished.
        let unfinished = if drained.is_some() {
            0
        } else {
            self.tracker.len()
        };
        // P8: work that was dropped has ended but was not done.
        unfinished + self.lost.load(Ordering::Relaxed)
    }
}

/// Counts a task as lost when this value is dropped, unless it was emptied before.
struct Unfinished(Option<Arc<AtomicUsize>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(lost) = &self.0 {
            // `Relaxed`: the counter orders nothing else.
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A future that finishes in the background when its caller drops it.
///
/// All cancel safety depends on this: a request that was sent is awaited, and its outcome, when dropped in the background,
/// cleans up. A future that was never polled has sent nothing and is simply dropped.
pub struct Persistent<T: Send + 'static> {
    /// `None` once the work has ended or was moved to the background.
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    runner: Arc<Runner>,
    /// Makes a shutdown wait, from the first poll on. Also marks that the work has begun.
    busy: Option<Busy>,
}

impl<T: Send + 'static> fmt::Debug for Persistent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persistent")
            .field("begun", &self.busy.is_some())
            .finish_non_exhaustive()
    }
}

/// A token that a shutdown waits for.
pub type Busy = TaskTrackerToken;

impl<T: Send + 'static> Persistent<T> {
    /// Creates a future. The work begins at the first poll.
    pub fn new(runner: &Arc<Runner>, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            work: Some(Box::pin(work)),
            runner: Arc::clone(runner),
            busy: None,
        }
    }

    /// Creates a future. The work is done even if the future is never polled.
    pub fn begun(runner: &Arc<Runner>, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            work: Some(Box::pin(work)),
            runner: Arc::clone(runner),
            busy: Some(runner.busy()),
        }
    }

    /// Takes the token, for a caller that must handle the outcome before a shutdown may continue.
    pub fn take_busy(&mut self) -> Option<Busy> {
        self.busy.take()
    }
}

impl<T: Send + 'static> Future for Persistent<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Set before the first poll of the work, so that a shutdown during that poll waits for the request.
        if self.busy.is_none() {
            self.busy = Some(self.runner.busy());
        }
        // A poll after the end returns pending and does not panic.
        let Some(work) = &mut self.work else {
            return Poll::Pending;
        };
        let outcome = std::task::ready!(work.as_mut().poll(cx));
        // The work has ended. If the drop ran it again, the poll would panic.
        self.work = None;
        Poll::Ready(outcome)
    }
}

impl<T: Send + 'static> Drop for Persistent<T> {
    fn drop(&mut self) {
        // Work that was never polled has sent nothing.
        // The fields are dropped after this code: `finish` counts the work before `busy` is released, so a shutdown sees no gap.
        if let Some(work) = self.work.take().filter(|_| self.busy.is_some()) {
            self.runner.finish(async move { drop(work.await) });
        }
    }
}
