//! The synchronizers under test: their calls and the guards that the calls return.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use stanchion::jobs::Begun;
use stanchion::rwlock::Preference;
use stanchion::{
    Acquire, AcquireError, AcquireOptions, Client, Election, FairLock, Guard, Job, JobGuard,
    Leadership, Lease, LeasedPermit, LeasedSemaphore, Lock, Lockable, MultiLock, Permit,
    ReleaseError, RwLock, Semaphore,
};

use crate::judge::{Inside, Judge, Kind, Need, Place, Waiting};

/// The permits of the semaphores.
pub(crate) const PERMITS: u32 = 3;

/// The lease of all holds of a client that is shut down in use.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

/// A client, and whether the test shuts it down.
pub(crate) struct Member {
    pub(crate) client: Client,
    pub(crate) closing: AtomicBool,
    pub(crate) short: bool,
}

impl Member {
    pub(crate) fn new(client: Client, short: bool) -> Arc<Self> {
        Arc::new(Self {
            client,
            closing: AtomicBool::new(false),
            short,
        })
    }

    fn closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn lease(&self) -> Lease {
        if self.short {
            Lease::new(SHORT).unwrap()
        } else {
            Lease::default()
        }
    }

    fn options(&self) -> AcquireOptions {
        AcquireOptions::new().lease(self.lease())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Lock,
    Fair,
    Rw(Preference),
    Plain,
    Leased,
    Multi,
    Office,
    Job,
}

/// A synchronizer and its place.
pub(crate) struct Thing {
    pub(crate) what: What,
    pub(crate) place: Arc<Place>,
}

/// The guard that a call returns.
pub(crate) enum Grip {
    Guard(Guard),
    Permit(Permit),
    Term(Leadership),
    Run(JobGuard),
}

impl Grip {
    fn token(&self) -> Option<u64> {
        match self {
            Self::Guard(guard) if guard.is_exclusive() => guard.fencing_token().map(|it| it.get()),
            Self::Term(term) => term.fencing_token().map(|it| it.get()),
            _ => None,
        }
    }

    async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Guard(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
            Self::Term(term) => term.step_down().await,
            Self::Run(guard) => guard.release().await,
        }
    }
}

type Granted = Pin<Box<dyn Future<Output = Result<Option<Grip>, AcquireError>> + Send>>;

/// An acquire that may be polled anywhere. Dropping it leaves the queue.
pub(crate) struct Call {
    granted: Granted,
    pub(crate) place: Arc<Place>,
    waiting: Option<Waiting>,
    member: Arc<Member>,
    judge: Arc<Judge>,
    how: &'static str,
}

/// A hold. The caller's record ends before the guard is dropped.
pub(crate) struct Held {
    inside: Inside,
    pub(crate) grip: Grip,
    member: Arc<Member>,
    pub(crate) place: Arc<Place>,
    judge: Arc<Judge>,
}

impl Held {
    /// Releases and waits for the answer.
    pub(crate) async fn release(self) {
        drop(self.inside);
        if self.member.closing() {
            self.place.excuse(SHORT * 2);
        }
        if let Err(error) = self.grip.release().await {
            if self.member.closing() {
                self.place.excuse(SHORT * 2);
            } else {
                self.judge
                    .found(format!("P8: release of {}: {error:?}", self.place.name));
            }
        }
    }

    /// Drops the guard.
    pub(crate) fn drop_guard(self) {
        drop(self.inside);
        drop(self.grip);
        if self.member.closing() {
            self.place.excuse(SHORT * 2);
        }
    }
}

