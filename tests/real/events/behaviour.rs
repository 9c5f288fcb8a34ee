//! The events of each kind of synchronizer, on the engine and on a real server.

use stanchion::events::{HoldMode, NameHolder};
use stanchion::{
    Client, CountDownLatch, CyclicBarrier, DoubleBarrier, Event, FairLock, LeasedSemaphore, RwLock,
    Semaphore,
};
use stanchion_tests::{JAVA, World, ms, secs};
use tokio::time::Instant;

use stanchion_tests::events::*;

suite! {
    in stanchion_tests::events::engine;
    a_lock_reports_its_holder_and_its_release,
    a_hand_off_inside_a_process_is_reported,
    an_expiry_is_reported_when_the_lease_ends,
    a_forced_release_is_reported_as_a_release,
    the_first_event_is_the_current_state,
    a_fair_lock_reports_its_grants,
    readers_and_writers_are_reported_with_their_mode,
    the_expiry_of_one_reader_is_reported_when_its_lease_ends,
    permits_are_reported_with_their_number,
    leased_permits_are_free_when_their_leases_end,
    a_deleted_semaphore_is_reported_as_deleted,
    a_latch_reports_arm_count_down_open_and_delete,
    a_barrier_reports_rounds_and_parties,
    a_double_barrier_reports_entering_and_leaving,
    a_party_whose_lease_ends_is_no_longer_counted,
    names_of_any_bytes_have_separate_events,
}

/// Returns whether the holder belongs to `client`.
fn is_of(holder: &NameHolder, client: &Client) -> bool {
    holder.holder.starts_with(&client.id().to_string())
}

async fn a_lock_reports_its_holder_and_its_release(world: &World) {
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let mut events = lock(&ours).events();
    assert!(now(&mut events).await.holders.is_empty());
    let started = Instant::now();
    let guard = lock(&theirs).acquire().await.unwrap();
    let Event::Taken(holder) = next(&mut events).await else {
        panic!("expected Event::Taken")
    };
    assert!(is_of(&holder, &theirs));
    assert_eq!((holder.mode, holder.count), (HoldMode::Exclusive, 1));
    assert!(holder.remaining > Some(secs(29)));
    let again = guard.reenter().await.unwrap();
    again.release().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(words(&mut events, "free").await, ["released", "free"]);
    assert!(
        started.elapsed() <= world.limit(SOON),
        "by message, not by a poll"
    );
    quiet(&mut events, 3 * POLL).await;
}

async fn a_hand_off_inside_a_process_is_reported(world: &World) {
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let first = lock(&theirs).acquire().await.unwrap();
    let mut events = lock(&ours).events();
    let first_holder = now(&mut events).await.holders.remove(0);
    assert!(is_of(&first_holder, &theirs));
    let second = tokio::spawn(lock(&theirs).acquire());
    world
        .waiting(&theirs, 1, "redisson_lock__channel:{orders}")
        .await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(word(&next(&mut events).await), "released");
    let Event::Taken(holder) = next(&mut events).await else {
        panic!("expected Event::Taken")
    };
    assert!(is_of(&holder, &theirs) && holder.holder != first_holder.holder);
    second.release().await.unwrap();
}

async fn an_expiry_is_reported_when_the_lease_ends(world: &World) {
    let ours = world.client().await;
    let mut events = lock(&ours).events();
    now(&mut events).await;
    // A Redisson holder without renewals.
    drop(world.admin(&["HSET", "orders", JAVA, "1"]));
    drop(world.admin(&["PEXPIRE", "orders", "600"]));
    let started = Instant::now();
    let words = words(&mut events, "free").await;
    assert_eq!(words, ["taken", "expired", "free"]);
    let took = started.elapsed();
    assert!(took >= ms(590), "{took:?}");
    assert!(took <= world.limit(ms(650)), "{took:?}");
}

async fn a_forced_release_is_reported_as_a_release(world: &World) {
    let ours = world.client().await;
    let guard = lock(&ours).acquire().await.unwrap();
    let mut events = lock(&ours).events();
    now(&mut events).await;
    assert!(lock(&ours).danger().force_release().await.unwrap());
    assert_eq!(words(&mut events, "free").await, ["released", "free"]);
    drop(guard);
}

async fn the_first_event_is_the_current_state(world: &World) {
    let ours = world.client().await;
    let mut before = lock(&ours).events();
    now(&mut before).await;
    for _ in 0..20 {
        let guard = lock(&ours).acquire().await.unwrap();
        // The first listener may not have received the change yet. The new listener must see the current state.
        let state = now(&mut lock(&ours).events()).await;
        assert_eq!(state.holders.len(), 1);
        assert!(is_of(&state.holders[0], &ours));
        guard.release().await.unwrap();
        assert!(now(&mut lock(&ours).events()).await.holders.is_empty());
    }
}

