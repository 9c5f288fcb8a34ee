//! The guards of all primitives: one generic type, whose methods are written once.
//!
//! Long: the methods of all guards, each with its contract and an example.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use stanchion_core::primitive::{Guarded, Hold, HoldSet, lease_of};
use stanchion_core::{
    Ended, FencingToken, HoldTicket, Lease, LeaseLost, LostReason, Name, Owner, Rejection,
    ReleaseError, ReleaseRequest, RenewError, WireOwner,
};
use stanchion_transport::Moment;

/// The guard of all primitives. Each names its own: `LockGuard` is `Held<Lock>`. Release it, or drop it: the release then runs in the background.
///
/// `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no runtime and never panics (P9).
///
/// `K` is what is held. `H` is its hold on the server: one [`Hold`], or a [`HoldSet`]. A set lasts while enough of its members are held: all names of
/// a multi-lock, a quorum of the nodes of a RedLock. A method of a set acts on all members at once.
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct Held<K, H = Hold> {
    hold: H,
    kind: PhantomData<fn() -> K>,
}

/// The methods of all guards.
impl<K, H: Guarded> Held<K, H> {
    /// For primitives: makes the guard of a hold.
    #[doc(hidden)]
    pub const fn of(hold: H) -> Self {
        let kind = PhantomData;
        Self { hold, kind }
    }

    /// For primitives: the hold.
    #[doc(hidden)]
    pub const fn hold(&self) -> &H {
        &self.hold
    }

