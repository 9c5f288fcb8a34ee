//! Tests of surveys: of a client's own process, and of other clients by the records that they keep on the server.

use std::time::Duration;

use stanchion::client::Presence;
use stanchion::survey::SurveyedClient;
use stanchion::{
    AcquireOptions, Client, ClientConfig, FairLock, LeasedSemaphore, Lock, Lockable, MultiLock,
    Renewal, RwLock, Semaphore,
};
use stanchion_testkit::eventually;
use stanchion_tests::{World, is_record, lease, ms, secs};
use tokio::time::{Instant, sleep};

async fn with(world: &World, change: impl FnOnce(ClientConfig) -> ClientConfig) -> Client {
    let config = change(world.config("orders-api"));
    Client::connect_with(config).await.unwrap()
}

/// The keys of the records and of the list of clients.
fn records(world: &World) -> Vec<String> {
    let keys = world.as_engine().keys();
    let mut keys: Vec<String> = keys
        .into_iter()
        .map(|key| String::from_utf8_lossy(&key).into_owned())
        .filter(|key| is_record(key))
        .collect();
    keys.sort();
    keys
}

/// The numbers of full writes of a record, of extensions of its TTL, and of changes of the list.
fn writes(world: &World) -> [u64; 3] {
    let stats = world.as_engine().stats();
    ["SET", "PEXPIRE", "ZADD"].map(|command| stats.count(command))
}

/// Record of `client` as others see it.
async fn seen(observer: &Client, client: &Client) -> Option<SurveyedClient> {
    let survey = observer.survey().await.unwrap();
    survey
        .clients
        .into_iter()
        .find(|it| it.client == client.id())
}