async fn a_fair_lock_reports_its_grants(world: &World) {
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let fair = |client| FairLock::new(client, "tickets").unwrap();
    let mut events = fair(&ours).events();
    now(&mut events).await;
    let first = fair(&theirs).acquire().await.unwrap();
    assert_eq!(word(&next(&mut events).await), "taken");
    let second = tokio::spawn(fair(&theirs).acquire());
    let queue = fair(&ours);
    stanchion_testkit::eventually_async("the waiter is queued", async || {
        queue.queue_len().await.unwrap() == 1
    })
    .await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(words(&mut events, "taken").await, ["released", "taken"]);
    second.release().await.unwrap();
    assert_eq!(words(&mut events, "free").await, ["released", "free"]);
}

async fn readers_and_writers_are_reported_with_their_mode(world: &World) {
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let prices = |client| RwLock::new(client, "prices").unwrap();
    let mut events = prices(&ours).events();
    now(&mut events).await;
    let mode = |event: Event| match event {
        Event::Taken(by) => (true, by.mode, by.remaining.is_some()),
        Event::Released(by) => (false, by.mode, by.remaining.is_some()),
        other => panic!("{other:?}"),
    };
    let one = prices(&theirs).read().await.unwrap();
    let alone = (true, HoldMode::Shared, true);
    assert_eq!(mode(next(&mut events).await), alone);
    let two = prices(&theirs).read().await.unwrap();
    assert_eq!(mode(next(&mut events).await), alone);
    one.release().await.unwrap();
    assert!(!mode(next(&mut events).await).0);
    two.release().await.unwrap();
    assert_eq!(words(&mut events, "free").await, ["released", "free"]);
    let writing = prices(&theirs).write().await.unwrap();
    let writer = (true, HoldMode::Exclusive, true);
    assert_eq!(mode(next(&mut events).await), writer);
    let reading = writing.downgrade().await.unwrap();
    let ended = (false, HoldMode::Exclusive, true);
    assert_eq!(mode(next(&mut events).await), ended);
    assert_eq!(mode(next(&mut events).await), alone);
    reading.release().await.unwrap();
}

async fn the_expiry_of_one_reader_is_reported_when_its_lease_ends(world: &World) {
    let ours = world.client().await;
    let prices = RwLock::new(&ours, "prices").unwrap();
    let reading = prices.read().await.unwrap();
    let mut events = prices.events();
    let state = now(&mut events).await;
    assert!(state.holders[0].remaining > Some(secs(25)));
    // A Redisson reader whose lease of 600 ms is not renewed.
    drop(world.admin(&["HSET", "prices", JAVA, "1"]));
    let hold = format!("{{prices}}:{JAVA}:rwlock_timeout:1");
    drop(world.admin(&["SET", &hold, "1", "PX", "600"]));
    let end = "local t = redis.call('TIME') return redis.call('ZADD', KEYS[1], t[1] * 1000 + math.floor(t[2] / 1000) + 600, ARGV[1])";
    let readers = "stanchion_rwlock_readers:{prices}";
    drop(world.admin(&["EVAL", end, "1", readers, JAVA]));
    let started = Instant::now();
    let mut seen = Vec::new();
    while seen.last().is_none_or(|word| word != "expired") {
        seen.push(word(&next(&mut events).await));
    }
    assert_eq!(seen, ["taken", "expired"]);
    assert!(started.elapsed() <= world.limit(ms(650)));
    reading.release().await.unwrap();
    assert_eq!(words(&mut events, "free").await, ["released", "free"]);
}

async fn permits_are_reported_with_their_number(world: &World) {
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let licences = |client| Semaphore::new(client, "licences").unwrap();
    let mut events = licences(&ours).events();
    assert_eq!(now(&mut events).await.available, None);
    licences(&ours).init(3).await.unwrap();
    assert_eq!(next(&mut events).await, Event::Available(3));
    let two = licences(&theirs).acquire_many(2).await.unwrap();
    let Event::Taken(holder) = next(&mut events).await else {
        panic!("expected Event::Taken")
    };
    assert_eq!((holder.mode, holder.count), (HoldMode::Permits, 2));
    assert_eq!(next(&mut events).await, Event::Available(1));
    two.release().await.unwrap();
    assert_eq!(words(&mut events, "3 free").await, ["released", "3 free"]);
    // Redisson acquires a permit with DECRBY.
    drop(world.admin(&["DECRBY", "licences", "1"]));
    assert_eq!(next(&mut events).await, Event::Available(2));
}

async fn leased_permits_are_free_when_their_leases_end(world: &World) {
    let ours = world.client().await;
    let licences = LeasedSemaphore::new(&ours, "licences").unwrap();
    licences.init(2).await.unwrap();
    let mut events = licences.events();
    assert_eq!(now(&mut events).await.available, Some(2));
    let permit = licences.acquire().await.unwrap();
    let Event::Taken(holder) = next(&mut events).await else {
        panic!("expected Event::Taken")
    };
    assert_eq!(holder.holder, permit.ids()[0].to_string());
    assert_eq!(next(&mut events).await, Event::Available(1));
    // An expired permit stays in the sorted set until a request removes it.
    let key = "{licences}:timeout";
    let time = "local time = redis.call('TIME') return time[1] * 1000";
    let time: u64 = world.admin(&["EVAL", time, "0"]).parse().unwrap();
    drop(permit);
    assert_eq!(words(&mut events, "2 free").await, ["released", "2 free"]);
    let id = "0123456789abcdef";
    let ends = (time + 1500).to_string();
    drop(world.admin(&["DECRBY", "licences", "1"]));
    drop(world.admin(&["ZADD", key, &ends, id]));
    let seen = words(&mut events, "2 free").await;
    assert_eq!(
        seen.last_chunk(),
        Some(&["expired".into(), "2 free".into()]),
        "{seen:?}"
    );
}

