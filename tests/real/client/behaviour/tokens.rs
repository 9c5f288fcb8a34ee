//! Tests fencing tokens (P2): they grow, even after a loss of all data, and an invalid counter is refused.

use stanchion::{
    AcquireError, AcquireOptions, Client, Fencing, Lock, Lockable, MultiLock, Rejection, RwLock,
};
use stanchion_tests::{World, ms, secs};

suite! {
    tokens_grow_after_all_data_is_lost,
    tokens_continue_a_counter_that_is_ahead_of_the_clock,
    names_in_one_slot_share_one_counter,
    per_name_tokens_continue_redissons_counter,
    without_fencing_no_counter_is_touched,
    an_invalid_counter_is_refused_and_left_untouched,
    tokens_are_exact_up_to_the_largest_number,
}

async fn tokens_grow_after_all_data_is_lost(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let before = lock.acquire().await.unwrap();
    // After the loss only the server's clock makes tokens grow. In virtual time it advances in a sleep only.
    tokio::time::sleep(ms(1)).await;
    let _ = world.admin(&["FLUSHALL"]);
    let after = lock.acquire().await.unwrap();
    assert!(after.fencing_token() > before.fencing_token());
}

async fn tokens_continue_a_counter_that_is_ahead_of_the_clock(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let first = lock.acquire().await.unwrap();
    let key = fence_key(world);
    let ahead = first.fencing_token().unwrap().get() + 10_000_000_000;
    first.release().await.unwrap();
    let _ = world.admin(&["SET", &key, &ahead.to_string()]);
    for token in [ahead + 1, ahead + 2] {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(guard.fencing_token().unwrap().get(), token);
        guard.release().await.unwrap();
    }
}

fn fence_key(world: &World) -> String {
    let keys = match world {
        World::Engine(engine) => engine
            .keys()
            .into_iter()
            .map(|key| String::from_utf8(key).unwrap())
            .collect(),
        World::Server(server) => server.keys(),
    };
    keys.into_iter()
        .find(|key| key.starts_with("stanchion_fence:"))
        .expect("a counter")
}

async fn names_in_one_slot_share_one_counter(world: &World) {
    let client = world.client().await;
    for i in 0..200 {
        let lock = Lock::new(&client, format!("{{tag}}:{i}")).unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    assert!(world.keys().is_empty());
    assert_eq!(world.admin(&["DBSIZE"]), "1");
}

async fn per_name_tokens_continue_redissons_counter(world: &World) {
    let client = world.client().await;
    // Redisson counts from 1. Our token is a time in microseconds, which is larger, and Redisson's INCR continues from it.
    let _ = world.admin(&["SET", "redisson_lock_token:{job}", "41"]);
    let lock = Lock::new(&client, "job").unwrap().fencing(Fencing::PerName);
    let first = lock.acquire().await.unwrap().fencing_token().unwrap().get();
    assert!(first > 41);
    let redisson: u64 = world
        .admin(&["INCR", "redisson_lock_token:{job}"])
        .parse()
        .unwrap();
    assert!(redisson > first);
    assert_eq!(
        lock.status().await.unwrap().last_token.unwrap().get(),
        redisson
    );
}

async fn without_fencing_no_counter_is_touched(world: &World) {
    let lock = Lock::new(&world.client().await, "job")
        .unwrap()
        .fencing(Fencing::Off);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.fencing_token(), None);
    let status = lock.status().await.unwrap();
    assert_eq!((status.is_held(), status.last_token), (true, None));
    guard.release().await.unwrap();
    assert_eq!(world.admin(&["DBSIZE"]), "0");
}

const COUNTER: &str = "redisson_lock_token:{job}";

/// Returns the errors of exclusive acquires of `job` by each primitive with tokens.
async fn refusals(client: &Client) -> Vec<AcquireError> {
    let lock = Lock::new(client, "job").unwrap();
    let lock = lock.fencing(Fencing::PerName);
    let more = Lock::new(client, "more").unwrap();
    let both = MultiLock::new([&lock as &dyn Lockable, &more]).unwrap();
    let rwlock = RwLock::new(client, "job").unwrap();
    let rwlock = rwlock.fencing(Fencing::PerName);
    vec![
        lock.try_acquire().await.unwrap_err(),
        lock.acquire().await.unwrap_err(),
        both.try_acquire().await.unwrap_err(),
        rwlock.try_write().await.unwrap_err(),
    ]
}

async fn an_invalid_counter_is_refused_and_left_untouched(world: &World) {
    let client = world.client().await;
    for odd in [
        "inf",
        "-inf",
        "nan",
        "abc",
        "",
        "1.5",
        "9007199254740991",
        "9007199254740992",
        "9223372036854775807",
        "99999999999999999999",
    ] {
        let _ = world.admin(&["SET", COUNTER, odd]);
        for error in refusals(&client).await {
            let names_the_counter = matches!(
                &error,
                AcquireError::Rejected { rejection: Rejection::WrongType { detail }, .. } if detail.contains(COUNTER)
            );
            assert!(names_the_counter, "{odd:?}: {error}");
        }
        assert!(world.keys().is_empty(), "{odd:?}: nothing is held");
        assert_eq!(world.admin(&["GET", COUNTER]), odd);
    }
}

async fn tokens_are_exact_up_to_the_largest_number(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let lock = lock.fencing(Fencing::PerName);
    let _ = world.admin(&["SET", COUNTER, "9007199254740989"]);
    for token in [9_007_199_254_740_990, 9_007_199_254_740_991] {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(guard.fencing_token().unwrap().get(), token);
        guard.release().await.unwrap();
    }
    let options = AcquireOptions::new().timeout(secs(1));
    let error = lock.acquire_with(options).await.unwrap_err();
    assert!(matches!(error, AcquireError::Rejected { .. }), "{error}");
}
