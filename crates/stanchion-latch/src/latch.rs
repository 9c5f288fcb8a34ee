//! The latch.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{
    Call, Handle, Operation, Reply, Resend, Synchronizer, natural, unexpected,
};
use stanchion_client::{
    AcquireError, AcquireOptions, Client, Events, IdleExpiry, InvalidName, Lease, Name, Outage,
    QueryError, Rejection,
};

use crate::danger::LatchDanger;
use crate::scripts::Description;

/// The largest count: above it, Lua's numbers are not exact, and the scripts count with them.
const MAX_COUNT: u64 = (1 << 53) - 1;

/// A latch that processes share by its name. Cheap to clone; handles have no state.
///
/// A latch without a count is open, also one that was never armed.
///
/// # Guarantees
/// * P4: the count-down that opens the latch ends the wait of every waiter in every process within about a round trip, in
///   order of arrival; a lost message delays them until the next poll (5 s). All waiters of a process share one subscription
///   and, when the latch opens, one request.
/// * P6: [`arm`](Self::arm), [`count_down`](Self::count_down) and [`delete`](LatchDanger::delete) take effect once, even when they
///   were resent.
/// * The message that opens the latch is sent once, with the last count-down.
/// * A latch that is armed again at once may be closed before a waiter of another process sends its request. That
///   waiter then waits for the new count. Use a new name for each round where that matters.
///
/// # On the wire
/// Redisson's `RCountDownLatch`: the string `name` with the count, without TTL unless it is [ephemeral](Self::ephemeral), and the channel
/// `redisson_countdownlatch__channel__{name}`. Stanchion's own: `stanchion_once:{name}:<operation>` for as long as a
/// resent operation could still run (about 10 s), and `stanchion_latch_deleted:{name}` for 60 s after
/// [`delete`](LatchDanger::delete). A plain semaphore is also a string with a number and looks the same: do not give a latch and a
/// semaphore one name.
#[derive(Clone, Debug)]
pub struct CountDownLatch {
    pub(crate) handle: Handle,
    pub(crate) description: Arc<Description>,
    sync: Arc<dyn Synchronizer>,
    expiry: Option<IdleExpiry>,
}