    /// The name that is held, with the client's key prefix; of several names the first.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.hold.name()
    }

    /// The end of the time in which the holder may rely on the hold: sent + lease − max(2 ms, lease/100), on the client's clock. Every
    /// renewal extends this time. Of a set: the earliest end of the members that it needs.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::{Client, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-valid_until").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let guard = orders.acquire().await?;
    /// let left = guard.valid_until().since(client.now());
    /// assert!(left > Duration::from_secs(20)); // of a lease of 30 s
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P1: no other owner is granted the name before then, while the server keeps its data and its clock is not stepped. Of a set: no other owner
    /// is granted the members that it needs.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.hold.valid_until()
    }

    /// The time left until [`valid_until`](Self::valid_until); zero once lost.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::{AcquireOptions, Client, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-remaining").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(200));
    /// let guard = orders.acquire_with(options).await?;
    /// assert!(guard.remaining() > Duration::ZERO);
    /// guard.lost().await;
    /// assert_eq!(guard.remaining(), Duration::ZERO);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Returns whether the hold is still held; of a set, whether enough members are.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::{AcquireOptions, Client, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-is_held").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(200));
    /// let guard = orders.acquire_with(options).await?;
    /// assert!(guard.is_held());
    /// tokio::time::sleep(Duration::from_millis(200)).await;
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P5: false before another owner can be granted the name. Compares the clock; needs no network and no timer. The check does not
    /// protect the code that runs after it: for that, use the fencing token.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// Resolves when the hold is lost, with the reason; never after a release. Of a set: when too few members are left, with the reason of the last
    /// loss.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::{AcquireOptions, Client, Lock, LostReason};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-lost").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(50));
    /// let guard = orders.acquire_with(options).await?;
    /// assert_eq!(guard.lost().await, LostReason::MaxHold);
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P5: resolves before another owner can be granted the name, and not early while renewals succeed. Every poll compares the clock,
    /// so the first poll after a pause of the process already sees the loss.
    ///
    /// # Cancel safety
    /// Safe; any number of these futures may exist, and they may outlive the guard. After a release the future stays pending and keeps
    /// nothing alive, but a task that waits only for it never ends: spawn [`ended`](Self::ended) instead.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.hold.lost()
    }

    /// Resolves when the hold has ended: released (by its last guard), or lost. For tasks that watch the hold.
    ///
    /// ```
    /// # use stanchion_lock::{Client, Ended, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-ended").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let guard = orders.acquire().await?;
    /// let watch = tokio::spawn(guard.ended());
    /// guard.release().await?;
    /// assert_eq!(watch.await?, Ended::Released);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// For a lost hold, as [`lost`](Self::lost).
    ///
    /// # Cancel safety
    /// As [`lost`](Self::lost). The future keeps nothing alive.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.hold.ended()
    }

    /// Resolves with the last request to give the hold back, at once if there has been one; never after the hold's end. The holder decides:
    /// a request alone changes nothing.
    ///
    /// ```
    /// # use stanchion_lock::{Client, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-requested").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let guard = orders.acquire().await?;
    /// tokio::select! {
    ///     biased;
    ///     request = guard.requested() => println!("release requested: {}", request.reason), // finish early
    ///     () = async { /* the work */ } => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe; any number of these futures may exist, and they keep nothing alive. A request from before the call is not missed if the client
    /// was subscribed by then: see "On the wire".
    ///
    /// # On the wire
    /// The first call of a client subscribes to the client's own channel, unless the client has held something for a second. A request from
    /// before the subscription is not received, and the reply to its sender reports that.
    pub fn requested(&self) -> impl Future<Output = ReleaseRequest> + Send + 'static {
        self.hold.requested()
    }

    /// The last request to give the hold back, as of [`requested`](Self::requested).
    #[must_use]
    pub fn request(&self) -> Option<ReleaseRequest> {
        self.hold.request()
    }

    /// Runs `work` while the hold lasts. When the hold is lost, `work` is dropped at its await point.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::{AcquireOptions, Client, Lock, LostReason};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-run").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(200));
    /// let guard = orders.acquire_with(options).await?;
    /// assert_eq!(guard.run(async { 1 + 1 }).await?, 2);
    /// let endless = guard.run(std::future::pending::<()>()).await;
    /// assert_eq!(endless.unwrap_err().reason, LostReason::MaxHold); // dropped in time
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LeaseLost`]: the work did not finish.
    ///
    /// # Cancel safety
    /// As that of `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        self.hold.run(work).await
    }

    /// Renews the lease now. Needed only with [`Renewal::Manual`](crate::Renewal::Manual), or to have a whole lease left at a
    /// certain point. Never shortens the lease.
    ///
    /// ```
    /// # use stanchion_lock::{AcquireOptions, Client, Lock, Renewal};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-renew").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let options = AcquireOptions::new().renewal(Renewal::Manual);
    /// let guard = orders.acquire_with(options).await?;
    /// let earlier = guard.valid_until();
    /// guard.renew().await?;
    /// assert!(guard.valid_until() > earlier); // a whole lease ahead
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RenewError::Lost`] when the hold has ended; the other errors leave the hold as it was. Ends within the operation timeout. Of a set: the
    /// error of one member, when fewer members were renewed than the set needs.
    ///
    /// # Cancel safety
    /// Safe: a renewal that was sent may still take effect.
    ///
    /// # On the wire
    /// One script, of a set one for each member. After a lost reply the script is sent again; repeated runs have the effect of one.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.hold.renew(None).await
    }

    /// Renews now, once for `lease` instead of the usual one. For use before a step that must not be interrupted, even if the server becomes
    /// unreachable. Never shortens the remaining lease. Later renewals use the usual lease again, and do not shorten it either.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::{Client, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-renew_for").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let guard = orders.acquire().await?;
    /// guard.renew_for(Duration::from_secs(3600)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(3500));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the process dies, the name stays taken for the rest of `lease`. With `max_hold` the lease ends at that limit.
    ///
    /// # Errors
    /// As [`renew`](Self::renew); [`RenewError::Rejected`] for a `lease` outside 10 ms to 30 days.
    ///
    /// # Cancel safety
    /// As [`renew`](Self::renew).
    ///
    /// # On the wire
    /// As [`renew`](Self::renew).
    pub async fn renew_for(&self, lease: impl Into<Duration>) -> Result<(), RenewError> {
        let lease = lease_for(self.name(), lease.into())?;
        self.hold.renew(Some(lease)).await
    }

    /// Releases, and waits for the server's answer. Dropping the guard does the same in the background. The release of a set waits until
    /// as many members as it needs have confirmed; the others continue in the background.
    ///
    /// ```
    /// # use stanchion_lock::{Client, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-release").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let guard = orders.acquire().await?;
    /// guard.release().await?; // confirmed: it is free
    /// let next = orders.acquire().await?;
    /// assert!(next.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the hold had ended before, and another owner may have held the name since; that owner's hold was not touched.
    /// [`ReleaseError::Ambiguous`]: no answer within the operation timeout; the release continues in the background.
    ///
    /// # Cancel safety
    /// Safe: the release continues in the background.
    ///
    /// # On the wire
    /// One script, of a set one for each member. It publishes, or hands the hold to the next waiter of this process.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release().await
    }
}

/// Returns the lease that a renewal or a detach requests for `name`.
///
/// # Errors
/// [`RenewError::Rejected`] outside the bounds of a lease.
pub fn lease_for(name: &Name, lease: Duration) -> Result<Lease, RenewError> {
    lease_of("lease", lease).map_err(|rejection| RenewError::Rejected {
        name: name.clone(),
        rejection,
    })
}

