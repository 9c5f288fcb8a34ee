//! Every kind of hold behind one type, for tables that show one fault for all of them.
//!
//! A row is a kind: the target under test, and a target that excludes it. A new primitive is a row of [`kinds`].

use std::pin::Pin;
use std::time::Duration;

use stanchion::rwlock::Preference;
use stanchion::{
    Acquire, AcquireError, AcquireOptions, Client, FairLock, FencingToken, Guard, LeasedSemaphore,
    Lock, Lockable, Moment, MultiLock, ReleaseError, RenewError, RwLock,
};
use stanchion_testkit::eventually;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::permits::{self, Kind as Permits, Seat, Seats};
use crate::{World, ms, secs};

/// Longer than all requests of an acquire, and shorter than any poll or lease.
pub const SOON: Duration = ms(200);
/// The permits of a semaphore.
pub const PERMITS: u32 = 2;

/// What is acquired.
#[derive(Debug)]
pub enum Target {
    Any(Box<dyn Acquire>),
    /// Some permits.
    Seats(Seats, u32),
}

#[derive(Debug)]
pub enum Held {
    Any(Guard),
    Seats(Seat),
}

impl Target {
    fn any(it: impl Acquire + 'static) -> Self {
        Self::Any(Box::new(it))
    }

    pub fn acquire(&self) -> Pin<Box<dyn Future<Output = Result<Held, AcquireError>> + Send>> {
        match self {
            Self::Any(it) => {
                let acquire = it.acquire();
                Box::pin(async { acquire.await.map(Held::Any) })
            }
            Self::Seats(it, wanted) => {
                let acquire = it.acquire(*wanted);
                Box::pin(async { acquire.await.map(Held::Seats) })
            }
        }
    }

    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<Held, AcquireError> {
        match self {
            Self::Any(it) => it.acquire_timeout(timeout).await.map(Held::Any),
            Self::Seats(it, wanted) => it.acquire_timeout(*wanted, timeout).await.map(Held::Seats),
        }
    }

    pub async fn try_acquire(&self) -> Result<Option<Held>, AcquireError> {
        Ok(match self {
            Self::Any(it) => it.try_acquire().await?.map(Held::Any),
            Self::Seats(it, wanted) => it.try_acquire(*wanted).await?.map(Held::Seats),
        })
    }

    /// Acquires with options. `None` for several permits, which take none.
    pub async fn acquire_with(
        &self,
        options: AcquireOptions,
    ) -> Option<Result<Guard, AcquireError>> {
        match self {
            Self::Any(it) => Some(it.acquire_with(options).await),
            Self::Seats(..) => None,
        }
    }
}

impl Held {
    pub async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Any(it) => it.release().await,
            Self::Seats(it) => it.release().await,
        }
    }

    #[must_use]
    pub fn is_held(&self) -> bool {
        match self {
            Self::Any(it) => it.is_held(),
            Self::Seats(it) => it.is_held(),
        }
    }

    pub async fn renew(&self) -> Result<(), RenewError> {
        match self {
            Self::Any(it) => it.renew().await,
            Self::Seats(Seat::Leased(it)) => it.renew().await,
            Self::Seats(Seat::Plain(_)) => Ok(()),
        }
    }

    /// The end of the lease; `None` for plain permits.
    #[must_use]
    pub fn valid_until(&self) -> Option<Moment> {
        match self {
            Self::Any(it) => Some(it.valid_until()),
            Self::Seats(Seat::Leased(it)) => Some(it.valid_until()),
            Self::Seats(Seat::Plain(_)) => None,
        }
    }

    /// Re-enters; `None` for a kind that one owner cannot hold twice.
    pub async fn reenter(&self) -> Option<Self> {
        match self {
            Self::Any(it) => match it.reenter().await {
                Ok(again) => Some(Self::Any(again)),
                Err(RenewError::Rejected { .. }) => None,
                Err(error) => panic!("{error}"),
            },
            Self::Seats(_) => None,
        }
    }

    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        match self {
            Self::Any(it) => it.fencing_token(),
            Self::Seats(_) => None,
        }
    }
}

/// Makes what a client acquires. The other client has some members of a multi-lock.
pub type Make = fn(&Client, &Client) -> Target;