impl CountDownLatch {
    /// Returns a handle to the latch called `name` (1 to 512 bytes with the client's key prefix). Sends nothing.
    ///
    /// On a cluster the name must have no braces: Redisson puts the channel's name in braces anyway, and channel and key
    /// would be in different slots.
    ///
    /// ```
    /// # use stanchion_latch::{Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let url = "memory://countdownlatch-new";
    /// let client = Client::connect(url).await?; // redis://…
    /// let imported = CountDownLatch::new(&client, "import:2026-11")?;
    /// imported.wait().await?; // returns at once: a latch that is not armed is open
    /// assert!(CountDownLatch::new(&client, "").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let handle = Handle::of(client);
        let name = handle.name_without_braces(name)?;
        let description = Arc::new(Description::new(&handle, name));
        let sync = Arc::clone(&description) as Arc<dyn Synchronizer>;
        Ok(Self {
            handle,
            description,
            sync,
            expiry: None,
        })
    }

    /// Returns the same latch, ephemeral: a latch that this handle arms ends when it is not used for the time of `expiry`. Its key is
    /// removed, as if it had never been armed, with the count that dead workers have left. Off by default, as with Redisson.
    ///
    /// The time belongs to the latch, not to the handle: the [`arm`](Self::arm) that closes the latch sets it. Every count-down,
    /// wait and arm, by any handle of any process, restarts it. A latch with a waiter is kept beyond that time, and for at least
    /// 70 s after the wait (by default; in general 60 s, or twice the poll interval and the outage tolerance). Redisson's
    /// count-downs neither restart the time nor change it, and a latch that Redisson arms does not end.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stanchion_latch::Client::connect("memory://countdownlatch-ephemeral").await?;
    /// use stanchion_latch::{CountDownLatch, IdleExpiry};
    ///
    /// let hour = IdleExpiry::after(Duration::from_secs(3600))?;
    /// let imported = CountDownLatch::new(&client, "import:2026-11-23")?.ephemeral(hour);
    /// imported.arm(3).await?; // an hour after the last of these calls it is gone
    /// CountDownLatch::new(&client, "import:2026-11-23")?.count_down().await?; // begins the hour anew
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # On the wire
    /// A TTL of the string `name`, and `stanchion_latch_idle:{name}`, which outlives it for a minute. With that key,
    /// a waiter of a latch that has ended gets [`Rejection::Deleted`] and does not take the latch for opened.
    #[must_use]
    pub fn ephemeral(mut self, expiry: IdleExpiry) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Returns the name, key prefix included.
    ///
    /// ```
    /// # use stanchion_latch::{Client, ClientConfig, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ClientConfig::new("memory://").key_prefix("shop:");
    /// let imported = CountDownLatch::new(&Client::connect_with(config).await?, "import")?;
    /// assert_eq!(imported.name().as_bytes(), b"shop:import");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &Name {
        self.description.name()
    }

    /// Sets the count of an open latch; returns `false` and changes nothing when it is closed. `count` is 1 to 2⁵³ − 1.
    ///
    /// ```
    /// # use stanchion_latch::{Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-arm").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// assert!(imported.arm(3).await?);
    /// assert!(!imported.arm(5).await?); // armed already, and still closed
    /// assert_eq!(imported.count().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::InvalidOption`] for another count, before anything is sent;
    /// [`Rejection::WrongType`] when the name belongs to something else. After [`QueryError::Unanswered`] or
    /// [`QueryError::Unavailable`] it may have been armed.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have armed it.
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once and gives the same answer (P6). Publishes `1`, as Redisson
    /// does, whose waiters then wait for the new count.
    pub async fn arm(&self, count: u64) -> Result<bool, QueryError> {
        checked("count", count)?;
        let operation = self.handle.operation().await?;
        let call = self.description.arm(count, self.expiry, &operation);
        let answer = self.operate(&operation, &call).await?;
        Ok(answer == 1)
    }

    /// Subtracts one from the count and returns the rest; 0 also when the latch was open already.
    ///
    /// ```
    /// # use stanchion_latch::{Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-count-down").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// imported.arm(2).await?;
    /// assert_eq!(imported.count_down().await?, 1);
    /// assert_eq!(imported.count_down().await?, 0); // opens it
    /// imported.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`] when the name belongs to something else. After
    /// [`QueryError::Unanswered`] or [`QueryError::Unavailable`] it may have been counted, at most once.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have counted. Run it in its own task where that matters.
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once and gives the same answer (P6). At zero it removes the key
    /// and publishes `0`, as Redisson does.
    pub async fn count_down(&self) -> Result<u64, QueryError> {
        self.count_down_by(1).await
    }

    /// Subtracts `by` (1 to 2⁵³ − 1) from the count in one step, never below zero, and returns the rest.
    ///
    /// ```
    /// # use stanchion_latch::{Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-count-down-by").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// imported.arm(5).await?;
    /// assert_eq!(imported.count_down_by(3).await?, 2);
    /// assert_eq!(imported.count_down_by(3).await?, 0); // never below zero
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`CountDownLatch::count_down`]; [`Rejection::InvalidOption`] for another `by`, before anything is sent.
    ///
    /// # Cancel safety
    /// As [`CountDownLatch::count_down`].
    ///
    /// # On the wire
    /// As [`CountDownLatch::count_down`].
    pub async fn count_down_by(&self, by: u64) -> Result<u64, QueryError> {
        checked("by", by)?;
        let operation = self.handle.operation().await?;
        let call = self.description.count_down(by, &operation);
        self.operate(&operation, &call).await
    }

    /// Returns the number of waiting processes, Redisson's included: the subscribers of the latch's channel. A process
    /// stays subscribed for 3 s after its wait. `None` when the user may not count them (`+pubsub`), or no reply came.
    ///
    /// ```
    /// # use stanchion_latch::{Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-waiting").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// assert_eq!(imported.waiting_processes().await, Some(0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// `PUBSUB NUMSUB`, in a cluster `PUBSUB SHARDNUMSUB`.
    pub async fn waiting_processes(&self) -> Option<u64> {
        let channel = &self.description.about().channel;
        self.handle.listening_processes(channel).await
    }

    /// Returns the count when the server answered; 0 when the latch is open.
    ///
    /// ```
    /// # use stanchion_latch::{Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-count").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// assert_eq!(imported.count().await?, 0); // not armed: open
    /// imported.arm(2).await?;
    /// imported.count_down().await?;
    /// assert_eq!(imported.count().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`] when the name belongs to something else.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script.
    pub async fn count(&self) -> Result<u64, QueryError> {
        let call = self.description.count();
        answer(&self.handle.query(&call, Resend::UntilAnswered).await?)
    }

    /// Returns the events of the latch from now on: when it is armed, counted down, opened and deleted.
    ///
    /// ```
    /// # use stanchion_latch::{Client, CountDownLatch, Event};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-events").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// let mut events = imported.events();
    /// assert!(matches!(events.next().await, Some(Event::Now(state)) if state.count == Some(0)));
    /// imported.arm(2).await?;
    /// assert_eq!(events.next().await, Some(Event::Armed(2)));
    /// imported.count_down_by(2).await?;
    /// assert_eq!(events.next().await, Some(Event::Opened));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe; it only reads. Dropping the stream stops the reads.
    ///
    /// # On the wire
    /// Nothing until the stream is polled. Then, once for all listeners of this process: `CLIENT TRACKING ON` and `EXISTS`
    /// on the connection for messages. A script reads the state after each change, and once in each poll interval.
    pub fn events(&self) -> Events {
        Events::of(&self.handle, self.description.clone())
    }

    /// Waits until the latch is open.
    ///
    /// ```
    /// # use stanchion_latch::{Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-wait").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// imported.arm(3).await?;
    /// for shard in 0..3 {
    ///     let imported = imported.clone();
    ///     tokio::spawn(async move { /* import the shard */ imported.count_down().await });
    /// }
    /// imported.wait().await?; // until all three have counted down
    /// assert_eq!(imported.count().await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::Rejected`] with [`Rejection::Deleted`]: it was [deleted](LatchDanger::delete), or has [ended](Self::ephemeral), during the
    /// wait.
    /// [`AcquireError::Unavailable`] or [`AcquireError::Ambiguous`]: the server was out of reach for the outage tolerance
    /// (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: waiting changes nothing.
    ///
    /// # On the wire
    /// One script when the latch is open. Otherwise one subscription for all waiters of the process, and one script for each
    /// message and each poll.
    pub async fn wait(&self) -> Result<(), AcquireError> {
        self.handle.wait(&self.sync, None).await
    }

    /// Waits until the latch is open, for at most `timeout`. Zero sends one request.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_latch::{AcquireError, Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-wait-timeout").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// imported.arm(1).await?;
    /// let late = imported.wait_timeout(Duration::from_millis(20)).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. }))); // still closed
    /// imported.count_down().await?;
    /// imported.wait_timeout(Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as
    /// [`CountDownLatch::wait`].
    ///
    /// # Cancel safety
    /// As [`CountDownLatch::wait`].
    pub async fn wait_timeout(&self, timeout: Duration) -> Result<(), AcquireError> {
        self.handle.wait(&self.sync, Some(timeout)).await
    }

    /// Waits until the latch is open, with `options`: a timeout, or a function to call when the call has to wait.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_latch::{AcquireError, AcquireOptions, Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-wait-with").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// imported.arm(1).await?;
    /// let options = AcquireOptions::new()
    ///     .timeout(Duration::from_millis(20))
    ///     .on_queued(|| println!("waiting for the import"));
    /// let late = imported.wait_with(options).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`CountDownLatch::wait_timeout`]. [`Rejection::InvalidOption`], and nothing is sent, for options that could have no effect: a wait
    /// leaves no hold, so it has no owner, no lease, and no part in a deadlock.
    ///
    /// # Cancel safety
    /// As [`CountDownLatch::wait`].
    pub async fn wait_with(&self, options: AcquireOptions) -> Result<(), AcquireError> {
        let waited = self
            .handle
            .acquire(&self.sync, &options, Lease::default().length());
        waited.await.map(drop)
    }

    /// Returns the operations that end the waits of others.
    ///
    /// ```
    /// # use stanchion_latch::{Client, CountDownLatch};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-danger").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// imported.arm(3).await?;
    /// let operator = imported.danger(); // a word that shows in a review
    /// assert!(operator.delete().await?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn danger(&self) -> LatchDanger<'_> {
        LatchDanger { latch: self }
    }

    /// Sends `call` until it is answered. Its scripts take effect once and repeat their answer.
    pub(crate) async fn operate(
        &self,
        operation: &Operation,
        call: &Call,
    ) -> Result<u64, QueryError> {
        answer(&self.handle.operate(operation, call).await?)
    }
}

/// Returns the number that a script answered.
fn answer(reply: &Reply) -> Result<u64, QueryError> {
    match reply {
        // An earlier attempt may have run.
        Reply::Int(-1) => Err(QueryError::Unanswered {
            outage: Outage::Unanswered {
                detail: "the request reached the server too late".into(),
            },
        }),
        reply => natural(reply).ok_or_else(|| unexpected(reply)),
    }
}

fn checked(option: &str, n: u64) -> Result<(), QueryError> {
    if (1..=MAX_COUNT).contains(&n) {
        return Ok(());
    }
    let rule = format!("{option} {n}: a latch counts from 1 to {MAX_COUNT}");
    Err(QueryError::Rejected {
        rejection: Rejection::InvalidOption { rule },
    })
}
