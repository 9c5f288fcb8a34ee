//! The cost of one call without contention: on the embedded engine, and on a private server.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot run should stop"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use stanchion::{Client, Lock};
use stanchion_testkit::RedisServer;
use tokio::runtime::{Builder, Runtime};

fn on(criterion: &mut Criterion, runtime: &Runtime, label: &str, url: &str) {
    let lock = runtime.block_on(async {
        Lock::new(&Client::connect(url).await.unwrap(), "bench:criterion").unwrap()
    });
    let mut group = criterion.benchmark_group(label);
    group.bench_function("acquire + release", |b| {
        b.to_async(runtime)
            .iter(async || lock.acquire().await.unwrap().release().await.unwrap());
    });
    group.bench_function("try_acquire + release", |b| {
        b.to_async(runtime).iter(async || {
            lock.try_acquire()
                .await
                .unwrap()
                .unwrap()
                .release()
                .await
                .unwrap();
        });
    });
    let held = runtime.block_on(lock.acquire()).unwrap();
    group.bench_function("try_acquire, busy", |b| {
        b.to_async(runtime)
            .iter(async || assert!(lock.try_acquire().await.unwrap().is_none()));
    });
    group.bench_function("reenter + release", |b| {
        b.to_async(runtime)
            .iter(async || held.reenter().await.unwrap().release().await.unwrap());
    });
    runtime.block_on(held.release()).unwrap();
    group.finish();
}

fn uncontended(criterion: &mut Criterion) {
    let current_thread = Builder::new_current_thread().enable_all().build().unwrap();
    let multi_thread = Builder::new_multi_thread().enable_all().build().unwrap();
    on(
        criterion,
        &current_thread,
        "memory, current_thread",
        "memory://uncontended",
    );
    if let Some(server) = RedisServer::or_skip("the groups on a server") {
        on(
            criterion,
            &current_thread,
            "server, current_thread",
            &server.url(),
        );
        on(
            criterion,
            &multi_thread,
            "server, multi_thread",
            &server.url(),
        );
    }
}

criterion_group!(benches, uncontended);
criterion_main!(benches);
