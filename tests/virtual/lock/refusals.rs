//! Tests server errors (P8): a rejected request returns a typed error that names the refusal. `virtual/refusals` has the cases of all kinds.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use stanchion::client::{ByteStream, Connector};
use stanchion::embedded::{Engine, Switch};
use stanchion::{
    AcquireError, AcquireOptions, Client, Fencing, Lock, MultiLock, Rejection, Semaphore,
};
use stanchion_testkit::eventually;
use stanchion_tests::{World, ms, secs, spawn_ok};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn rejection(error: AcquireError) -> Rejection {
    match error {
        AcquireError::Rejected { rejection, .. } => rejection,
        other => panic!("{other}"),
    }
}

/// A hand-off cannot mint a token: it frees the lock, and the waiter gets the reason.
#[tokio::test(start_paused = true)]
async fn a_fence_of_another_type_is_an_error_and_nothing_is_held() {
    for fencing in [Fencing::PerName, Fencing::default()] {
        let (world, client) = World::engine().with_client().await;
        let lock = Lock::new(&client, "job").unwrap().fencing(fencing);
        let guard = lock.acquire().await.unwrap();
        let waiter = tokio::spawn(lock.acquire());
        eventually("the call waits", || client.waiters() == 1).await;
        world.quiet().await;
        let keys = world.as_engine().keys().into_iter();
        let mut keys = keys.map(|key| String::from_utf8(key).unwrap());
        let fence = keys.find(|key| key.contains("fence:") || key.contains("token:"));
        let fence = fence.unwrap();
        let _ = world.admin(&["DEL", &fence]);
        let _ = world.admin(&["RPUSH", &fence, "precious"]);
        guard.release().await.unwrap();
        for refused in [
            waiter.await.unwrap(),
            lock.acquire().await,
            lock.try_acquire().await.map(Option::unwrap),
        ] {
            let rejection = rejection(refused.unwrap_err());
            assert!(matches!(rejection, Rejection::WrongType { .. }));
        }
        assert!(lock.status().await.is_err());
        world.at_rest().await;
        assert_eq!(world.admin(&["LINDEX", &fence, "0"]), "precious");
    }
}

/// A text of the error of each call that ends at its deadline: at first the server refuses, and then it is silent.
async fn errors_of_a_silent_server(world: &World, client: &Client) -> Vec<(&'static str, String)> {
    let soon = secs(2);
    let held = Lock::new(client, "held").unwrap().acquire().await.unwrap();
    let again = Lock::new(client, "again").unwrap().acquire().await.unwrap();
    let left = Lock::new(client, "left").unwrap().acquire().await.unwrap();
    let permits = Semaphore::new(client, "permits").unwrap();
    permits.init(1).await.unwrap();
    let job = Lock::new(client, "job").unwrap();
    let both = [job.clone(), Lock::new(client, "other").unwrap()];
    let both = MultiLock::new(both.iter().map(|lock| lock as _)).unwrap();
    let faults = world.faults();
    faults.loading(Switch::On);
    let freezing = async {
        tokio::time::sleep(ms(300)).await;
        faults.freeze(Some("client"));
    };
    let first = job.acquire_timeout(soon);
    // Waits in the local queue, behind a request that is refused.
    let second = job.acquire_timeout(soon);
    let tried = job.try_acquire_with(AcquireOptions::new().timeout(soon));
    let several = both.acquire_timeout(soon);
    let permit = permits.acquire_timeout(soon);
    let (first, second, tried, several, permit, status, count, renewed, entered, released, ()) = tokio::join!(
        first,
        second,
        tried,
        several,
        permit,
        job.status(),
        permits.available(),
        held.renew(),
        again.reenter(),
        left.release(),
        freezing
    );
    faults.loading(Switch::Off);
    faults.thaw(Some("client"));
    held.release().await.unwrap();
    again.release().await.unwrap();
    permits.danger().delete().await.unwrap();
    vec![
        ("acquire", first.unwrap_err().to_string()),
        ("acquire behind it", second.unwrap_err().to_string()),
        ("try", tried.unwrap_err().to_string()),
        ("multi-lock", several.unwrap_err().to_string()),
        ("permit", permit.unwrap_err().to_string()),
        ("status", status.unwrap_err().to_string()),
        ("available", count.unwrap_err().to_string()),
        ("renew", renewed.unwrap_err().to_string()),
        ("reenter", entered.unwrap_err().to_string()),
        ("release", released.unwrap_err().to_string()),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_error_names_the_last_refusal_though_a_request_is_in_flight() {
    let world = World::engine();
    // The silent server ends no request before the deadlines.
    let client = world
        .configured("client", |it| it.response_timeout(secs(60)))
        .await;
    for (call, error) in Box::pin(errors_of_a_silent_server(&world, &client)).await {
        assert!(error.contains("LOADING"), "P8: {call}: {error}");
    }
    world.at_rest().await;
}

/// Connects to the engine, and counts the scripts that are sent.
#[derive(Debug)]
struct Counting {
    engine: Engine,
    sent: Arc<AtomicUsize>,
}

#[async_trait]
impl Connector for Counting {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let (near, far) = tokio::io::duplex(1024 * 1024);
        let (mut replies, mut engine) = tokio::io::split(self.engine.connect()?);
        let (mut requests, mut client) = tokio::io::split(far);
        let sent = Arc::clone(&self.sent);
        tokio::spawn(async move {
            let mut bytes = vec![0; 1024 * 1024];
            while let Ok(n @ 1..) = requests.read(&mut bytes).await {
                let text = String::from_utf8_lossy(&bytes[..n]);
                sent.fetch_add(text.matches("EVALSHA").count(), Ordering::Relaxed);
                engine.write_all(&bytes[..n]).await.unwrap();
            }
        });
        tokio::spawn(async move { tokio::io::copy(&mut replies, &mut client).await });
        Ok(Box::new(near))
    }
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_server_that_refuses_for_now_become_rare() {
    const NAMES: usize = 100;
    let world = World::engine();
    let sent = Arc::default();
    let connector = Counting {
        engine: world.as_engine().clone(),
        sent: Arc::clone(&sent),
    };
    let client = world
        .configured("client", |it| it.connector(connector))
        .await;
    let refusal = "MISCONF Redis is configured to save RDB snapshots, but";
    let faults = world.faults();
    faults.fail_next("evalsha", refusal, usize::MAX);
    let waiting: Vec<_> = (0..NAMES)
        .map(|number| {
            let lock = Lock::new(&client, format!("job-{number}")).unwrap();
            spawn_ok(lock.acquire())
        })
        .collect();
    let sent = || sent.load(Ordering::Relaxed);
    tokio::time::sleep(secs(5)).await;
    let before = sent();
    tokio::time::sleep(secs(20)).await;
    // Each name pauses for 1 s and the jitter.
    let each = (sent() - before) / NAMES;
    assert!((8..20).contains(&each), "{each} scripts for a name in 20 s");
    faults.clear();
    // The longest pause and its jitter.
    let granted = async {
        for waiter in waiting {
            waiter.await.unwrap().release().await.unwrap();
        }
    };
    let granted = tokio::time::timeout(secs(3), granted);
    assert!(granted.await.is_ok(), "P4");
    world.at_rest().await;
}
