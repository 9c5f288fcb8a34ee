//! Blocking calls: every future of this crate, for threads without an async runtime.
//!
//! The types, their methods and the guards are those of the async API. [`Blocking::blocking`] runs the future that a method returns, and blocks the
//! calling thread until the result is there. For a future without a `Result` use [`block_on`].
//!
//! ```
//! use std::time::Duration;
//! use stanchion::blocking::{Blocking as _, block_on};
//! use stanchion::{Client, Lock};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::connect("memory://blocking-doc").blocking()?;
//!     let orders = Lock::new(&client, "orders")?;
//!     let guard = orders.acquire_timeout(Duration::from_secs(5)).blocking()?;
//!     for step in ["charge", "ship"] {
//!         if !guard.is_held() {
//!             return Err(format!("lost the lock before: {step}").into());
//!         }
//!         // Blocking work. Send `guard.fencing_token()` with its writes.
//!     }
//!     guard.release().blocking()?;
//!     block_on(client.shutdown(Duration::from_secs(2)))?;
//!     Ok(())
//! }
//! ```
//!
//! # Guarantees
//! * Those of the async methods. A lease is renewed while the thread works or blocks, because the client renews on its own thread.
//! * Dropping a guard never blocks: the release runs in the background. Before the process exits, run [`Client::shutdown`](crate::Client::shutdown)
//!   to its end, so that the releases of dropped guards are sent.
//! * A call from a task of a tokio runtime returns [`BlockingError::InsideRuntime`] and sends nothing. Calls within `block_in_place` go through, and
//!   in the future of `#[tokio::main]` also those between a `block_in_place` and the next `.await`. No call panics because of its thread.
//! * Any number of threads can block at the same time, also on one client. A client that was connected in an async runtime can be used, too.
//!
//! # Limits
//! A blocked call ends only with its result: limit waits with the methods that take a timeout. Another thread can end them with
//! [`Client::shutdown`](crate::Client::shutdown). Blocking work cannot be stopped from outside when the hold is lost: check
//! [`is_held`](crate::Guard::is_held) between its steps. The detection of [deadlocks](crate::Client::deadlocks) knows the calls of one async task.
//! It does not know the calls of a thread: give them an [owner](crate::AcquireOptions::owner), or run them in the
//! [scope](crate::survey::Actor::scope) of an actor.
//!
//! # What it runs
//! The first call of the process starts one thread, which serves the connections of clients that were connected by blocking calls. The thread runs
//! until the process ends.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Handle};
use tokio::task::coop::poll_proceed;

use crate::Error;

/// The error of a blocking call. `E` is the error of the async method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockingError<E = Infallible> {
    /// A task of an async runtime made the call, which would block the other tasks of its thread. Nothing was sent.
    #[error(
        "a blocking call inside an async runtime would block its other tasks: `.await` the future, or call from `tokio::task::spawn_blocking`"
    )]
    InsideRuntime,
    /// The thread that serves all blocking calls cannot be started. Nothing was sent. The next call tries again.
    #[error("cannot start the thread that serves blocking calls: {detail}")]
    NoThread {
        /// The error of the operating system.
        detail: String,
    },
    /// The error of the async method.
    #[error(transparent)]
    Failed(E),
}

impl<E> From<BlockingError<E>> for Error
where
    E: Into<Self>,
{
    fn from(error: BlockingError<E>) -> Self {
        // Without the parameter, so that `downcast_ref::<BlockingError>()` finds it after each call.
        Self::primitive(match error {
            BlockingError::Failed(error) => return error.into(),
            BlockingError::InsideRuntime => BlockingError::<Infallible>::InsideRuntime,
            BlockingError::NoThread { detail } => BlockingError::NoThread { detail },
        })
    }
}