/// A name, the target under test, and a target that excludes it.
pub type Kind = (&'static str, Make, Make);

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

fn all_of(members: [&dyn Lockable; 3]) -> Target {
    Target::any(MultiLock::new(members).unwrap())
}

fn side(client: &Client, preference: Preference, writes: bool) -> Target {
    let lock = RwLock::new(client, "job").unwrap().preference(preference);
    if writes {
        Target::any(lock.write_side())
    } else {
        Target::any(lock.read_side())
    }
}

fn seats(kind: Permits, client: &Client, wanted: u32) -> Target {
    Target::Seats(kind.on(client), wanted)
}

/// All kinds.
#[must_use]
pub fn kinds() -> [Kind; 13] {
    let both = |name, make: Make| (name, make, make);
    let write: Make = |it, _| side(it, Preference::Redisson, true);
    let preferred: Make = |it, _| side(it, Preference::Writer, true);
    let plain: Make = |it, _| seats(Permits::Plain, it, PERMITS);
    let leased: Make = |it, _| seats(Permits::Leased, it, PERMITS);
    [
        both("lock", |it, _| Target::any(lock(it, "job"))),
        both("fair lock", |it, _| {
            Target::any(FairLock::new(it, "job").unwrap())
        }),
        both("write side", write),
        both("preferred write side", preferred),
        (
            "read side",
            |it, _| side(it, Preference::Redisson, false),
            write,
        ),
        (
            "deferring read side",
            |it, _| side(it, Preference::Writer, false),
            preferred,
        ),
        both("plain permits", plain),
        both("leased permits", leased),
        ("plain permit", |it, _| seats(Permits::Plain, it, 1), plain),
        (
            "leased permit",
            |it, _| Target::any(LeasedSemaphore::new(it, permits::NAME).unwrap()),
            leased,
        ),
        both("locks of one client", |it, _| {
            all_of([&lock(it, "a"), &lock(it, "b"), &lock(it, "c")])
        }),
        both("locks of two clients", |it, other| {
            all_of([&lock(it, "a"), &lock(other, "b"), &lock(it, "c")])
        }),
        both("locks of two kinds", |it, other| {
            all_of([
                &FairLock::new(it, "a").unwrap(),
                &lock(other, "b"),
                &lock(it, "c"),
            ])
        }),
    ]
}

/// A kind on a server, with the clients `ours` and `theirs`.
#[derive(Debug)]
pub struct Case {
    pub label: &'static str,
    pub world: World,
    pub clients: [Client; 2],
    make: Make,
    rival: Make,
}

impl Case {
    pub async fn new(kind: Kind, world: World) -> Self {
        let clients = [world.named("ours").await, world.named("theirs").await];
        Self::of(kind, world, clients).await
    }

    pub async fn of((label, make, rival): Kind, world: World, clients: [Client; 2]) -> Self {
        let case = Self {
            label,
            world,
            clients,
            make,
            rival,
        };
        case.init().await;
        case
    }

    /// Creates the permits of a semaphore.
    pub async fn init(&self) {
        if let Target::Seats(seats, _) = self.theirs() {
            seats.init(PERMITS).await.unwrap();
        }
    }

    /// As [`Case::new`]. The server knows all scripts, so that the next script is the request under test.
    pub async fn warm(kind: Kind) -> Self {
        let case = Self::new(kind, World::engine()).await;
        for target in [case.ours(), case.rival_of_ours(), case.theirs()] {
            let held = target.acquire().await.unwrap();
            if let Some(again) = held.reenter().await {
                again.release().await.unwrap();
            }
            held.renew().await.unwrap();
            // Each client has waited, given up, and been woken.
            let waits = [case.rival_of_ours(), case.theirs()];
            for waiter in &waits {
                assert!(waiter.acquire_timeout(SOON).await.is_err());
            }
            let waiting: Vec<_> = waits.into_iter().map(served).collect();
            tokio::time::sleep(SOON).await;
            held.release().await.unwrap();
            for waiter in waiting {
                waiter.await.unwrap();
            }
        }
        case.at_rest().await;
        case.world.quiet().await;
        case
    }

    /// The names of the target under test.
    #[must_use]
    pub fn names(&self) -> &'static [&'static str] {
        match self.theirs() {
            Target::Seats(..) => &[permits::NAME],
            Target::Any(it) if it.name().to_string() == "a" => &["a", "b", "c"],
            Target::Any(_) => &["job"],
        }
    }

    /// Whether time passes.
    #[must_use]
    pub const fn is_on_server(&self) -> bool {
        matches!(self.world, World::Server(_))
    }

    /// Whether each target has members of both clients.
    #[must_use]
    pub fn needs_both_clients(&self) -> bool {
        ["locks of two clients", "locks of two kinds"].contains(&self.label)
    }

    /// The target under test, of the first client.
    #[must_use]
    pub fn ours(&self) -> Target {
        (self.make)(&self.clients[0], &self.clients[1])
    }

    /// Excludes it, of the same client.
    #[must_use]
    pub fn rival_of_ours(&self) -> Target {
        (self.rival)(&self.clients[0], &self.clients[1])
    }

    /// Excludes it, of the other client.
    #[must_use]
    pub fn theirs(&self) -> Target {
        (self.rival)(&self.clients[1], &self.clients[0])
    }

    /// Waits until nothing is left: no key but counters and free permits, and no waiter.
    pub async fn at_rest(&self) {
        match self.theirs() {
            Target::Any(_) => self.world.at_rest().await,
            Target::Seats(..) => permits::at_rest(&self.world, i64::from(PERMITS)).await,
        }
        eventually("no call waits", || {
            self.clients.iter().all(|client| client.waiters() == 0)
        })
        .await;
    }

    /// As [`Case::at_rest`], within a time in which no lease ends: a sweep or a release has freed everything.
    pub async fn soon_at_rest(&self) {
        let started = Instant::now();
        self.at_rest().await;
        let took = started.elapsed();
        let limit = self.world.limit(secs(10));
        assert!(took < limit, "{}: {took:?}", self.label);
    }

    /// Returns whether the other client cannot acquire.
    pub async fn is_held(&self) -> bool {
        match self.theirs().try_acquire().await.unwrap() {
            None => true,
            Some(free) => {
                free.release().await.unwrap();
                false
            }
        }
    }
}

/// A waiter that releases when it is granted. Returns the time that it took.
#[must_use]
pub fn served(target: Target) -> JoinHandle<Duration> {
    tokio::spawn(async move {
        let started = Instant::now();
        let held = target.acquire().await.unwrap();
        let took = started.elapsed();
        held.release().await.unwrap();
        took
    })
}