fn lock(client: &Client, name: impl AsRef<[u8]>) -> Lock {
    Lock::new(client, name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_and_one_with_short_holds_write_nothing() {
    let (world, [idle, busy]) = World::engine().with_clients().await;
    let until = Instant::now() + secs(60);
    while Instant::now() < until {
        let held = lock(&busy, "job").acquire().await.unwrap();
        sleep(ms(800)).await;
        // Waits for less than a second each time.
        let waits = tokio::spawn(lock(&idle, "job").acquire());
        sleep(ms(800)).await;
        held.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(writes(&world), [0; 3]);
    assert_eq!(records(&world), [] as [String; 0]);
}

/// The list of clients was deleted or has expired. The next write creates it with a TTL.
#[tokio::test(start_paused = true)]
async fn a_list_of_clients_that_is_created_again_has_a_ttl() {
    let (world, client) = World::engine().with_client().await;
    let _held = lock(&client, "job").acquire().await.unwrap();
    let is_there = || world.admin(&["EXISTS", "stanchion_clients"]) == "1";
    eventually("it is listed", is_there).await;
    // Wait until the first beat has ended.
    sleep(secs(1)).await;
    assert_eq!(world.admin(&["DEL", "stanchion_clients"]), "1");
    eventually("it is listed again", is_there).await;
    world.quiet().await;
    assert_ne!(world.admin(&["PTTL", "stanchion_clients"]), "-1");
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_listed_within_eleven_seconds_and_removed_within_six() {
    let world = World::engine();
    let (a, b) = (with(&world, |it| it).await, world.client().await);
    let held = lock(&a, "orders").acquire().await.unwrap();
    sleep(ms(10_600)).await;
    let seen_a = seen(&b, &a).await.unwrap();
    assert_eq!(
        (seen_a.app.as_str(), seen_a.pid),
        ("orders-api", std::process::id())
    );
    let [hold] = &seen_a.holds[..] else {
        panic!("{seen_a:?}");
    };
    assert_eq!(hold.name.as_bytes(), b"orders");
    assert_eq!((hold.kind.as_str(), hold.count), ("lock", 1));
    assert_eq!(hold.token, held.fencing_token());
    let status = lock(&b, "orders").status().await.unwrap();
    assert_eq!(status.holder.unwrap().owner, hold.owner);
    let held_for = hold.held;
    assert!((secs(10)..secs(11)).contains(&held_for), "{held_for:?}");
    assert_eq!((hold.ends_in, hold.waiters), (None, 0));
    held.release().await.unwrap();
    sleep(ms(5_600)).await;
    assert_eq!(seen(&b, &a).await, None);
    assert_eq!(records(&world), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_first_long_wait_is_listed_at_once_and_later_ones_with_the_next_beat() {
    let (_world, [a, b]) = World::engine().with_clients().await;
    let _held = [
        lock(&a, "one").acquire().await.unwrap(),
        lock(&a, "two").acquire().await.unwrap(),
    ];
    sleep(secs(12)).await;
    let waiting = tokio::spawn(lock(&b, "one").acquire());
    sleep(ms(950)).await;
    assert_eq!(seen(&a, &b).await, None);
    sleep(ms(350)).await;
    let seen_b = seen(&a, &b).await.unwrap();
    let [wait] = &seen_b.waits[..] else {
        panic!("{seen_b:?}");
    };
    assert_eq!(
        (wait.name.to_string(), wait.kind.as_str()),
        ("one".into(), "lock")
    );
    assert_eq!((wait.wanted, wait.gives_up_in), (1, None));
    assert!((ms(1200)..ms(1400)).contains(&wait.waiting), "{wait:?}");
    let later = tokio::spawn(lock(&b, "two").acquire_timeout(secs(60)));
    sleep(secs(11)).await;
    let seen_b = seen(&a, &b).await.unwrap();
    assert_eq!(seen_b.waits.len(), 2);
    let left = seen_b.waits[1].gives_up_in.unwrap();
    assert!((secs(48)..secs(50)).contains(&left), "{left:?}");
    waiting.abort();
    later.abort();
    sleep(secs(11)).await;
    assert_eq!(seen(&a, &b).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_dead_process_is_not_listed_after_thirty_seconds_and_readers_clean_the_list() {
    let world = World::engine();
    let (a, b) = (world.named("dying").await, world.client().await);
    let _held = lock(&a, "orders").acquire().await.unwrap();
    sleep(secs(12)).await;
    assert!(seen(&b, &a).await.is_some());
    let faults = world.faults();
    faults.freeze(Some("dying"));
    faults.kill_label("dying");
    sleep(secs(31)).await;
    assert_eq!(seen(&b, &a).await, None);
    assert_eq!(records(&world), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_deletes_the_record_unless_it_has_no_time() {
    let world = World::engine();
    for grace in [secs(1), Duration::ZERO] {
        let client = world.client().await;
        let held = lock(&client, "orders").acquire().await.unwrap();
        sleep(secs(12)).await;
        assert_eq!(records(&world).len(), 2);
        held.release().await.unwrap();
        client.shutdown(grace).await;
        assert_eq!(records(&world).is_empty(), !grace.is_zero());
    }
    sleep(secs(31)).await;
    // The list stays until a client reads or writes it.
    assert_eq!(records(&world), ["stanchion_clients"]);
    let next = world.client().await;
    assert!(next.survey().await.unwrap().clients.is_empty());
    assert_eq!(records(&world), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn writers_remove_dead_clients_from_the_list() {
    let world = World::engine();
    for _ in 0..3 {
        let dead = world.client().await;
        let held = lock(&dead, "orders").acquire().await.unwrap();
        sleep(secs(12)).await;
        held.release().await.unwrap();
        dead.shutdown(Duration::ZERO).await;
    }
    sleep(secs(31)).await;
    let client = world.client().await;
    let _held = lock(&client, "orders").acquire().await.unwrap();
    sleep(secs(12)).await;
    let list = world.as_engine().execute(&["ZCARD", "stanchion_clients"]);
    assert_eq!(list, stanchion::embedded::Reply::Int(1));
}

#[tokio::test(start_paused = true)]
async fn with_presence_off_no_record_is_ever_written() {
    let world = World::engine();
    let client = with(&world, |it| it.presence(Presence::Off)).await;
    let other = with(&world, |it| it.presence(Presence::Off)).await;
    let _held = lock(&client, "orders").acquire().await.unwrap();
    let _waits = tokio::spawn(lock(&other, "orders").acquire());
    sleep(secs(60)).await;
    assert_eq!(writes(&world), [0; 3]);
    // The client still sees its own holds.
    assert_eq!(client.local_survey().holds.len(), 1);
    assert_eq!(client.survey().await.unwrap().clients.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_without_names_shows_digits_instead() {
    let world = World::engine();
    let client = with(&world, |it| it.presence(Presence::WithoutNames)).await;
    let _held = lock(&client, "a-secret-name").acquire().await.unwrap();
    sleep(secs(12)).await;
    let key = format!("stanchion_client:{{{}}}", client.id());
    let text = world.admin(&["GET", &key]);
    assert!(!text.contains("secret"), "{text}");
    let seen = seen(&world.client().await, &client).await.unwrap();
    assert!(seen.holds[0].name.to_string().starts_with('#'));
}

#[tokio::test(start_paused = true)]
async fn names_of_any_bytes_are_listed_unchanged_with_their_prefix() {
    let world = World::engine();
    let (a, b) = (
        with(&world, |it| it.key_prefix("app:")).await,
        with(&world, |it| it.key_prefix("app:")).await,
    );
    let stranger = world.client().await;
    let names: [&[u8]; 5] = [
        b"a b\n\"c\"",
        b"{tag}x",
        b"\xff\xfe\x00",
        b"}{",
        "ä".as_bytes(),
    ];
    let mut held = Vec::new();
    for name in names {
        held.push(lock(&a, name).acquire().await.unwrap());
    }
    sleep(secs(12)).await;
    let seen_a = seen(&b, &a).await.unwrap();
    let listed: Vec<&[u8]> = seen_a.holds.iter().map(|it| it.name.as_bytes()).collect();
    let full: Vec<Vec<u8>> = names.iter().map(|name| [b"app:", *name].concat()).collect();
    assert_eq!(listed, full.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(
        records(&world),
        [
            format!("app:stanchion_client:{{{}}}", a.id()),
            "app:stanchion_clients".to_owned()
        ]
    );
    // A client with another prefix does not see the record.
    assert_eq!(seen(&stranger, &a).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_record_is_limited_to_64_kib_and_counts_the_rest() {
    let (world, [a, b]) = World::engine().with_clients().await;
    let mut held = Vec::new();
    for n in 0..10_000 {
        held.push(lock(&a, format!("job-{n}")).acquire().await.unwrap());
    }
    sleep(secs(12)).await;
    let key = format!("stanchion_client:{{{}}}", a.id());
    let length: usize = world.admin(&["STRLEN", &key]).parse().unwrap();
    assert!((20_000..=65_536).contains(&length), "{length}");
    let seen_a = seen(&b, &a).await.unwrap();
    assert_eq!(seen_a.holds.len() + seen_a.more_holds, 10_000);
    assert_eq!(seen_a.holds[0].name.as_bytes(), b"job-0");
    assert_eq!(a.local_survey().holds.len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_record_only_gets_a_longer_ttl() {
    let (world, client) = World::engine().with_client().await;
    let _held = lock(&client, "orders").acquire().await.unwrap();
    sleep(secs(11)).await;
    // The first write also extended the TTL of the list.
    let [set, lengthened, listed] = writes(&world);
    assert_eq!((set, lengthened, listed), (1, 1, 1));
    sleep(secs(100)).await;
    let after = writes(&world);
    assert!((9..=11).contains(&(after[2] - listed)), "{after:?}");
    // The clocks of the engine and the client agree to a microsecond, so rounding may change the record once.
    assert!(after[0] - set <= 1, "{after:?}");
    // A deleted record is written again.
    let key = format!("stanchion_client:{{{}}}", client.id());
    let _ = world.admin(&["DEL", &key]);
    sleep(secs(11)).await;
    assert_eq!(world.admin(&["EXISTS", &key]), "1");
}

#[tokio::test(start_paused = true)]
async fn failed_writes_of_records_do_not_affect_holds() {
    let (world, client) = World::engine().with_client().await;
    let held = lock(&client, "orders").acquire().await.unwrap();
    let faults = world.faults();
    faults.fail_next("SET", "NOPERM this user has no permissions", 1);
    sleep(secs(60)).await;
    // The client does not retry before its connections have changed.
    assert_eq!(writes(&world)[0], 0);
    faults.kill_connections();
    sleep(secs(12)).await;
    assert_eq!(records(&world).len(), 2);
    faults.out_of_memory(stanchion::embedded::Switch::On);
    faults.lose_replies_silently("ZADD", 3);
    sleep(secs(60)).await;
    faults.clear();
    sleep(secs(12)).await;
    assert!(held.is_held());
    assert_eq!(records(&world).len(), 2);
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_local_survey_sends_no_command() {
    let (world, [a, b]) = World::engine().with_clients().await;
    let locks = [lock(&a, "x"), lock(&a, "y")];
    let both = MultiLock::new(locks.iter().map(|it| it as &dyn Lockable)).unwrap();
    let _both = both.acquire().await.unwrap();
    let semaphore = Semaphore::new(&a, "sem").unwrap();
    semaphore.init(3).await.unwrap();
    let _permits = semaphore.acquire_many(2).await.unwrap();
    let leased = LeasedSemaphore::new(&a, "leased").unwrap();
    leased.init(3).await.unwrap();
    let _leased = leased.acquire_many(3).await.unwrap();
    let rwlock = RwLock::new(&a, "rw").unwrap();
    let reading = rwlock.read().await.unwrap();
    let _again = reading.reenter().await.unwrap();
    let manual = AcquireOptions::new()
        .renewal(Renewal::Manual)
        .lease(lease(secs(60)));
    let _manual = lock(&a, "manual").acquire_with(manual).await.unwrap();
    let fair = FairLock::new(&b, "fair").unwrap();
    let _fair = fair.acquire().await.unwrap();
    let _waits = tokio::spawn(FairLock::new(&a, "fair").unwrap().acquire());
    let _writes = tokio::spawn(RwLock::new(&a, "rw").unwrap().write_timeout(secs(9)));
    sleep(secs(3)).await;
    eventually("two wait", || a.waiters() == 2).await;
    let sent = world.as_engine().stats().commands;
    let seen = a.local_survey();
    assert_eq!(world.as_engine().stats().commands, sent);
    let mut held: Vec<(String, &str, u32)> = (seen.holds.iter())
        .map(|it| (it.name.to_string(), it.kind.as_str(), it.count))
        .collect();
    held.sort();
    let wanted = [
        ("leased", "leased_semaphore", 3),
        ("manual", "lock", 1),
        ("rw", "rwlock_read", 2),
        ("sem", "semaphore", 2),
        ("x", "multilock", 1),
        ("y", "multilock", 1),
    ];
    assert_eq!(
        held,
        wanted.map(|(name, kind, count)| (name.to_owned(), kind, count))
    );
    let of = |name: &str| {
        let mut holds = seen.holds.iter();
        holds
            .find(|it| it.name.as_bytes() == name.as_bytes())
            .unwrap()
    };
    assert_eq!(of("sem").lease_left, None);
    assert!(of("manual").ends_in.unwrap() > secs(50));
    assert_eq!((of("x").ends_in, of("x").waiters), (None, 0));
    assert!(of("x").lease_left.unwrap() > secs(15));
    assert_eq!(
        (of("rw").waiters, of("rw").longest_wait),
        (1, Some(secs(3)))
    );
    let waits: Vec<(String, &str)> = (seen.waits.iter())
        .map(|it| (it.name.to_string(), it.kind.as_str()))
        .collect();
    assert_eq!(
        waits,
        [("fair".into(), "fair lock"), ("rw".into(), "rwlock_write")]
    );
    assert_eq!(seen.waits[1].gives_up_in, Some(secs(6)));
    let json = serde_json::to_value(&seen).unwrap();
    assert_eq!(json["holds"][0]["name"], "x");
    assert_eq!(json["waits"][1]["gives_up_in_ms"], 6000);
}

#[tokio::test(start_paused = true)]
#[expect(
    clippy::print_stdout,
    reason = "the figures of docs/running/monitoring.md"
)]
async fn a_client_with_holds_sends_two_commands_in_ten_seconds() {
    let (world, clients) = World::engine().with_fleet(100).await;
    let mut held = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        for m in 0..10 {
            held.push(
                lock(client, format!("job-{n}-{m}"))
                    .acquire()
                    .await
                    .unwrap(),
            );
        }
    }
    sleep(secs(20)).await;
    let (before, started) = (writes(&world), Instant::now());
    sleep(secs(100)).await;
    let after = writes(&world);
    let sent: u64 = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .sum();
    let in_ten_seconds = sent as f64 / 100.0 / (started.elapsed().as_secs_f64() / 10.0);
    let key = format!("stanchion_client:{{{}}}", clients[0].id());
    println!(
        "{in_ten_seconds:.2} commands a client in 10 s, {after:?} since {before:?}; a record of 10 holds: {} bytes",
        world.admin(&["STRLEN", &key])
    );
    assert!((1.8..=2.2).contains(&in_ten_seconds), "{in_ten_seconds}");
    drop(held);
}