impl Future for Call {
    type Output = Option<Held>;

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let end = std::task::ready!(self.granted.as_mut().poll(context));
        let waiting = self.waiting.take().expect("not polled after its end");
        std::task::Poll::Ready(match end {
            Ok(Some(grip)) => Some(Held {
                inside: waiting.enter(grip.token()),
                grip,
                member: Arc::clone(&self.member),
                place: Arc::clone(&self.place),
                judge: Arc::clone(&self.judge),
            }),
            Ok(None) | Err(AcquireError::TimedOut { .. }) => None,
            Err(error) => {
                drop(waiting);
                if self.member.closing() {
                    self.place.excuse(SHORT * 2);
                } else {
                    let (name, how) = (&self.place.name, self.how);
                    self.judge.found(format!("P8: {how} of {name}: {error:?}"));
                }
                None
            }
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A grant may have arrived for the dropped call.
        if self.member.closing() {
            self.place.excuse(SHORT * 2);
        }
    }
}

/// The time for which a call waits.
#[derive(Clone, Copy)]
enum Patience {
    Once,
    Until(Duration),
    Long,
}

impl Thing {
    pub(crate) fn new(judge: &Arc<Judge>, what: What) -> Self {
        let (name, kind) = match what {
            What::Lock => ("lock", Kind::Alone),
            What::Fair => ("fair", Kind::Alone),
            What::Rw(Preference::Writer) => ("rw-writer", Kind::ReadWrite),
            What::Rw(_) => ("rw", Kind::ReadWrite),
            What::Plain => ("plain", Kind::Permits(PERMITS)),
            What::Leased => ("leased", Kind::Permits(PERMITS)),
            What::Multi => ("multi", Kind::Alone),
            What::Office => ("office", Kind::Alone),
            What::Job => ("job", Kind::Alone),
        };
        // A leader that resigns rests for a second, so the next term may take longer.
        let place = match what {
            What::Office => judge.slow_place(name, kind, 150),
            _ => judge.place(name, kind),
        };
        Self { what, place }
    }

    /// Returns whether a hold outlives its client's shutdown for good. The book says so of plain permits: they have no lease.
    pub(crate) fn outlives_its_client(&self) -> bool {
        self.what == What::Plain
    }

    pub(crate) async fn prepare(&self, client: &Client) {
        let name = &self.place.name;
        match self.what {
            What::Plain => {
                let semaphore = Semaphore::new(client, name).unwrap();
                semaphore.init(PERMITS).await.unwrap();
            }
            What::Leased => {
                let semaphore = LeasedSemaphore::new(client, name).unwrap();
                semaphore.init(PERMITS).await.unwrap();
            }
            _ => {}
        }
    }

    /// Returns a random call.
    pub(crate) fn call(&self, judge: &Arc<Judge>, member: &Arc<Member>, random: &mut Rng) -> Call {
        let patience = match random.u8(0..10) {
            0 | 1 => Patience::Once,
            2 => Patience::Until(Duration::from_micros(random.u64(0..3000))),
            _ => Patience::Long,
        };
        let (need, how, granted) = self.granted(member, patience, random);
        let process = member.client.id().to_string();
        let label = format!("{how}, {}", &process[..8]);
        Call {
            granted,
            place: Arc::clone(&self.place),
            waiting: Some(self.place.wait(need, &label)),
            member: Arc::clone(member),
            judge: Arc::clone(judge),
            how,
        }
    }

    /// Tries once to acquire the thing exclusively.
    pub(crate) fn try_exclusively(&self, judge: &Arc<Judge>, member: &Arc<Member>) -> Call {
        let granted: Granted = match self.what {
            What::Rw(preference) => {
                let both = RwLock::new(&member.client, &self.place.name).unwrap();
                let side = both.preference(preference).write_side();
                let granted = side.try_acquire();
                Box::pin(async move { Ok(granted.await?.map(Grip::Guard)) })
            }
            _ => {
                self.granted(member, Patience::Once, &mut Rng::with_seed(0))
                    .2
            }
        };
        Call {
            granted,
            place: Arc::clone(&self.place),
            waiting: Some(self.place.wait(Need::Alone, "the check at the end")),
            member: Arc::clone(member),
            judge: Arc::clone(judge),
            how: "try_acquire",
        }
    }

