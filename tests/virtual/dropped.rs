//! P3 for every kind of hold: a future that is dropped at any of its await points leaves no key, no waiter and no task, and the other waiters
//! are served. What only one kind has (a downgrade, a ticket, an order of members) is tested with that kind.

use std::time::Duration;

use stanchion::rwlock::Preference;
use stanchion::{
    Acquire, AcquireOptions, Client, FairLock, Guard, Lock, Lockable, MultiLock, RwLock,
};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::World;
use stanchion_tests::permits::{self, Kind as Permits, Seat, Seats};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Longer than all requests of an acquire, and shorter than any poll or lease.
const SOON: Duration = Duration::from_millis(200);
/// The permits of a semaphore, all of which each acquire wants.
const PERMITS: u32 = 2;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What is acquired.
enum Target {
    Any(Box<dyn Acquire>),
    Seats(Seats),
}

enum Held {
    Any(Guard),
    Seats(Seat),
}

impl Target {
    fn any(it: impl Acquire + 'static) -> Self {
        Self::Any(Box::new(it))
    }

    async fn acquire(&self) -> Held {
        match self {
            Self::Any(it) => Held::Any(it.acquire().await.unwrap()),
            Self::Seats(it) => Held::Seats(it.acquire(PERMITS).await.unwrap()),
        }
    }

    async fn acquire_timeout(&self, timeout: Duration) -> Held {
        match self {
            Self::Any(it) => {
                let options = AcquireOptions::new().timeout(timeout);
                Held::Any(it.acquire_with(options).await.unwrap())
            }
            Self::Seats(it) => Held::Seats(it.acquire_timeout(PERMITS, timeout).await.unwrap()),
        }
    }

    async fn try_acquire(&self) -> Option<Held> {
        match self {
            Self::Any(it) => it.try_acquire().await.unwrap().map(Held::Any),
            Self::Seats(it) => it.try_acquire(PERMITS).await.unwrap().map(Held::Seats),
        }
    }
}

impl Held {
    async fn release(self) {
        match self {
            Self::Any(it) => it.release().await.unwrap(),
            Self::Seats(it) => it.release().await.unwrap(),
        }
    }
}

/// Makes what a client acquires. The other client has some members of a multi-lock.
type Make = fn(&Client, &Client) -> Target;

