//! The bounds that tasks and threads need of the facade's types and of the futures of its verbs. To compile is to pass.
//!
//! `tests/tidy` compares both lists with the sources: a type or a verb that is missing here fails it.
//!
//! Long: a line for each type and each verb.

use std::time::Duration;

use stanchion::{
    barrier::*, client::*, console::*, election::*, error::*, events::*, fair::*, hold::*, jobs::*,
    latch::*, limiter::*, lock::*, multilock::*, redlock::*, rwlock::*, semaphore::*, survey::*,
};

/// Takes a type, or a tuple of types.
fn shared<T: Send + Sync + 'static>() {}

fn sent<T: Send + 'static>() {}

/// A type that a multi-lock takes.
fn member<T: Lockable + Acquire + 'static>() {}

/// A type that serves as a `dyn Acquire`.
fn object<T: Acquire + 'static>() {}

/// Takes a future that a task may wait for.
fn awaited(_: impl Future + Send) {}

/// Takes a future that a task may be made of: it borrows nothing, not the handle it came from either.
fn spawned(_: impl Future + Send + 'static) {}

/// Stands for a value of any type, where nothing runs.
fn any<T>() -> T {
    unreachable!("compiled, and never called")
}

#[test]
fn bounds() {
    core();
    primitives();
    #[cfg(feature = "embedded")]
    engine();
    #[cfg(feature = "tower")]
    layers();
    #[cfg(feature = "blocking")]
    shared::<stanchion::blocking::BlockingError<AcquireError>>();
    let _compiled: [fn(); 13] = [
        barriers,
        clients,
        elections,
        guards,
        locks,
        fair_locks,
        rwlocks,
        semaphores,
        leased_semaphores,
        latches,
        limiters,
        sets,
        jobs,
    ];
}

fn core() {
    shared::<(AbandonedHold, AcquireError, AcquireOptions, AdoptError)>();
    shared::<(Anything, Asked, Background, BootClock, Box<dyn Acquire>)>();
    shared::<(Box<dyn Clock>, Box<dyn Connector>)>();
    shared::<(Box<dyn CredentialsProvider>, Box<dyn Observer>, Certainty)>();
    shared::<(Client, ClientConfig, ConfigError, ConnectError, Console)>();
    shared::<(Credentials, Deadlock, DeadlockEdge, DeadlockParty, InTheWay)>();
    shared::<(OnDeadlock, Actor, Ended, Error, Event, Fencing)>();
    shared::<(FencingToken, FreeBy, Gauges, Guard, Held<Lock>, HoldMode)>();
    shared::<(HoldTicket, IdleExpiry, InvalidDuration, InvalidLease)>();
    shared::<(InvalidName, InvalidTicket, Lease, LeaseLost, LostReason)>();
    shared::<(Moment, Name, NameHolder, NameRule, NameState, Outage, Owner)>();
    shared::<(Placement, Presence, Printable<'_>, Process, Processes)>();
    shared::<(QueryError, Reentry, Rejection, ReleaseError, ReleaseRequest)>();
    shared::<(RenewError, Renewal, Reply, Secret, ServerInfo)>();
    shared::<(ServerRejection, ServerUrl, ShutdownReport, Survey)>();
    shared::<(SurveyedClient, SurveyedHold, SurveyedName, SurveyedWait)>();
    shared::<(TokioClock, Tracked, Unreached, Wake, WireOwner)>();
    // One task at a time polls a future or a stream.
    sent::<(Events, Acquiring<Guard>, Box<dyn ByteStream>)>();
}

fn primitives() {
    shared::<(BarrierDanger<'static>, BarrierError, BarrierStatus)>();
    shared::<(InvalidBarrier, BrokenBy, CyclicBarrier, DoubleBarrier)>();
    shared::<(DoubleStatus, Inside, OnLeave, Passed, WaitOptions)>();
    shared::<(CampaignOptions, Candidate, Challenge, Election)>();
    shared::<(ElectionDanger<'static>, LeadEnd, Leader, Leadership)>();
    shared::<(Observed, Stop, Term, TermEnd, WorkError)>();
    // One task at a time polls a stream, or leads.
    sent::<(Leaders, Lead<()>)>();
    shared::<(Attempt, BucketStatus, Activity, Begun, InvalidTick, Job)>();
    shared::<(JobGuard, JobHolder, JobRun, JobStatus, LastRun, Outcome<u8>)>();
    shared::<(Tick, CountDownLatch, Danger<'static>, FairDanger<'static>)>();
    shared::<(FairHolder, FairLock, FairLockGuard, FairLockStatus, Grant)>();
    shared::<(HeldPermit, Holder, InvalidMembers, InvalidNodes)>();
    shared::<(InvalidPermitId, InvalidQuota, LatchDanger<'static>)>();
    shared::<(LeasedDanger<'static>, LeasedPermit, LeasedSemaphore)>();
    shared::<(LeasedStatus, Limit, LimitError, Limited)>();
    shared::<(LimiterDanger<'static>, LimiterStatus, Lock, LockGuard)>();
    shared::<(LockStatus, MultiDanger<'static>, MultiGuard, MultiLock)>();
    shared::<(NodeOutcome, NodeReport, Permit, PermitHolder, PermitId)>();
    shared::<(Preference, Quota, QuotaScope, RateLimiter, ReadGuard)>();
    shared::<(Reading, RedGuard, RedLock, RedLockError, RwLock)>();
    shared::<(RwLockDanger<'static>, RwLockHolder, RwLockSide)>();
    shared::<(RwLockStatus, Semaphore, SemaphoreDanger<'static>)>();
    shared::<(SemaphoreStatus, TokenBucket, Usage, Waiting, WriteGuard)>();
    shared::<Writing>();
    member::<Lock>();
    member::<FairLock>();
    member::<RwLockSide>();
    object::<LeasedSemaphore>();
    object::<MultiLock>();
    object::<RedLock>();
}

#[cfg(feature = "embedded")]
fn engine() {
    use stanchion::embedded::{Data, Engine, EngineStream, Faults, Reply, Saved, Stats, Switch};
    shared::<(Data, Engine, Faults, Reply, Stats, Saved, Switch)>();
    sent::<EngineStream>();
    let _compiled: fn() = || awaited(Engine::serve(&any(), any::<EngineStream>()));
}

fn clients() {
    spawned(Client::connect(""));
    spawned(Client::connect_with(any()));
    spawned(Client::connect_lazy(""));
    spawned(Client::connect_lazy_with(any()));
    awaited(Client::shutdown(&any(), any()));
    awaited(Client::processes(&any()));
    awaited(Events::next(&mut any()));
    awaited(Client::survey(&any()));
    awaited(Client::deadlocks(&any()));
    spawned(Actor::scope(&any(), async {}));
    awaited(Console::command(&any(), any::<&[&str]>()));
    awaited(Console::commands(&any(), any::<&[Vec<&str>]>()));
    awaited(Console::track(&any(), any::<&[&str]>()));
    awaited(Tracked::written(&mut any()));
}

fn barriers() {
    awaited(CyclicBarrier::wait(&any()));
    awaited(CyclicBarrier::wait_timeout(&any(), any()));
    awaited(CyclicBarrier::wait_with(&any(), any()));
    awaited(CyclicBarrier::status(&any()));
    awaited(CyclicBarrier::set_parties(&any(), any()));
    awaited(BarrierDanger::break_all(&any()));
    awaited(DoubleBarrier::enter(&any()));
    awaited(DoubleBarrier::status(&any()));
    awaited(DoubleBarrier::enter_timeout(&any(), any()));
    spawned(Inside::lost(&any()));
    awaited(Inside::run(&any(), async {}));
    spawned(Inside::leave(any()));
    spawned(Inside::leave_timeout(any(), any()));
}

fn elections() {
    spawned(Election::campaign(&any(), ""));
    spawned(Election::campaign_timeout(&any(), "", any()));
    spawned(Election::campaign_with(
        &any(),
        "",
        any::<CampaignOptions>(),
    ));
    spawned(Election::try_campaign(&any(), ""));
    spawned(Election::try_campaign_with(
        &any(),
        "",
        any::<CampaignOptions>(),
    ));
    awaited(Election::leader(&any()));
    awaited(Election::candidates(&any()));
    awaited(Election::request_release(&any(), ""));
    awaited(ElectionDanger::depose(&any()));
    awaited(Leaders::next(&mut any()));
    awaited(Leadership::proclaim(&any(), ""));
    spawned(Leadership::challenged(&any()));
    spawned(Leadership::step_down(any()));
    awaited(Leadership::hand_over(any(), ""));
    awaited(Term::proclaim(&any(), ""));
    spawned(Term::challenged(&any()));
    spawned(Stop::requested(&any()));
    let work = |_: Term, _: Stop| async { Ok(()) };
    spawned(Lead::until(Election::lead(&any(), "", work), async {}).into_future());
}

/// The verbs that all guards have.
macro_rules! of_each {
    ($($guard:ident),*) => {$(
        spawned($guard::lost(&any()));
        spawned($guard::ended(&any()));
        spawned($guard::requested(&any()));
        awaited($guard::run(&any(), async {}));
        awaited($guard::renew(&any()));
        awaited($guard::renew_for(&any(), any::<Duration>()));
        spawned($guard::release(any()));
    )*};
}

fn guards() {
    of_each!(Guard, LockGuard, FairLockGuard, ReadGuard, WriteGuard);
    of_each!(LeasedPermit, MultiGuard, RedGuard, Leadership, JobGuard);
    awaited(Guard::reenter(&any()));
    awaited(LockGuard::reenter(&any()));
    spawned(LockGuard::detach(any()));
    spawned(LockGuard::detach_for(any(), any::<Duration>()));
    awaited(FairLockGuard::reenter(&any()));
    spawned(FairLockGuard::detach(any()));
    spawned(FairLockGuard::detach_for(any(), any::<Duration>()));
    awaited(ReadGuard::reenter(&any()));
    awaited(WriteGuard::reenter(&any()));
    spawned(WriteGuard::downgrade(any()));
    spawned(Permit::release(any()));
}

fn locks() {
    spawned(Acquire::acquire(&any::<Lock>()));
    spawned(Acquire::acquire_timeout(&any::<Lock>(), any()));
    spawned(Acquire::acquire_with(&any::<Lock>(), any()));
    spawned(Acquire::try_acquire(&any::<Lock>()));
    spawned(Acquire::try_acquire_with(&any::<Lock>(), any()));
    spawned(Lock::acquire(&any()));
    spawned(Lock::acquire_timeout(&any(), any()));
    spawned(Lock::acquire_with(&any(), any()));
    spawned(Lock::try_acquire(&any()));
    spawned(Lock::try_acquire_with(&any(), any()));
    spawned(Lock::adopt(&any(), &any()));
    spawned(Lock::adopt_with(&any(), &any(), any()));
    awaited(Lock::request_release(&any(), ""));
    awaited(Lock::wait_free(&any(), any()));
    awaited(Lock::status(&any()));
    awaited(Danger::force_release(&any()));
}

fn fair_locks() {
    spawned(FairLock::acquire(&any()));
    spawned(FairLock::acquire_timeout(&any(), any()));
    spawned(FairLock::acquire_with(&any(), any()));
    spawned(FairLock::try_acquire(&any()));
    spawned(FairLock::try_acquire_with(&any(), any()));
    spawned(FairLock::adopt(&any(), &any()));
    spawned(FairLock::adopt_with(&any(), &any(), any()));
    awaited(FairLock::request_release(&any(), ""));
    awaited(FairLock::status(&any()));
    awaited(FairLock::queue_len(&any()));
    awaited(FairLock::position(&any()));
    awaited(FairDanger::force_release(&any()));
}

fn rwlocks() {
    spawned(RwLock::read(&any()));
    spawned(RwLock::write(&any()));
    spawned(RwLock::read_timeout(&any(), any()));
    spawned(RwLock::write_timeout(&any(), any()));
    spawned(RwLock::read_with(&any(), any()));
    spawned(RwLock::write_with(&any(), any()));
    spawned(RwLock::try_read(&any()));
    spawned(RwLock::try_write(&any()));
    spawned(RwLock::try_read_with(&any(), any()));
    spawned(RwLock::try_write_with(&any(), any()));
    awaited(RwLock::request_release(&any(), ""));
    awaited(RwLock::status(&any()));
    awaited(RwLockDanger::force_release(&any()));
    awaited(RwLockDanger::force_release_readers(&any()));
    awaited(RwLockDanger::force_release_writer(&any()));
}

fn semaphores() {
    awaited(SemaphoreDanger::reclaim(&any(), ""));
    awaited(SemaphoreDanger::delete(&any()));
    awaited(Semaphore::init(&any(), any()));
    spawned(Semaphore::acquire(&any()));
    spawned(Semaphore::acquire_many(&any(), any()));
    spawned(Semaphore::acquire_timeout(&any(), any()));
    spawned(Semaphore::acquire_with(&any(), any(), any()));
    spawned(Semaphore::try_acquire_with(&any(), any(), any()));
    spawned(Semaphore::acquire_many_timeout(&any(), any(), any()));
    spawned(Semaphore::try_acquire(&any()));
    spawned(Semaphore::try_acquire_many(&any(), any()));
    awaited(Semaphore::available(&any()));
    awaited(Semaphore::status(&any()));
    awaited(Semaphore::add(&any(), any()));
    awaited(Semaphore::reduce(&any(), any()));
    awaited(Semaphore::drain(&any()));
}

fn leased_semaphores() {
    awaited(LeasedDanger::reclaim(&any(), &any::<PermitId>()));
    awaited(LeasedDanger::delete(&any()));
    awaited(LeasedSemaphore::init(&any(), any()));
    spawned(LeasedSemaphore::acquire(&any()));
    spawned(LeasedSemaphore::acquire_many(&any(), any()));
    spawned(LeasedSemaphore::acquire_timeout(&any(), any()));
    spawned(LeasedSemaphore::acquire_many_timeout(&any(), any(), any()));
    spawned(LeasedSemaphore::acquire_with(&any(), any(), any()));
    spawned(LeasedSemaphore::try_acquire(&any()));
    spawned(LeasedSemaphore::try_acquire_many(&any(), any()));
    spawned(LeasedSemaphore::try_acquire_with(&any(), any(), any()));
    awaited(LeasedSemaphore::available(&any()));
    awaited(LeasedSemaphore::acquired(&any()));
    awaited(LeasedSemaphore::total(&any()));
    awaited(LeasedSemaphore::status(&any()));
    awaited(LeasedSemaphore::set_total(&any(), any()));
    awaited(LeasedSemaphore::add(&any(), any()));
    awaited(LeasedSemaphore::reduce(&any(), any()));
    awaited(LeasedSemaphore::drain(&any()));
}

fn limiters() {
    spawned(RateLimiter::acquire(&any()));
    spawned(RateLimiter::acquire_many(&any(), 1));
    spawned(RateLimiter::acquire_timeout(&any(), any()));
    spawned(RateLimiter::acquire_many_timeout(&any(), 1, any()));
    spawned(RateLimiter::try_acquire(&any()));
    spawned(RateLimiter::try_acquire_many(&any(), 1));
    awaited(RateLimiter::status(&any()));
    awaited(RateLimiter::set_quota(&any(), any(), any()));
    awaited(LimiterDanger::delete(&any()));
    spawned(TokenBucket::acquire(&any()));
    spawned(TokenBucket::acquire_many(&any(), 1));
    spawned(TokenBucket::acquire_timeout(&any(), any()));
    spawned(TokenBucket::acquire_many_timeout(&any(), 1, any()));
    spawned(TokenBucket::try_acquire(&any()));
    spawned(TokenBucket::try_acquire_many(&any(), 1));
    awaited(TokenBucket::status(&any()));
    spawned(Grant::refund(any()));
}

#[cfg(feature = "tower")]
fn layers() {
    use stanchion::tower::*;

    fn limiting<T: Limiting>() {}
    limiting::<RateLimiter>();
    limiting::<TokenBucket>();
    shared::<(LayerError<Error>, LimitLayer<fn()>, LimitService<(), fn()>)>();
    shared::<(Claim, ConcurrencyLayer, HoldService<()>, IdempotencyLayer)>();
    shared::<(IdempotencyService<()>, Locked, OneAtATimeLayer)>();
    shared::<(RateLimitLayer, RateLimitService<()>, Refusal)>();
    shared::<ResponseBody<()>>();
}

fn latches() {
    awaited(CountDownLatch::arm(&any(), any()));
    awaited(CountDownLatch::count_down(&any()));
    awaited(CountDownLatch::count_down_by(&any(), any()));
    awaited(CountDownLatch::count(&any()));
    awaited(CountDownLatch::waiting_processes(&any()));
    awaited(CountDownLatch::wait(&any()));
    awaited(CountDownLatch::wait_timeout(&any(), any()));
    awaited(CountDownLatch::wait_with(&any(), any()));
    awaited(LatchDanger::delete(&any()));
}

/// Of the locks that are made of others.
fn sets() {
    spawned(MultiLock::acquire(&any()));
    spawned(MultiLock::acquire_timeout(&any(), any()));
    spawned(MultiLock::acquire_with(&any(), any()));
    spawned(MultiLock::try_acquire(&any()));
    spawned(MultiLock::try_acquire_with(&any(), any()));
    awaited(MultiDanger::force_release(&any()));
    spawned(RedLock::acquire(&any()));
    spawned(RedLock::acquire_timeout(&any(), any()));
    spawned(RedLock::acquire_with(&any(), any()));
    spawned(RedLock::try_acquire(&any()));
    spawned(RedLock::try_acquire_with(&any(), any()));
}

fn jobs() {
    spawned(Job::begin(&any()));
    spawned(Job::begin_tick(&any(), any()));
    spawned(Job::run(&any(), |_| async {}));
    spawned(Job::run_tick(&any(), any(), |_| async {}));
    awaited(Job::status(&any()));
    spawned(JobRun::ended(&any()));
}
