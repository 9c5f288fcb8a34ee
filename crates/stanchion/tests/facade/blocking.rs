//! The blocking API: every primitive from plain threads, and the error inside a runtime.

#![expect(
    clippy::expect_used,
    reason = "helpers of tests, outside of a test function"
)]

use std::thread;
use std::time::Duration;

use stanchion::blocking::{Blocking as _, BlockingError, block_on};
use stanchion::jobs::Begun;
use stanchion::limiter::Attempt;
use stanchion::{
    Acquire, AcquireError, AcquireOptions, BarrierError, Client, CountDownLatch, CyclicBarrier,
    DoubleBarrier, Election, FairLock, Job, LeasedSemaphore, LimitError, Lock, Lockable,
    LostReason, MultiLock, Quota, RateLimiter, RedLock, RedLockError, RwLock, Semaphore,
    TokenBucket,
};
use stanchion_testkit::eventually_blocking;

type Tested = Result<(), Box<dyn std::error::Error>>;

/// A timeout that must pass: the name stays held.
const SHORT: Duration = Duration::from_millis(20);

fn connect(name: &str) -> Client {
    Client::connect(format!("memory://blocking-{name}"))
        .blocking()
        .expect("the engine runs")
}

/// Waits until `condition` is met.
fn until(condition: impl Fn() -> bool) {
    while !condition() {
        // In a future: a timer needs the runtime when it is made.
        let pause = async { tokio::time::sleep(Duration::from_millis(1)).await };
        block_on(pause).expect("no runtime here");
    }
}

/// Runs `wait` in a second thread, which blocks until `free` has run. Returns the result of `wait`.
fn waits_for<T: Send, U>(
    client: &Client,
    wait: impl FnOnce() -> T + Send,
    free: impl FnOnce() -> U,
) -> T {
    thread::scope(|threads| {
        let second = threads.spawn(wait);
        until(|| client.waiters() > 0 || second.is_finished());
        assert!(!second.is_finished(), "the call did not wait");
        free();
        second.join().expect("no panic")
    })
}

fn is_timeout<T>(result: &Result<T, BlockingError<AcquireError>>) -> bool {
    matches!(
        result,
        Err(BlockingError::Failed(AcquireError::TimedOut { .. }))
    )
}

/// Timeout, wait, release and drop of each kind whose guards exclude each other.
#[test]
fn kinds_with_a_guard() -> Tested {
    let client = connect("kinds");
    let leased = LeasedSemaphore::new(&client, "leased")?;
    leased.init(1).blocking()?;
    let [a, b] = ["a", "b"].map(|name| Lock::new(&client, name));
    let kinds: [Box<dyn Acquire>; 5] = [
        Box::new(Lock::new(&client, "lock")?),
        Box::new(FairLock::new(&client, "fair")?),
        Box::new(RwLock::new(&client, "rwlock")?.write_side()),
        Box::new(leased),
        Box::new(MultiLock::new([&a? as &dyn Lockable, &b?])?),
    ];
    for kind in kinds {
        let guard = kind.acquire().blocking()?;
        assert!(is_timeout(&kind.acquire_timeout(SHORT).blocking()));
        assert!(kind.try_acquire().blocking()?.is_none());
        let wait = || kind.acquire().blocking();
        let second = waits_for(&client, wait, || guard.release().blocking())?;
        // The release by a drop runs in the background.
        let third = waits_for(&client, wait, || drop(second))?;
        third.renew().blocking()?;
        assert!(third.is_held() && third.remaining() > Duration::ZERO);
    }
    Ok(())
}

#[test]
fn a_detached_lock() -> Tested {
    let lock = Lock::new(&connect("lock"), "a")?;
    let guard = lock.acquire().blocking()?;
    let token = guard.fencing_token();
    let ticket = guard.detach().blocking()?;
    let guard = lock.adopt(&ticket).blocking()?;
    assert!(token.is_some() && guard.fencing_token() > token);
    guard.release().blocking()?;
    assert!(!lock.status().blocking()?.is_held());
    Ok(())
}

#[test]
fn readers() -> Tested {
    let client = connect("rwlock");
    let lock = RwLock::new(&client, "a")?;
    let writer = lock.write().blocking()?;
    assert!(is_timeout(&lock.read_timeout(SHORT).blocking()));
    let read = || lock.read().blocking();
    let reader = waits_for(&client, read, || writer.release().blocking())?;
    let another = read()?;
    drop(reader);
    another.release().blocking()?;
    Ok(())
}