/// The methods of guards of one hold.
impl<K> Held<K> {
    /// The owner of the hold. Acquire with this owner to re-enter.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        self.hold.owner()
    }

    /// Ends the hold without releasing it: it is no longer renewed, and ends with its lease. With
    /// [`first_lease`](crate::AcquireOptions::first_lease) a quick job keeps other clients out for at least that lease, even
    /// clients whose clocks are late. Without a first lease the rest of the usual lease remains. For a hold with several guards one `leave`
    /// is enough: the other guards keep the hold, which ends with its lease after the last of them.
    ///
    /// # On the wire
    /// Nothing is sent, and nothing is published: waiters retry when the lease has ended.
    pub fn leave(self) {
        self.hold.leave();
    }
}

/// A kind of hold that mints tokens: its guards have [`fencing_token`](Held::fencing_token).
pub trait Fenced {}

/// The methods of guards of exclusive holds.
impl<K: Fenced> Held<K> {
    /// Returns the fencing token of this hold; `None` with [`Fencing::Off`](crate::Fencing::Off).
    ///
    /// ```
    /// # use stanchion_lock::{Client, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-fencing_token").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let first = orders.acquire().await?;
    /// let stale = first.fencing_token();
    /// first.release().await?;
    /// let second = orders.acquire().await?;
    /// assert!(second.fencing_token() > stale); // a resource that has seen this one refuses `stale`
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P2: larger than the token of every earlier outermost acquisition of this name (for writing, with a read-write lock). This holds also
    /// after the server lost its data, as long as its clock is not set back. Re-entries share the token.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fencing_token()
    }
}

/// A kind of hold that an owner can have several times: its guards have [`reenter`](Held::reenter).
pub trait Reentrant {}

/// The methods of guards of reentrant holds.
impl<K: Reentrant> Held<K> {
    /// Adds a hold of the same owner and returns its guard. Never waits, even if other owners wait.
    ///
    /// ```
    /// # use stanchion_lock::{Client, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-reenter").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let outer = orders.acquire().await?;
    /// let inner = outer.reenter().await?;
    /// outer.release().await?;
    /// assert!(orders.try_acquire().await?.is_none()); // `inner` still holds
    /// inner.release().await?;
    /// assert!(orders.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RenewError::Lost`] when the hold has ended; the other errors leave it as it was. Ends within the operation timeout.
    ///
    /// # Cancel safety
    /// Safe: a re-entry already sent is undone in the background.
    ///
    /// # On the wire
    /// One script, which sets the hold count that Redisson's `getHoldCount` reads. It is sent again after a lost reply, with
    /// the effect of once (P6).
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        self.hold.reenter().await.map(Self::of)
    }
}

/// A kind of hold that another process can adopt: its guards have [`detach`](Held::detach).
pub trait Detachable {}

/// The methods of guards of holds that another process can take over.
impl<K: Detachable> Held<K> {
    /// Ends this hold here without releasing it, and returns its ticket. Another process, or this one after a restart, can take over the hold
    /// with it: `adopt` of the lock does so. The lease begins again, and then ends the hold; `max_hold` may end it before.
    ///
    /// ```
    /// # use stanchion_lock::{Client, Lock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://held-detach").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let ticket = orders.acquire().await?.detach().await?;
    /// assert!(orders.try_acquire().await?.is_none()); // it is still held
    /// assert!(orders.adopt(&ticket).await?.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// * No other owner gets the hold while the lease lasts (P1). A ticket can be adopted only once, and cannot be made from the data that
    ///   the server shows.
    /// * The hold is detached or re-entered, never both: of two concurrent calls of its owner the second one fails or waits.
    /// * The adopting owner gets a larger fencing token, so late requests of this process are refused where tokens are checked (P2).
    /// * A shutdown of the client does not release it.
    ///
    /// # Errors
    /// [`RenewError`]: the hold was lost; it was re-entered and other guards count on it; or the server did not
    /// answer. The guard is consumed in any case: a hold that remains is released in the background.
    ///
    /// # Cancel safety
    /// A call that is dropped before it ends releases the hold.
    ///
    /// # On the wire
    /// One script, which gives the hold to the owner of the ticket. After a lost reply the script is sent again; repeated runs have the
    /// effect of one (P6). Local waiters retry once, and then wait for the rest of the lease.
    pub async fn detach(self) -> Result<HoldTicket, RenewError> {
        self.hold.detach(None).await
    }

    /// As [`detach`](Self::detach), for `lease`, which may be shorter than the usual one: the time in which the ticket must be adopted.
    ///
    /// # Errors
    /// As [`detach`](Self::detach); [`RenewError::Rejected`] for a `lease` outside 10 ms to 30 days.
    ///
    /// # Cancel safety
    /// As [`detach`](Self::detach).
    pub async fn detach_for(self, lease: impl Into<Duration>) -> Result<HoldTicket, RenewError> {
        let lease = lease_for(self.name(), lease.into())?;
        self.hold.detach(Some(lease)).await
    }
}

