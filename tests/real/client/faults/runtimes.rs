//! Tests runtimes that end, block or panic, and threads without a runtime: guards are still renewed and released.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;

use stanchion::{
    AcquireError, Background, Client, ConfigError, ConnectError, LockGuard, LostReason,
};
use stanchion_testkit::{RedisServer, eventually_blocking};
use stanchion_tests::faults::*;
use tokio::runtime::{Builder, Runtime};

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn several() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// A guard whose client lives on `runtime`.
fn guard_on(runtime: &Runtime, server: &RedisServer) -> LockGuard {
    runtime.block_on(async {
        lock_of(server.url(), "orders", LONG)
            .await
            .acquire()
            .await
            .unwrap()
    })
}

/// Waits until all locks are released, long before the lease of 30 s ends.
fn released(server: &RedisServer) {
    eventually_blocking("released", || leftovers(server).is_empty());
}

/// A hundred guards in tasks that would never end.
fn hundred_guards(runtime: &Runtime, server: &RedisServer) -> Client {
    runtime.block_on(async {
        let client = connect(server.url()).await;
        for i in 0..100 {
            let guard = lock(&client, &format!("orders-{i}"), LONG)
                .acquire()
                .await
                .unwrap();
            tokio::spawn(async move {
                let _guard = guard;
                pending::<()>().await;
            });
        }
        client
    })
}

#[test]
fn a_hundred_guards_dropped_with_their_runtime_are_released() {
    let Some(server) = server() else { return };
    for runtime in [single(), several()] {
        let client = hundred_guards(&runtime, &server);
        assert_eq!(leftovers(&server).len(), 100);
        drop(client);
        drop(runtime);
        released(&server);
    }
}

#[test]
fn a_hundred_guards_dropped_with_their_runtime_are_released_while_the_client_lives_on() {
    let Some(server) = server() else { return };
    let runtime = several();
    let client = hundred_guards(&runtime, &server);
    runtime.shutdown_background();
    released(&server);
    // The client still serves another runtime, over its background connection.
    let guard = single()
        .block_on(lock(&client, "orders", LONG).acquire())
        .unwrap();
    drop(guard);
    released(&server);
}

#[test]
fn a_guard_that_outlives_its_runtime_is_renewed_and_released() {
    let Some(server) = server() else { return };
    let runtime = several();
    let guard = runtime.block_on(async {
        lock_of(server.url(), "orders", ms(1500))
            .await
            .acquire()
            .await
            .unwrap()
    });
    drop(runtime);
    let before = guard.valid_until();
    eventually_blocking("renewed", || guard.valid_until() > before);
    assert!(guard.is_held());
    // The release works on another runtime.
    single().block_on(guard.release()).unwrap();
    released(&server);
}

#[test]
fn a_guard_that_is_dropped_without_a_runtime_is_released() {
    let Some(server) = server() else { return };
    let runtime = several();
    let guard = guard_on(&runtime, &server);
    thread::spawn(move || drop(guard)).join().unwrap();
    released(&server);
    let guard = guard_on(&runtime, &server);
    drop(runtime);
    drop(guard);
    released(&server);
}

#[test]
fn a_guard_is_released_when_a_panic_drops_it() {
    let Some(server) = server() else { return };
    let runtime = several();
    let guard = guard_on(&runtime, &server);
    let panicked = thread::spawn(move || {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    released(&server);
    // A panic in a task, and a panic in `block_on`.
    let guard = guard_on(&runtime, &server);
    let task = runtime.spawn(async move {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(runtime.block_on(task).unwrap_err().is_panic());
    released(&server);
    let inside = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let _guard = acquired(server.url(), "orders", LONG).await;
            panic!("on purpose");
        });
    }));
    assert!(inside.is_err());
    released(&server);
}

#[test]
fn a_release_that_is_never_awaited_is_done() {
    let Some(server) = server() else { return };
    let runtime = several();
    let guard = guard_on(&runtime, &server);
    drop(guard.release());
    released(&server);
}

#[test]
fn an_acquire_whose_runtime_ends_leaves_nothing() {
    let Some(server) = server() else { return };
    for _ in 0..10 {
        let runtime = several();
        let client = runtime.block_on(connect(server.url()));
        for i in 0..20 {
            let lock = lock(&client, &format!("orders-{}", i % 4), LONG);
            runtime.spawn(async move {
                loop {
                    drop(lock.acquire().await.unwrap());
                }
            });
        }
        eventually_blocking("the tasks acquire", || {
            server
                .commands_processed()
                .get("evalsha")
                .is_some_and(|n| *n > 50)
        });
        drop(runtime);
        drop(client);
        released(&server);
        server.reset_stats();
    }
}

#[test]
fn a_blocked_executor_does_not_lose_the_hold() {
    let Some(server) = server() else { return };
    let blocked = single();
    let (client, guard) = blocked.block_on(async {
        let client = connect(server.url()).await;
        let guard = lock(&client, "orders", ms(1000)).acquire().await.unwrap();
        (client, guard)
    });
    let owner = holder(&server, "orders");
    thread::scope(|scope| {
        let blocking = scope.spawn(|| {
            blocked.block_on(async {
                #[expect(clippy::disallowed_methods, reason = "the executor is to be blocked")]
                thread::sleep(secs(3));
                assert!(guard.is_held(), "P10");
            });
        });
        let others = single();
        let lock = others.block_on(lock_of(server.url(), "orders", LONG));
        while !blocking.is_finished() {
            assert!(others.block_on(lock.try_acquire()).unwrap().is_none(), "P1");
            assert_eq!(holder(&server, "orders"), owner);
        }
        blocking.join().unwrap();
    });
    blocked.block_on(guard.release()).unwrap();
    drop(client);
    released(&server);
}