async fn a_deleted_semaphore_is_reported_as_deleted(world: &World) {
    let ours = world.client().await;
    let licences = Semaphore::new(&ours, "licences").unwrap();
    licences.init(2).await.unwrap();
    let mut events = licences.events();
    now(&mut events).await;
    drop(world.admin(&["DEL", "licences"]));
    assert_eq!(next(&mut events).await, Event::Deleted);
}

async fn a_latch_reports_arm_count_down_open_and_delete(world: &World) {
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let latch = |client| CountDownLatch::new(client, "import").unwrap();
    let mut events = latch(&ours).events();
    assert_eq!(now(&mut events).await.count, Some(0));
    latch(&theirs).arm(2).await.unwrap();
    assert_eq!(next(&mut events).await, Event::Armed(2));
    latch(&theirs).count_down().await.unwrap();
    assert_eq!(next(&mut events).await, Event::Counted(1));
    latch(&theirs).count_down().await.unwrap();
    assert_eq!(next(&mut events).await, Event::Opened);
    latch(&theirs).arm(7).await.unwrap();
    assert_eq!(next(&mut events).await, Event::Armed(7));
    latch(&theirs).danger().delete().await.unwrap();
    assert_eq!(next(&mut events).await, Event::Deleted);
    latch(&theirs).arm(1).await.unwrap();
    assert_eq!(next(&mut events).await, Event::Armed(1));
    latch(&theirs).count_down().await.unwrap();
    assert_eq!(next(&mut events).await, Event::Opened);
}

async fn a_barrier_reports_rounds_and_parties(world: &World) {
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let barrier = |client| CyclicBarrier::new(client, "checkpoint", 2).unwrap();
    let mut events = barrier(&ours).events();
    assert_eq!(now(&mut events).await.round, None);
    let waits = barrier(&theirs);
    let waiting = tokio::spawn(async move { waits.wait().await });
    let Event::Round(round) = next(&mut events).await else {
        panic!("a round begins with its first party")
    };
    assert_eq!(next(&mut events).await, Event::Parties(1));
    let passed = barrier(&theirs).wait().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(passed.generation(), round);
    assert_eq!(next(&mut events).await, Event::Round(round + 1));
    assert_eq!(next(&mut events).await, Event::Parties(0));
    quiet(&mut events, 3 * POLL).await;
}

async fn a_double_barrier_reports_entering_and_leaving(world: &World) {
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let barrier = |client| DoubleBarrier::new(client, "phase", 1).unwrap();
    let mut events = barrier(&ours).events();
    assert_eq!(now(&mut events).await.round, None);
    let inside = barrier(&theirs).enter().await.unwrap();
    let round = inside.generation();
    assert_eq!(next(&mut events).await, Event::Round(round));
    assert_eq!(next(&mut events).await, Event::Parties(1));
    inside.leave().await.unwrap();
    assert_eq!(next(&mut events).await, Event::Round(round + 1));
    assert_eq!(next(&mut events).await, Event::Parties(0));
}

async fn a_party_whose_lease_ends_is_no_longer_counted(world: &World) {
    let ours = world.named("ours").await;
    let barrier = CyclicBarrier::new(&ours, "checkpoint", 2).unwrap();
    // A party of another process that was killed: its place is neither renewed nor removed.
    let dies = "local time = redis.call('TIME')
        redis.call('HSET', KEYS[1], 'n', 2, 'gen', 7)
        redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000) + 600, 'dead')
        return 'OK'";
    let keys = [
        "stanchion_barrier:{checkpoint}",
        "stanchion_barrier_in:{checkpoint}",
    ];
    drop(world.admin(&["EVAL", dies, "2", keys[0], keys[1]]));
    let started = Instant::now();
    let mut events = barrier.events();
    let state = now(&mut events).await;
    assert_eq!((state.round, state.parties), (Some(7), Some(1)));
    assert_eq!(next(&mut events).await, Event::Parties(0));
    assert!(started.elapsed() < secs(2), "no poll was needed");
}

async fn names_of_any_bytes_have_separate_events(world: &World) {
    let ours = world.client().await;
    let names: [&[u8]; 6] = [b"x", b"{x}", b"x\n", b"\xff\x00", b"{", b"x y"];
    let locks = names.map(|name| stanchion::Lock::new(&ours, name).unwrap());
    let mut all: Vec<_> = locks.iter().map(stanchion::Lock::events).collect();
    for events in &mut all {
        now(events).await;
    }
    for (lock, events) in locks.iter().zip(&mut all) {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(word(&next(events).await), "taken");
        guard.release().await.unwrap();
        assert_eq!(words(events, "free").await, ["released", "free"]);
    }
    for events in &mut all {
        quiet(events, ms(100)).await;
    }
}