#[test]
fn semaphore() -> Tested {
    let client = connect("semaphore");
    let semaphore = Semaphore::new(&client, "a")?;
    semaphore.init(1).blocking()?;
    let acquire = || semaphore.acquire().blocking();
    let permit = acquire()?;
    assert!(is_timeout(&semaphore.acquire_timeout(SHORT).blocking()));
    let permit = waits_for(&client, acquire, || permit.release().blocking())?;
    waits_for(&client, acquire, || drop(permit))?
        .release()
        .blocking()?;
    // The wait that timed out gives up its queue entry in the background. A grant to that entry is taken back after 0.5 s.
    eventually_blocking("the permit is free", || {
        semaphore.available().blocking().is_ok_and(|free| free == 1)
    });
    Ok(())
}

#[test]
fn latch() -> Tested {
    let client = connect("latch");
    let latch = CountDownLatch::new(&client, "a")?;
    latch.arm(1).blocking()?;
    assert!(is_timeout(&latch.wait_timeout(SHORT).blocking()));
    let wait = || latch.wait().blocking();
    waits_for(&client, wait, || latch.count_down().blocking())?;
    Ok(())
}

#[test]
fn barriers() -> Tested {
    let client = connect("barrier");
    let barrier = CyclicBarrier::new(&client, "a", 2)?;
    let timeout = barrier.wait_timeout(SHORT).blocking();
    assert!(matches!(
        timeout,
        Err(BlockingError::Failed(BarrierError::TimedOut { .. }))
    ));
    let wait = || barrier.wait().blocking();
    waits_for(&client, wait, wait)?;

    let double = DoubleBarrier::new(&client, "b", 2)?;
    let inside = thread::scope(|threads| {
        let second = threads.spawn(|| double.enter().blocking());
        let first = double.enter().blocking();
        [first, second.join().expect("no panic")]
    });
    for inside in inside {
        drop(inside?);
    }
    Ok(())
}

#[test]
fn limiters() -> Tested {
    let client = connect("limiter");
    let quota = Quota::new(1, Duration::from_millis(500))?;
    let limiter = RateLimiter::new(&client, "a", quota)?;
    limiter.acquire().blocking()?;
    assert!(matches!(
        limiter.try_acquire().blocking()?,
        Attempt::Limited(_)
    ));
    let timeout = limiter.acquire_timeout(SHORT).blocking();
    assert!(matches!(
        timeout,
        Err(BlockingError::Failed(LimitError::TimedOut { .. }))
    ));
    limiter.acquire().blocking()?; // waits for the next interval

    let bucket = TokenBucket::new(&client, "b", quota)?;
    bucket.acquire().blocking()?;
    assert!(matches!(
        bucket.try_acquire().blocking()?,
        Attempt::Limited(_)
    ));
    Ok(())
}

#[test]
fn election() -> Tested {
    let client = connect("election");
    let election = Election::new(&client, "a")?;
    let leader = election.campaign("one").blocking()?;
    assert!(is_timeout(
        &election.campaign_timeout("two", SHORT).blocking()
    ));
    leader.proclaim("one, in its second round").blocking()?;
    let campaign = || election.campaign("two").blocking();
    let next = waits_for(&client, campaign, || leader.step_down().blocking())?;
    assert!(next.is_held());
    let _last = waits_for(&client, campaign, || drop(next))?;
    Ok(())
}

#[test]
fn red_lock() -> Tested {
    let nodes = ["red1", "red2", "red3"].map(connect);
    let lock = RedLock::new(&nodes, "a")?;
    let guard = lock.acquire().blocking()?;
    let timeout = lock.acquire_timeout(SHORT).blocking();
    assert!(matches!(
        timeout,
        Err(BlockingError::Failed(RedLockError::TimedOut { .. }))
    ));
    guard.release().blocking()?;
    drop(lock.acquire().blocking()?);
    Ok(())
}

#[test]
fn job() -> Tested {
    let client = connect("job");
    let job = Job::new(&client, "a")?;
    let Begun::Running(run) = job.begin().blocking()? else {
        return Err("the job is free".into());
    };
    assert!(!matches!(job.begin().blocking()?, Begun::Running(_)));
    run.release().blocking()?;
    Ok(())
}

