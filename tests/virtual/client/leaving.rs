//! Tests of holds that outlive their guards on the server: `leave`, and a ticket that no client adopts.

use stanchion::{AcquireOptions, FairLock, LeasedSemaphore, Lock, Renewal, RwLock};
use stanchion_tests::{World, lease, ms, spawn_ok};
use tokio::time::{Instant, sleep};

/// What a caller does with the guard of a grant by message.
#[derive(Clone, Copy, Debug)]
enum Use {
    Leave,
    RenewAndLeave,
    Reenter,
}

const FIRST: u64 = 60_000;

/// A client waits, is granted the name by message, and uses the guard as `$use` after `$pause`. Another client must be granted it after the first
/// lease of `$with`, not after the 1.5 s of a grant by message.
macro_rules! keeps {
    ($use:expr, $pause:expr, $hold:expr, $with:expr, $next:expr) => {
        keeps!($use, $pause, $hold, $with, $next, |guard| {
            guard.reenter().await.unwrap().release().await.unwrap();
            guard.leave();
        })
    };
    ($use:expr, $pause:expr, $hold:expr, $with:expr, $next:expr, |$guard:ident| $reenter:expr) => {{
        let held = $hold.await.unwrap();
        let with = $with;
        let user = tokio::spawn(async move {
            let $guard = with.await.unwrap();
            let granted = Instant::now();
            sleep(ms($pause)).await;
            match $use {
                Use::Leave => $guard.leave(),
                Use::RenewAndLeave => {
                    $guard.renew_for(lease(ms(2000))).await.unwrap();
                    $guard.leave();
                }
                Use::Reenter => $reenter,
            }
            granted
        });
        sleep(ms(300)).await;
        held.release().await.unwrap();
        let granted = user.await.unwrap();
        let next = $next.await.unwrap();
        let kept = granted.elapsed();
        let what = format!("{:?} after {} ms: {}", $use, $pause, stringify!($with));
        assert!(kept >= ms(FIRST - 1000), "{what}: free after {kept:?}");
        next.release().await.unwrap();
    }};
}

#[tokio::test(start_paused = true)]
async fn a_grant_by_message_that_is_left_at_once_lasts_for_its_first_lease() {
    for usage in [Use::Leave, Use::RenewAndLeave, Use::Reenter] {
        for pause in [0, 200] {
            let world = World::engine().ends_after(ms(3_600_000));
            let clients = [
                world.named("a").await,
                world.named("b").await,
                world.named("c").await,
            ];
            let options = || AcquireOptions::new().first_lease(lease(ms(FIRST)));
            let [a, b, c] = clients.each_ref().map(|it| Lock::new(it, "lock").unwrap());
            keeps!(
                usage,
                pause,
                a.acquire(),
                b.acquire_with(options()),
                c.acquire()
            );
            let [a, b, c] = clients
                .each_ref()
                .map(|it| FairLock::new(it, "fair").unwrap());
            keeps!(
                usage,
                pause,
                a.acquire(),
                b.acquire_with(options()),
                c.acquire()
            );
            let [a, b, c] = clients
                .each_ref()
                .map(|it| RwLock::new(it, "rwlock").unwrap());
            keeps!(usage, pause, a.write(), b.write_with(options()), c.write());
            let [a, b, c] = clients
                .each_ref()
                .map(|it| LeasedSemaphore::new(it, "seats").unwrap());
            assert!(a.init(1).await.unwrap());
            keeps!(
                usage,
                pause,
                a.acquire(),
                b.acquire_with(1, options()),
                c.acquire(),
                |guard| guard.leave()
            );
        }
    }
}

/// A caller that renews for itself has the lease of its acquire, whatever it asks for first.
#[tokio::test(start_paused = true)]
async fn an_early_renewal_for_a_short_time_does_not_shorten_the_lease() {
    let world = World::engine().ends_after(ms(600_000));
    let (a, b) = (world.named("a").await, world.named("b").await);
    let held = Lock::new(&a, "job").unwrap().acquire().await.unwrap();
    let options = AcquireOptions::new().renewal(Renewal::Manual);
    let waiter = tokio::spawn(Lock::new(&b, "job").unwrap().acquire_with(options));
    sleep(ms(300)).await;
    held.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    guard.renew_for(lease(ms(2000))).await.unwrap();
    sleep(ms(20_000)).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// P4: no process adopts the hold, and no message tells the waiters that it ends earlier than they know.
#[tokio::test(start_paused = true)]
async fn waiters_get_a_name_soon_after_the_lease_of_a_ticket() {
    for late in [0, 300, 600, 900, 1200, 1500] {
        let world = World::engine().ends_after(ms(600_000));
        let (a, b) = (world.named("a").await, world.named("b").await);
        macro_rules! waits {
            ($kind:ident) => {
                let held = $kind::new(&a, "job").unwrap().acquire().await.unwrap();
                let waiter = spawn_ok($kind::new(&b, "job").unwrap().acquire());
                sleep(ms(1000 + late)).await;
                let began = Instant::now();
                let _ticket = held.detach_for(lease(ms(200))).await.unwrap();
                let granted = waiter.await.unwrap();
                let idle = began.elapsed() - ms(200);
                assert!(idle < ms(50), "{} ms: {idle:?}", late);
                granted.release().await.unwrap();
            };
        }
        waits!(Lock);
        waits!(FairLock);
    }
}
