//! Small helpers of all tests.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, Lease, Rejection, Renewal};
use stanchion_testkit::{Cluster, RedisServer, SentinelSet};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A time in milliseconds.
#[must_use]
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A time in seconds.
#[must_use]
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Runs a call in a task. The task panics if the call fails.
pub fn spawn_ok<T: Send + 'static, E: std::fmt::Debug>(
    call: impl Future<Output = Result<T, E>> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(async move { call.await.unwrap() })
}

/// Asserts that a value has a pattern, and shows it if not.
#[macro_export]
macro_rules! assert_is {
    ($value:expr, $pattern:pat $(,)?) => {
        assert!(matches!($value, $pattern), "{:?}", $value)
    };
}

/// The reason of a rejected acquire.
#[track_caller]
#[must_use]
pub fn rejection_of(error: &AcquireError) -> &Rejection {
    match error {
        AcquireError::Rejected { rejection, .. } => rejection,
        other => panic!("{other}"),
    }
}

fn test_name() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a test").to_owned()
}

/// A private server. Returns `None`, with a message, if no server is installed.
#[must_use]
pub fn server() -> Option<RedisServer> {
    RedisServer::or_skip(&test_name())
}

/// A cluster. Returns `None`, with a message, if no server is installed.
#[must_use]
pub fn cluster() -> Option<Cluster> {
    Cluster::or_skip(&test_name())
}

/// A set of sentinels. Returns `None`, with a message, if no server is installed.
#[must_use]
pub fn sentinels() -> Option<SentinelSet> {
    SentinelSet::or_skip(&test_name())
}

/// Polls a future once.
pub async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// The tasks of the runtime.
#[must_use]
pub fn alive_tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// A lease.
#[must_use]
pub fn lease(length: Duration) -> Lease {
    Lease::new(length).unwrap()
}

/// A lease of this length that is not renewed.
#[must_use]
pub fn manual(length: Duration) -> AcquireOptions {
    AcquireOptions::new()
        .lease(lease(length))
        .renewal(Renewal::Manual)
}

/// Asserts that less than `limit` has passed `since` then. `case` is shown on failure.
#[track_caller]
pub fn assert_within(since: Instant, limit: Duration, case: impl std::fmt::Debug) {
    let took = since.elapsed();
    assert!(took < limit, "{case:?}: {took:?}, not {limit:?}");
}

/// Collects the grants of all waiters, so that none releases before the last one has its grant.
pub async fn together<T>(waiting: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let mut granted = Vec::new();
    for waiter in waiting {
        granted.push(waiter.await.unwrap());
    }
    granted
}

/// Asserts that the call timed out with a request in flight, and reports the time by which a hold of that request is swept.
#[track_caller]
pub fn assert_swept_later(error: &AcquireError) {
    let swept_later = matches!(
        error,
        AcquireError::TimedOut {
            free_by: Some(_),
            ..
        }
    );
    assert!(swept_later, "{error}");
}
