//! The guards of a held read-write lock.

use stanchion_client::Held;
use stanchion_client::primitive::{Downgradable, Fenced, Reentrant};

/// A hold for reading.
#[derive(Debug)]
pub struct Reading(());

/// A hold for writing.
#[derive(Debug)]
pub struct Writing(());

/// A read hold of an [`RwLock`](crate::RwLock). Release it, or drop it: the release then runs in the background.
///
/// `Send + Sync + 'static`, and not `Clone`: [`ReadGuard::reenter`] gives another guard of the same hold, past waiting
/// writers. Dropping never blocks, needs no runtime and never panics (P9).
///
/// A read hold cannot become a write hold: two readers that both waited for that would deadlock. Release it,
/// acquire for writing, and read the data again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use stanchion_rwlock::{Client, RwLock};
/// # let client = Client::connect("memory://rwlock-reenter_read").await?;
/// # let prices = RwLock::new(&client, "prices")?;
/// let outer = prices.read().await?;
/// let writer = tokio::spawn(prices.write()); // waits for the reader
/// # tokio::task::yield_now().await;
/// let inner = outer.reenter().await?; // past the waiting writer
/// outer.release().await?;
/// assert!(inner.is_held() && !writer.is_finished());
/// inner.release().await?;
/// assert!(writer.await??.is_held());
/// # Ok(())
/// # }
/// ```
pub type ReadGuard = Held<Reading>;

/// A write hold of an [`RwLock`](crate::RwLock). Release it, or drop it: the release then runs in the background.
///
/// `Send + Sync + 'static`, and not `Clone`: [`WriteGuard::reenter`] gives another guard of the same hold. Dropping
/// never blocks, needs no runtime and never panics (P9).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use stanchion_rwlock::{Client, RwLock};
/// # let client = Client::connect("memory://rwlock-downgrade").await?;
/// # let prices = RwLock::new(&client, "prices")?;
/// let writing = prices.write().await?;
/// let again = writing.reenter().await?;
/// writing.release().await?;
/// assert!(prices.try_read().await?.is_none()); // `again` still holds
///
/// let token = again.fencing_token(); // for the resource; readers have none
/// let reading = again.downgrade().await?;
/// assert!(prices.try_write().await?.is_none()); // what was written stays as it is
/// assert!(prices.try_read().await?.is_some()); // and others may read it
/// # reading.release().await?;
/// # assert!(prices.write().await?.fencing_token() > token);
/// # Ok(())
/// # }
/// ```
pub type WriteGuard = Held<Writing>;

impl Reentrant for Reading {}
impl Reentrant for Writing {}
impl Fenced for Writing {}

impl Downgradable for Writing {
    type To = Reading;
}