/// A name, the target under test, and a target that excludes it.
type Kind = (&'static str, Make, Make);

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

fn kinds() -> [Kind; 11] {
    let both = |name, make: Make| (name, make, make);
    let write: Make = |it, _| side(it, Preference::Redisson, true);
    let preferred: Make = |it, _| side(it, Preference::Writer, true);
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
        both("plain permits", |it, _| {
            Target::Seats(Permits::Plain.on(it))
        }),
        both("leased permits", |it, _| {
            Target::Seats(Permits::Leased.on(it))
        }),
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

/// A kind on a server whose replies take 5 ms, so that requests are in flight when their futures are dropped.
struct Case {
    label: &'static str,
    world: World,
    clients: [Client; 2],
    /// Of the first client.
    make: Make,
    /// Excludes it.
    rival: Make,
    tasks: usize,
}

impl Case {
    async fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for (label, make, rival) in kinds() {
            let world = World::slow_engine();
            let clients = [world.named("ours").await, world.named("theirs").await];
            if let Target::Seats(seats) = make(&clients[0], &clients[1]) {
                seats.init(PERMITS).await.unwrap();
            }
            let case = Self {
                label,
                world,
                clients,
                make,
                rival,
                tasks: 0,
            };
            // Each client has sent each request once, and its first subscriptions have ended.
            for target in [case.ours(), case.rival_of_ours(), case.theirs()] {
                target.acquire().await.release().await;
            }
            cases.push(case);
        }
        // The time after which a subscription that is not used ends.
        sleep(Duration::from_secs(40)).await;
        let tasks = alive_tasks();
        for case in &mut cases {
            case.tasks = tasks;
        }
        cases
    }

    fn ours(&self) -> Target {
        (self.make)(&self.clients[0], &self.clients[1])
    }

    /// Of the same client.
    fn rival_of_ours(&self) -> Target {
        (self.rival)(&self.clients[0], &self.clients[1])
    }

    /// Of the other client.
    fn theirs(&self) -> Target {
        (self.rival)(&self.clients[1], &self.clients[0])
    }

    /// Asserts that nothing is left: no key but counters and free permits, no waiter, no task.
    async fn is_at_rest(&self, polls: usize) {
        let started = Instant::now();
        match self.ours() {
            Target::Any(_) => self.world.at_rest().await,
            Target::Seats(_) => permits::at_rest(&self.world, i64::from(PERMITS)).await,
        }
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "{}: {polls}",
            self.label
        );
        let waiters = self.clients.each_ref().map(Client::waiters);
        assert_eq!(waiters, [0, 0], "{} after {polls} polls", self.label);
        let what = format!("{}: no task is left after {polls} polls", self.label);
        eventually(&what, || alive_tasks() <= self.tasks).await;
    }
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// A waiter that releases when it is granted. Returns the time that it took.
fn served(target: Target) -> JoinHandle<Duration> {
    tokio::spawn(async move {
        let started = Instant::now();
        let held = target.acquire().await;
        let took = started.elapsed();
        held.release().await;
        took
    })
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_anywhere_leaves_nothing() {
    for case in Case::all().await {
        let polls = for_each_await_point(async |polls| {
            let done = cancel_after(case.ours().acquire(), polls).await.is_some();
            case.is_at_rest(polls).await;
            let took = served(case.theirs()).await.unwrap();
            assert!(took < SOON, "{} after {polls} polls", case.label);
            case.is_at_rest(polls).await;
            done
        })
        .await;
        assert!(polls > 1, "{}", case.label);
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_dropped_anywhere_leaves_nothing() {
    for case in Case::all().await {
        for_each_await_point(async |polls| {
            let done = cancel_after(case.ours().try_acquire(), polls)
                .await
                .is_some();
            case.is_at_rest(polls).await;
            done
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_dropped_anywhere_passes_its_wake_up_on() {
    for case in Case::all().await {
        for timeout in [None, Some(Duration::from_secs(60))] {
            let polls = for_each_await_point(async |polls| {
                let held = case.theirs().acquire().await;
                // The release falls into any stage of the doomed waiter's wait.
                let releasing = tokio::spawn(async move {
                    sleep(ms(40)).await;
                    held.release().await;
                });
                let ours = case.ours();
                let doomed = tokio::spawn(async move {
                    match timeout {
                        None => cancel_after(ours.acquire(), polls).await.is_some(),
                        Some(timeout) => cancel_after(ours.acquire_timeout(timeout), polls)
                            .await
                            .is_some(),
                    }
                });
                sleep(ms(1)).await;
                let took = served(case.ours()).await.unwrap();
                assert!(took < SOON, "{} after {polls} polls: {took:?}", case.label);
                releasing.await.unwrap();
                let done = doomed.await.unwrap();
                case.is_at_rest(polls).await;
                done
            })
            .await;
            assert!(polls > 2, "{}", case.label);
        }
    }
}

/// A release, and a hand-off in the process, take 5 ms. The first waiter is dropped at every millisecond around them.
#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_while_it_is_granted_passes_the_grant_on() {
    for case in Case::all().await {
        for survivor_is_ours in [true, false] {
            for after in 0..16 {
                let held = case.rival_of_ours().acquire().await;
                let ours = case.ours();
                let doomed = tokio::spawn(async move { ours.acquire().await });
                eventually("the doomed one waits", || case.clients[0].waiters() > 0).await;
                sleep(ms(50)).await;
                let survivor = served(if survivor_is_ours {
                    case.ours()
                } else {
                    case.theirs()
                });
                sleep(ms(50)).await;
                let releasing = tokio::spawn(held.release());
                sleep(ms(after)).await;
                doomed.abort();
                // Drops the guard, too, if the waiter has it already.
                drop(doomed);
                let started = Instant::now();
                survivor.await.unwrap();
                assert!(started.elapsed() < SOON, "{} after {after} ms", case.label);
                releasing.await.unwrap();
                case.is_at_rest(0).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_anywhere_releases() {
    for case in Case::all().await {
        for waiter in [
            None,
            Some(Case::rival_of_ours as fn(&Case) -> Target),
            Some(Case::theirs),
        ] {
            for_each_await_point(async |polls| {
                let held = case.ours().acquire().await;
                let waiting = waiter.map(|of| served(of(&case)));
                sleep(ms(50)).await;
                let done = cancel_after(held.release(), polls).await.is_some();
                let started = Instant::now();
                if let Some(waiting) = waiting {
                    waiting.await.unwrap();
                }
                assert!(
                    started.elapsed() < SOON,
                    "{} after {polls} polls",
                    case.label
                );
                case.is_at_rest(polls).await;
                done
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_holder_releases() {
    for case in Case::all().await {
        let ours = case.ours();
        let task = tokio::spawn(async move {
            let _held = ours.acquire().await;
            panic!("on purpose");
        });
        assert!(task.await.unwrap_err().is_panic());
        case.is_at_rest(0).await;
    }
}

/// One release frees the name, so the count is as before.
#[tokio::test(start_paused = true)]
async fn a_re_entry_dropped_anywhere_does_not_change_the_count() {
    for case in Case::all().await {
        for_each_await_point(async |polls| {
            let Held::Any(guard) = case.ours().acquire().await else {
                return true;
            };
            let again = cancel_after(guard.reenter(), polls).await;
            let done = again.is_some();
            drop(again);
            assert!(guard.is_held(), "{}", case.label);
            guard.release().await.unwrap();
            case.is_at_rest(polls).await;
            done
        })
        .await;
    }
}