/// A future without a `Result`, and a loss that the thread learns while it blocks.
#[test]
fn losses_and_a_shutdown() -> Tested {
    let client = connect("lost");
    let lock = Lock::new(&client, "a")?;
    let guard = lock
        .acquire_with(AcquireOptions::new().max_hold(SHORT))
        .blocking()?;
    assert_eq!(block_on(guard.lost())?, LostReason::MaxHold);
    assert!(!guard.is_held());

    let held = lock.acquire().blocking()?;
    let ended = waits_for(
        &client,
        || lock.acquire().blocking(),
        || block_on(client.shutdown(SHORT)),
    );
    assert!(matches!(
        ended,
        Err(BlockingError::Failed(AcquireError::Shutdown { .. }))
    ));
    drop(held);
    Ok(())
}

/// Calls from the tasks of a runtime return the error. The tasks continue, and a guard can be dropped there.
async fn refuses_tasks(name: &str) -> Tested {
    let client = Client::connect(format!("memory://blocking-{name}")).await?;
    let lock = Lock::new(&client, "a")?;
    let guard = lock.acquire().await?;
    // The check must give back the steps that it takes from the task's budget.
    for _ in 0..3 {
        assert_eq!(
            lock.try_acquire().blocking().err(),
            Some(BlockingError::InsideRuntime)
        );
        assert_eq!(
            block_on(guard.lost()).err(),
            Some(BlockingError::InsideRuntime)
        );
        assert!(tokio::task::coop::has_budget_remaining());
    }
    let in_task = lock.clone();
    let refused = tokio::spawn(async move { in_task.acquire().blocking().err() }).await?;
    assert_eq!(refused, Some(BlockingError::InsideRuntime));
    let text = BlockingError::<AcquireError>::InsideRuntime.to_string();
    assert!(
        text.contains("`.await`") && text.contains("spawn_blocking"),
        "{text}"
    );

    // A thread for blocking work belongs to the runtime, and may block.
    let waiting = lock.clone();
    let blocked = tokio::task::spawn_blocking(move || waiting.acquire().blocking());
    while client.waiters() == 0 && !blocked.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    guard.release().await?;
    drop(blocked.await??);
    Ok(())
}

#[tokio::test]
async fn tasks_of_a_current_thread_runtime_get_an_error() -> Tested {
    refuses_tasks("current").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_multi_thread_runtime_get_an_error() -> Tested {
    refuses_tasks("multi-thread").await?;
    let client = Client::connect("memory://blocking-in-place").await?;
    let lock = Lock::new(&client, "a")?;
    drop(tokio::task::block_in_place(|| lock.acquire().blocking())?);
    Ok(())
}

/// Between two calls of `block_on`, the thread that owns a runtime may block, also with an entered handle.
#[test]
fn a_thread_between_its_own_runs_may_block() -> Tested {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let client = runtime.block_on(Client::connect("memory://blocking-between"))?;
    let _entered = runtime.enter();
    let guard = Lock::new(&client, "a")?.acquire().blocking()?;
    guard.release().blocking()?;
    Ok(())
}

/// Blocks inside a future that a blocking call runs. The wake-up of the outer call arrives while the inner call waits, and is not lost.
#[test]
fn nested_calls_end() -> Tested {
    let client = connect("nested");
    let lock = Lock::new(&client, "a")?;
    let guard = lock.acquire().blocking()?;
    let (sum, inner) = block_on(async {
        let outer = async {
            tokio::time::sleep(SHORT / 4).await;
            guard.run(async { 1 + 1 }).await
        };
        let inner = async { block_on(async { tokio::time::sleep(SHORT).await }) };
        tokio::join!(outer, inner) // polls the outer sleep, then blocks in the inner one
    })?;
    inner?;
    assert_eq!(sum?, 2);
    Ok(())
}

/// Several threads block on one client, and each is woken by the release of another one.
#[test]
fn many_threads_share_one_lock() -> Tested {
    let client = connect("threads");
    let lock = Lock::new(&client, "a")?;
    let inside = std::sync::atomic::AtomicU32::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for _ in 0..10 {
                    let guard = lock.acquire().blocking().expect("no timeout");
                    assert_eq!(inside.fetch_add(1, order), 0, "two holders");
                    inside.fetch_sub(1, order);
                    drop(guard);
                }
            });
        }
    });
    Ok(())
}