    fn granted(
        &self,
        member: &Arc<Member>,
        patience: Patience,
        random: &mut Rng,
    ) -> (Need, &'static str, Granted) {
        let (client, name) = (&member.client, &self.place.name);
        let how = match patience {
            Patience::Once => "try_acquire",
            Patience::Until(_) => "acquire_timeout",
            Patience::Long => "acquire",
        };
        let options = match patience {
            Patience::Until(time) => member.options().timeout(time),
            Patience::Once | Patience::Long => member.options(),
        };
        let once = matches!(patience, Patience::Once);
        let general = |one: &dyn Acquire| -> Granted {
            if once {
                let granted = one.try_acquire_with(options.clone());
                Box::pin(async move { Ok(granted.await?.map(Grip::Guard)) })
            } else {
                let granted = one.acquire_with(options.clone());
                Box::pin(async move { granted.await.map(Grip::Guard).map(Some) })
            }
        };
        /// The same for a handle without the trait: its try, with a timeout, and its wait.
        macro_rules! special {
            ($grip:expr, $try:expr, |$time:ident| $timeout:expr, $wait:expr) => {{
                let granted: Granted = match patience {
                    Patience::Once => {
                        let granted = $try;
                        Box::pin(async move { Ok(granted.await?.map($grip)) })
                    }
                    Patience::Until($time) => {
                        let granted = $timeout;
                        Box::pin(async move { Ok(Some($grip(granted.await?))) })
                    }
                    Patience::Long => {
                        let granted = $wait;
                        Box::pin(async move { Ok(Some($grip(granted.await?))) })
                    }
                };
                granted
            }};
        }
        match self.what {
            What::Lock => (Need::Alone, how, general(&Lock::new(client, name).unwrap())),
            What::Fair => {
                let fair = FairLock::new(client, name).unwrap();
                (Need::Alone, how, general(&fair))
            }
            What::Rw(preference) => {
                let both = RwLock::new(client, name).unwrap().preference(preference);
                if random.u8(0..4) == 0 {
                    (Need::Alone, how, general(&both.write_side()))
                } else {
                    (Need::Shared, how, general(&both.read_side()))
                }
            }
            What::Leased => {
                let semaphore = LeasedSemaphore::new(client, name).unwrap();
                let semaphore = semaphore.lease(member.lease());
                if random.u8(0..3) > 0 {
                    return (Need::Permits(1), how, general(&semaphore));
                }
                let permits = random.u32(2..=PERMITS);
                let granted = special!(
                    |it: LeasedPermit| Grip::Guard(it.into()),
                    semaphore.try_acquire_many(permits),
                    |_time| semaphore.acquire_many(permits),
                    semaphore.acquire_many(permits)
                );
                (Need::Permits(permits), how, granted)
            }
            What::Plain => {
                let semaphore = Semaphore::new(client, name).unwrap();
                let permits = if random.u8(0..3) == 0 {
                    random.u32(2..=PERMITS)
                } else {
                    1
                };
                let granted = special!(
                    Grip::Permit,
                    semaphore.try_acquire_many(permits),
                    |time| semaphore.acquire_many_timeout(permits, time),
                    semaphore.acquire_many(permits)
                );
                (Need::Permits(permits), how, granted)
            }
            What::Multi => {
                // Different names with one in common: callers exclude each other, and wait in two local queues of each process.
                let other = ["{multi}a", "{multi}c"][random.usize(0..2)];
                let [b, other] = ["{multi}b", other].map(|it| Lock::new(client, it).unwrap());
                let both = MultiLock::new([&b as &dyn Lockable, &other]).unwrap();
                (Need::Alone, how, general(&both))
            }
            What::Office => {
                let election = Election::new(client, name).unwrap().lease(member.lease());
                let granted = special!(
                    Grip::Term,
                    election.try_campaign("value"),
                    |time| election.campaign_timeout("value", time),
                    election.campaign("value")
                );
                (Need::Alone, how, granted)
            }
            What::Job => {
                let job = Job::new(client, name).unwrap().lease(member.lease());
                let granted = job.begin();
                let granted: Granted = Box::pin(async move {
                    Ok(match granted.await? {
                        Begun::Running(guard) => Some(Grip::Run(guard)),
                        _ => None,
                    })
                });
                (Need::Alone, "begin", granted)
            }
        }
    }
}
