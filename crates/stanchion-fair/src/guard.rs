//! The guard of a held fair lock.

use stanchion_client::Held;
use stanchion_client::primitive::{Detachable, Fenced, Reentrant};

use crate::lock::FairLock;

/// A held [`FairLock`]. Release it, or drop it: the release then runs in the background.
///
/// `Send + Sync + 'static`, and not `Clone`: [`FairLockGuard::reenter`] gives another guard of the same hold, past the
/// waiters of the queue. The release of the last one makes the head of the queue the next holder, in one step. Dropping
/// never blocks, needs no runtime and never panics (P9).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use stanchion_fair::{Client, FairLock};
/// # let client = Client::connect("memory://fair-reenter").await?;
/// # let tickets = FairLock::new(&client, "tickets")?;
/// let outer = tickets.acquire().await?;
/// let next = tokio::spawn(tickets.acquire());
/// # while tickets.queue_len().await? == 0 {}
/// let inner = outer.reenter().await?; // past the waiter
/// outer.release().await?;
/// assert_eq!(tickets.queue_len().await?, 1); // `inner` still holds
/// inner.release().await?;
/// assert!(next.await??.is_held());
/// # Ok(())
/// # }
/// ```
pub type FairLockGuard = Held<FairLock>;

impl Fenced for FairLock {}
impl Reentrant for FairLock {}
impl Detachable for FairLock {}