/// Blocks the calling thread on a future with a `Result`: each acquire, wait, release, renewal and query.
///
/// ```
/// use stanchion::blocking::{Blocking as _, BlockingError};
/// # use std::time::Duration;
/// # use stanchion::{AcquireError, Client, Lock};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://blocking-trait").blocking()?;
/// let orders = Lock::new(&client, "orders")?;
/// let guard = orders.acquire().blocking()?;
/// match orders.acquire_timeout(Duration::from_millis(10)).blocking() {
///     Err(BlockingError::Failed(AcquireError::TimedOut { .. })) => {} // `guard` holds it
///     other => panic!("{other:?}"),
/// }
/// drop(guard); // does not block
/// # Ok(())
/// # }
/// ```
pub trait Blocking<T, E>: Future<Output = Result<T, E>> + Sized {
    /// Runs the future, and blocks until its result is there.
    ///
    /// # Errors
    /// [`BlockingError::Failed`] with the error of the future. The other errors of [`BlockingError`]: the future was not run.
    fn blocking(self) -> Result<T, BlockingError<E>> {
        match block_on(self) {
            Ok(result) => result.map_err(BlockingError::Failed),
            Err(BlockingError::InsideRuntime) => Err(BlockingError::InsideRuntime),
            Err(BlockingError::NoThread { detail }) => Err(BlockingError::NoThread { detail }),
            Err(BlockingError::Failed(never)) => match never {},
        }
    }
}

impl<T, E, F: Future<Output = Result<T, E>>> Blocking<T, E> for F {}

/// Runs `future`, and blocks the calling thread until its output is there. For futures without a `Result`: `shutdown`, `lost`, `ended`, the next
/// event of a name.
///
/// ```
/// use stanchion::blocking::{Blocking as _, block_on};
/// # use std::time::Duration;
/// # use stanchion::{AcquireOptions, Client, Lock, LostReason};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = Client::connect("memory://blocking-block_on").blocking()?;
/// let options = AcquireOptions::new().max_hold(Duration::from_millis(50));
/// let guard = Lock::new(&client, "orders")?.acquire_with(options).blocking()?;
/// assert_eq!(block_on(guard.lost())?, LostReason::MaxHold);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`BlockingError::InsideRuntime`] and [`BlockingError::NoThread`]: the future was not run.
pub fn block_on<F: Future>(future: F) -> Result<F::Output, BlockingError> {
    if is_polled() {
        return Err(BlockingError::InsideRuntime);
    }
    let runtime = runtime().map_err(|error| BlockingError::NoThread {
        detail: error.to_string(),
    })?;
    // The timers of the future, and the connections of a client that it connects, belong to this runtime. `Handle::block_on` would do the rest, but
    // it panics if `is_polled` misses a task.
    let _entered = runtime.enter();
    let signal = Arc::new(Signal {
        thread: thread::current(),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&signal));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        while !signal.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// Wakes a blocked thread. The flag is needed because other code of the thread may use up the token of `unpark`, such as a nested call.
struct Signal {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Returns the runtime of all blocking calls, and starts its thread if there is none.
fn runtime() -> io::Result<Handle> {
    static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);
    // A poisoned mutex contains a complete value: nothing panics between its changes.
    let mut started = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*started {
        return Ok(handle.clone());
    }
    // A runtime with worker threads would panic if the system refuses a thread.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("stanchion-calls".into())
        .spawn(move || runtime.block_on(std::future::pending::<Infallible>()))?;
    Ok(started.insert(handle).clone())
}

/// Returns whether a tokio runtime polls a future on this thread now.
///
/// A handle alone does not show this: the threads of `spawn_blocking` and `block_in_place` have one, and may block. Unlike them, a polled future has a
/// budget of steps, after which it must yield.
fn is_polled() -> bool {
    Handle::try_current().is_ok() && ends_within(u8::MAX)
}

/// Returns whether the budget of this thread ends within `steps`: tokio's has 128. Restores the budget.
fn ends_within(steps: u8) -> bool {
    match poll_proceed(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => true,
        // The drop of the step restores the budget to its value before the step.
        Poll::Ready(_step) => steps > 0 && ends_within(steps - 1),
    }
}