#[test]
fn a_client_is_dropped_anywhere_without_a_panic() {
    let Some(server) = server() else { return };
    let runtime = single();
    let client = runtime.block_on(connect(server.url()));
    runtime.block_on(async { drop(client.clone()) });
    drop(runtime);
    drop(client);
    eventually_blocking("closed", || {
        server.cli(&["CLIENT", "LIST"]).as_text().lines().count() == 1
    });
}

#[test]
fn a_call_on_another_runtime_succeeds_while_the_connecting_runtime_is_idle() {
    let Some(server) = server() else { return };
    // `home` runs only during the connect, as in a program that blocks on each call.
    let (home, elsewhere) = (single(), several());
    let client = home.block_on(connect(server.url()));
    let lock = lock(&client, "orders", LONG);
    let guard = elsewhere
        .block_on(async { soon(LONG / 3, lock.acquire()).await })
        .unwrap();
    elsewhere.block_on(guard.release()).unwrap();
    assert!(elsewhere.block_on(lock.try_acquire()).unwrap().is_some());
    released(&server);
}

#[test]
fn a_call_on_another_runtime_never_waits_for_an_idle_runtime() {
    let Some(server) = server() else { return };
    let (home, elsewhere) = (single(), several());
    // A long response timeout, so that the connection of the idle runtime is not closed during this test.
    let config = config(server.url()).response_timeout(LONG);
    let client = home.block_on(Client::connect_with(config)).unwrap();
    let lock = lock(&client, "orders", LONG);
    let cycle = || {
        elsewhere.block_on(soon(LONG / 3, async {
            lock.acquire().await.unwrap().release().await.unwrap();
        }));
    };
    cycle();
    // The idle runtime does not detect that its connection is closed. The background connection is reopened.
    admin(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    cycle();
    // A runtime that runs again uses its own connection again.
    let guard = home.block_on(soon(LONG / 3, lock.acquire())).unwrap();
    home.block_on(guard.release()).unwrap();
}

#[test]
fn an_outage_after_the_end_of_the_runtime_that_connected_is_reported_as_an_outage() {
    let Some(mut server) = server() else { return };
    let home = several();
    let config = config(server.url()).operation_timeout(ms(500));
    let client = home.block_on(Client::connect_with(config)).unwrap();
    drop(home);
    server.kill();
    let lock = lock(&client, "orders", LONG);
    let error = single().block_on(lock.try_acquire()).unwrap_err();
    // P8: the client was not shut down.
    let text = error.to_string();
    assert!(
        text.contains("no connection to") && !text.contains("shut down"),
        "{text}"
    );
}

/// Returns `call` after its first polls on `runtime`: its timers are set.
fn begun<F: Future>(runtime: &Runtime, call: F) -> Pin<Box<F>> {
    let mut call = Box::pin(call);
    runtime.block_on(async {
        let begun = tokio::time::timeout(ms(100), &mut call).await;
        assert!(begun.is_err(), "the call waits");
    });
    call
}

#[test]
fn a_call_keeps_its_deadline_when_it_moves_to_another_runtime() {
    let Some(server) = server() else { return };
    let home = several();
    let client = home.block_on(connect(server.url()));
    let lock = lock(&client, "orders", LONG);
    let guard = home.block_on(lock.acquire()).unwrap();
    let waiting = begun(&home, lock.acquire_timeout(ms(1000)));
    let lost = begun(&home, guard.lost());
    drop(home);
    let elsewhere = single();
    let error = elsewhere.block_on(soon(LONG, waiting)).unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
    server.flush();
    let reason = elsewhere.block_on(soon(LONG, lost));
    assert_eq!(reason, LostReason::Gone);
}

#[test]
fn a_client_without_a_background_thread_ends_with_its_runtime() {
    let Some(server) = server() else { return };
    let home = several();
    // With the runtime alive, every call would wait for 30 s.
    let config = config(server.url())
        .operation_timeout(LONG)
        .background(Background::CurrentRuntime);
    let client = home.block_on(Client::connect_with(config)).unwrap();
    let orders = lock(&client, "orders", LONG);
    let guard = home.block_on(orders.acquire()).unwrap();
    let dropped = home.block_on(lock(&client, "dropped", LONG).acquire());
    let waiting = begun(&home, orders.acquire());
    let timed = begun(&home, orders.acquire_timeout(LONG));
    drop(home);
    let elsewhere = single();
    elsewhere.block_on(soon(LONG / 3, async {
        for error in [
            waiting.await.unwrap_err(),
            timed.await.unwrap_err(),
            orders.try_acquire().await.unwrap_err(),
        ] {
            assert!(matches!(error, AcquireError::Shutdown { .. }), "{error}");
        }
        orders.status().await.unwrap_err();
        guard.renew().await.unwrap_err();
        guard.release().await.unwrap_err();
        drop(dropped);
        let report = client.shutdown(ms(100)).await;
        assert!(!report.is_clean(), "P8: {report:?}");
        assert!(report.unfinished >= 2, "{report:?}");
    }));
}

#[test]
fn a_connect_outside_a_runtime_is_a_typed_error() {
    let connecting = pin!(Client::connect("redis://127.0.0.1:1"));
    let polled = connecting.poll(&mut Context::from_waker(Waker::noop()));
    let error = ConnectError::Config(ConfigError::NoRuntime);
    assert!(matches!(polled, Poll::Ready(Err(e)) if e == error));
}