/// A kind of exclusive hold that can become a shared one: its guards have [`downgrade`](Held::downgrade). Its synchronizer has
/// [`downgraded`](crate::primitive::Holdable::downgraded).
pub trait Downgradable {
    /// The kind of the shared hold.
    type To;
}

/// The methods of guards of write holds.
impl<K: Downgradable> Held<K> {
    /// Turns this write hold into a read hold of the same owner and lease, in one step: no writer comes in between, and
    /// waiting readers are granted. Read holds that the writer already has stay as they are.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: it had already ended. [`ReleaseError::Ambiguous`]: no answer within the operation timeout.
    /// [`ReleaseError::Rejected`]: it was re-entered, and its other guards would lose their hold. In all cases this guard is
    /// released, in the background if necessary.
    ///
    /// # Cancel safety
    /// A dropped call continues in the background, and the read hold is released there.
    ///
    /// # On the wire
    /// One script, and the message `1`. The script is sent again after a lost reply, with the effect of once (P6). Redisson
    /// publishes nothing when it downgrades, so its waiting readers sleep until the lease ends.
    pub async fn downgrade(self) -> Result<Held<K::To>, ReleaseError> {
        self.hold.downgrade().await.map(Held::of)
    }
}

/// A kind of hold that consists of permits: its guards have [`count`](Held::count) and [`ids`](Held::ids).
pub trait Permits {
    /// The id of one permit.
    type Id;

    /// Returns the id of the permit `index` of an owner.
    fn id(owner: &WireOwner, index: u32) -> Self::Id;
}

/// The methods of guards of permits.
impl<K: Permits> Held<K> {
    /// Returns the number of permits.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.hold.permits()
    }

    /// Returns the ids as Redisson shows them; a Java process can release a permit by its id.
    #[must_use]
    pub fn ids(&self) -> Vec<K::Id> {
        let owner = self.hold.wire_owner();
        (0..self.count()).map(|index| K::id(owner, index)).collect()
    }
}

/// A kind of hold on several servers: its guards have [`nodes_held`](Held::nodes_held).
pub trait Quorum {}

/// The methods of guards of a quorum.
impl<K: Quorum> Held<K, HoldSet> {
    /// Returns the number of nodes on which it is held now.
    #[must_use]
    pub fn nodes_held(&self) -> usize {
        let held = |hold: &&Hold| hold.is_held();
        self.hold.holds().iter().filter(held).count()
    }
}

impl<K, H: fmt::Debug> fmt::Debug for Held<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.hold).finish()
    }
}

/// What a [`Guard`] holds: anything with a lease.
#[derive(Debug)]
pub struct Anything(());

/// The guard of an [`Acquire`](crate::Acquire). Every guard with a lease can be turned [into](From) one. Release it, or drop it: the release
/// then runs in the background.
///
/// Its methods give the guarantees of the guard that it was made from.
pub type Guard = Held<Anything, HoldSet>;

impl Guard {
    /// Returns whether no other owner can hold the name at the same time.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        let alone = |hold: &Hold| hold.sharing().has_one_holder();
        self.hold.holds().iter().all(alone)
    }

    /// The fencing token; `None` where none is minted, and for several names, each of which has its own.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        match self.hold.holds() {
            [hold] => hold.fencing_token(),
            _ => None,
        }
    }

    /// Re-enters: holds once more, as the same owner.
    ///
    /// # Errors
    /// [`RenewError`]; [`RenewError::Rejected`] if one owner cannot hold the name twice: permits, several names, a quorum.
    ///
    /// # Cancel safety
    /// Safe: a re-entry that was sent is undone in the background.
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        match self.hold.holds() {
            [hold] => hold.reenter().await.map(Self::from),
            _ => Err(RenewError::Rejected {
                name: self.name().clone(),
                rejection: Rejection::InvalidOption {
                    rule: "a guard of several holds cannot be re-entered".into(),
                },
            }),
        }
    }
}

impl From<Hold> for Guard {
    fn from(hold: Hold) -> Self {
        Self::of(HoldSet::one(hold))
    }
}

impl<K> From<Held<K>> for Guard {
    fn from(guard: Held<K>) -> Self {
        guard.hold.into()
    }
}

impl<K: Quorum> From<Held<K, HoldSet>> for Guard {
    fn from(guard: Held<K, HoldSet>) -> Self {
        Self::of(guard.hold)
    }
}
