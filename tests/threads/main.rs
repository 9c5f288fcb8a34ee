//! Stress test of the public API on real threads: several runtimes, plain threads, runtimes that end, clients that are shut down,
//! calls that are dropped at any poll or moved to another runtime. Virtual time never interleaves threads; this test does.
//!
//! The test checks exclusion (P1), tokens (P2), leftovers (P3), waiters that sleep for 300 ms although they could be served (P4),
//! errors that no fault explains (P8), and panics. See [`judge`] for the effect of a loaded machine.
//!
//! `STANCHION_STRESS_SECONDS` is the length of a run, 6 without it. `STANCHION_SEED` makes the workers draw the same operations
//! again; their order is the machine's.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test fails by panicking; this one is about real time and threads that block, and reports figures"
)]

mod gatherings;
mod judge;
mod quorum;
mod things;
mod work;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stanchion::embedded::Engine;
use stanchion::rwlock::Preference;
use stanchion::{Client, ClientConfig, LeasedSemaphore, Semaphore};
use stanchion_testkit::RedisServer;
use tokio::runtime::{Builder, Runtime};

use crate::gatherings::Gatherings;
use crate::judge::Judge;
use crate::quorum::Quorum;
use crate::things::{Member, PERMITS, Thing, What};
use crate::work::{Rounds, World, operate, work};

const THINGS: [What; 9] = [
    What::Lock,
    What::Fair,
    What::Rw(Preference::Redisson),
    What::Rw(Preference::Writer),
    What::Plain,
    What::Leased,
    What::Multi,
    What::Office,
    What::Job,
];

/// The number of workers of each thing. The last one runs on its own thread.
const WORKERS: usize = 5;

fn several(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap()
}

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is not a number")),
    )
}

/// The server under test.
enum Server {
    Engine(Engine),
    Real(Box<RedisServer>),
}

impl Server {
    /// Starts another server of the same kind.
    fn another(&self) -> Self {
        match self {
            Self::Engine(_) => Self::Engine(Engine::new()),
            Self::Real(_) => Self::Real(Box::new(RedisServer::start())),
        }
    }

    fn config(&self) -> ClientConfig {
        match self {
            Self::Engine(engine) => ClientConfig::embedded(engine),
            Self::Real(server) => ClientConfig::new(server.url()),
        }
    }

    /// The keys without a TTL.
    fn endless_keys(&self) -> Vec<String> {
        let keys = match self {
            Self::Engine(engine) => engine
                .keys()
                .iter()
                .map(|it| String::from_utf8_lossy(it).into_owned())
                .collect(),
            Self::Real(server) => server.keys(),
        };
        let endless = |key: &String| match self {
            Self::Engine(engine) => format!("{:?}", engine.execute(&["PTTL", key])).contains("-1"),
            Self::Real(server) => server.cli(&["PTTL", key]).as_int() == -1,
        };
        keys.into_iter().filter(endless).collect()
    }
}

/// Pings the server on its own connection, outside the library. The replies show that the server runs.
fn ping(server: &Server, world: &Arc<World>) -> thread::JoinHandle<()> {
    let (world, beats) = (Arc::clone(world), world.judge.heart());
    let mut ping: Box<dyn FnMut() + Send> = match server {
        Server::Engine(engine) => {
            let engine = engine.clone();
            Box::new(move || drop(engine.execute(&["PING"])))
        }
        Server::Real(server) => {
            let mut stream = TcpStream::connect(server.addr()).unwrap();
            Box::new(move || {
                stream.write_all(b"PING\r\n").unwrap();
                stream.read_exact(&mut [0; 7]).unwrap();
            })
        }
    };
    thread::spawn(move || {
        while !world.stopped() {
            ping();
            beats.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(3));
        }
    })
}

/// Starts a client on a runtime that is idle most of the time, as in a program that uses `block_on`.
fn rest(
    world: &Arc<World>,
    config: ClientConfig,
    things: &[Arc<Thing>],
    mut random: Rng,
) -> (Arc<Member>, thread::JoinHandle<()>) {
    let runtime = single();
    let client = runtime.block_on(Client::connect_with(config)).unwrap();
    let member = Member::new(client, false);
    let (world, things, own) = (Arc::clone(world), things.to_vec(), Arc::clone(&member));
    let thread = thread::spawn(move || {
        while !world.stopped() {
            thread::sleep(Duration::from_millis(random.u64(0..500)));
            let thing = &things[random.usize(0..things.len())];
            let call = thing.call(&world.judge, &own, &mut random);
            let held = runtime.block_on(call);
            if let Some(held) = held {
                runtime.block_on(held.release());
            }
        }
    });
    (member, thread)
}

/// Starts a thread whose runtimes end while their tasks wait and hold.
fn visit(world: &Arc<World>, things: &[Arc<Thing>], mut random: Rng) -> thread::JoinHandle<()> {
    let (world, things) = (Arc::clone(world), things.to_vec());
    thread::spawn(move || {
        while !world.stopped() {
            let runtime = if random.bool() { several(2) } else { single() };
            for _ in 0..4 {
                let (world, mut random) = (Arc::clone(&world), random.fork());
                let thing = Arc::clone(&things[random.usize(0..things.len())]);
                runtime.spawn(async move {
                    loop {
                        operate(&world, &thing, &mut random).await;
                        tokio::time::sleep(Duration::from_millis(random.u64(0..20))).await;
                    }
                });
            }
            let time = Duration::from_millis(random.u64(20..120));
            runtime.block_on(async { tokio::time::sleep(time).await });
            if random.bool() {
                runtime.shutdown_background();
            } else {
                drop(runtime);
            }
            thread::sleep(Duration::from_millis(random.u64(0..200)));
        }
    })
}

/// Replaces the last member again and again, and shuts the old one down while tasks use it.
async fn replace(world: &Arc<World>, config: ClientConfig) {
    let place = world.members.last().expect("there are members");
    while !world.stopped() {
        tokio::time::sleep(Duration::from_millis(900)).await;
        let next = Member::new(Client::connect_with(config.clone()).await.unwrap(), true);
        let old = std::mem::replace(&mut *place.lock().unwrap(), next);
        old.closing.store(true, Ordering::SeqCst);
        old.client.shutdown(Duration::from_secs(2)).await;
    }
}

fn panics() -> &'static Mutex<Vec<String>> {
    static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.lock().unwrap().push(info.to_string());
            before(info);
        }));
    });
    &PANICS
}

/// Permits one run at a time, because a run measures waits and needs the whole machine.
static ONE: Mutex<()> = Mutex::new(());

fn stress(server: &Server) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = panics().lock().unwrap().len();
    let seconds = setting("STANCHION_STRESS_SECONDS").unwrap_or(6);
    let seed = setting("STANCHION_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut random = Rng::with_seed(seed);
    let judge = Judge::new();
    let (a, b) = (several(2), several(1));
    let hearts = [&a, &b].map(|it| {
        let _inside = it.enter();
        judge.watch_runtime()
    });
    let connect = |runtime: &Runtime| {
        runtime
            .block_on(Client::connect_with(server.config()))
            .unwrap()
    };
    let mortal = single();
    let orphaned = connect(&mortal);
    drop(mortal);
    let (dropper, dropped) = mpsc::channel::<things::Held>();
    let member = |client, short| Mutex::new(Member::new(client, short));
    let world = Arc::new(World {
        judge: Arc::clone(&judge),
        members: vec![
            member(connect(&a), false),
            member(connect(&b), false),
            member(connect(&a), false), // replaced by the client of the idle runtime
            member(orphaned, false),
            member(connect(&a), true), // shut down in use and replaced
        ],
        elsewhere: vec![a.handle().clone(), b.handle().clone()],
        dropper,
        stop: AtomicBool::new(false),
        operations: AtomicU64::new(0),
    });
    let things: Vec<Arc<Thing>> = THINGS
        .iter()
        .map(|what| Arc::new(Thing::new(&judge, *what)))
        .collect();
    let first = connect(&a);
    for thing in &things {
        a.block_on(thing.prepare(&first));
    }
    let both = [&a, &b];
    let others = (0..3).map(|_| server.another()).collect();
    let mut quorum = Quorum::of(&judge, others, both);
    let (resting, rester) = rest(&world, server.config(), &things, random.fork());
    *world.members[2].lock().unwrap() = resting;
    let drops = thread::spawn(move || {
        while let Ok(held) = dropped.recv() {
            held.drop_guard();
        }
    });
    let monitor = judge.monitor();
    let started = Instant::now();
    let mut threads = vec![
        rester,
        ping(server, &world),
        visit(&world, &things, random.fork()),
    ];
    let mut tasks = Vec::new();
    for thing in &things {
        let rounds = Rounds::of(WORKERS);
        for worker in 0..WORKERS {
            let (world, thing, rounds) =
                (Arc::clone(&world), Arc::clone(thing), Arc::clone(&rounds));
            let work = work(world, thing, rounds, random.fork());
            match worker {
                0 | 1 => tasks.push(a.spawn(work)),
                2 | 3 => tasks.push(b.spawn(work)),
                _ => threads.push(thread::spawn(move || single().block_on(work))),
            }
        }
    }
    let gatherings = {
        let _inside = a.enter();
        Gatherings::start(&world, &mut random)
    };
    quorum.start(&world, both, &mut random);
    let replacing = {
        let (world, config) = (Arc::clone(&world), server.config());
        a.spawn(async move { replace(&world, config).await })
    };

    thread::sleep(Duration::from_secs(seconds));
    let ends = judge.must_end(seed);
    world.stop.store(true, Ordering::SeqCst);
    a.block_on(async {
        gatherings.join(&world).await;
        quorum.join().await;
        for task in tasks {
            task.await.unwrap();
        }
        replacing.await.unwrap();
    });
    for thread in threads {
        thread.join().unwrap();
    }
    let took = started.elapsed();
    judge.end();
    drop(ends);
    monitor.join().unwrap();
    for heart in hearts {
        heart.abort();
    }
    let operations = world.operations.load(Ordering::Relaxed);
    let entries = judge.entries.load(Ordering::Relaxed);
    println!(
        "seed {seed}: {operations} operations in {took:?}, {:.0} a second, {entries} grants; {} checks, {} skipped\n{}",
        operations as f64 / took.as_secs_f64(),
        judge.checks.load(Ordering::Relaxed),
        judge.skipped.load(Ordering::Relaxed),
        judge.table(),
    );

    // P3: clients shut down cleanly, all things are free, and no unknown key lacks a TTL.
    let members: Vec<_> = world
        .members
        .iter()
        .map(|it| Arc::clone(&it.lock().unwrap()))
        .collect();
    drop(world);
    drops.join().unwrap();
    a.block_on(async {
        for member in members {
            let report = member.client.shutdown(Duration::from_secs(5)).await;
            if !report.is_clean() {
                judge.found(format!("P3: a client left {report:?}"));
            }
        }
        leftovers(&judge, &first, &things).await;
        quorum.leave(&judge).await;
        first.shutdown(Duration::from_secs(5)).await;
    });
    // Semaphores, the settings of the limiter, and the token counter of each slot have no TTL by design.
    let lasting = ["plain", "leased", "rate", "stanchion_fence:"];
    let endless = server.endless_keys();
    let unknown: Vec<_> = endless
        .iter()
        .filter(|key| !lasting.iter().any(|it| key.contains(it)))
        .collect();
    if !unknown.is_empty() {
        judge.found(format!("P3: keys without a TTL: {unknown:?}"));
    }
    let panics = panics().lock().unwrap()[before..].to_vec();
    let findings = judge.findings();
    assert!(
        findings.is_empty() && panics.is_empty(),
        "seed {seed}:\n{}\n{}",
        findings.join("\n\n"),
        panics.join("\n"),
    );
    assert!(entries > 100, "seed {seed}: only {entries} grants");
}

/// P3: every thing is free again. A client that was shut down may have left holds until the end of a short lease.
async fn leftovers(judge: &Arc<Judge>, client: &Client, things: &[Arc<Thing>]) {
    let until = Instant::now() + things::SHORT * 3;
    for thing in things {
        let name = thing.place.name.as_str();
        loop {
            let free = match thing.what {
                What::Plain => {
                    let semaphore = Semaphore::new(client, name).unwrap();
                    semaphore.available().await.unwrap() == i64::from(PERMITS)
                }
                What::Leased => {
                    let semaphore = LeasedSemaphore::new(client, name).unwrap();
                    semaphore.available().await.unwrap() == i64::from(PERMITS)
                }
                _ => {
                    let member = Member::new(client.clone(), false);
                    match thing.try_exclusively(judge, &member).await {
                        Some(held) => {
                            held.release().await;
                            true
                        }
                        None => false,
                    }
                }
            };
            if free {
                break;
            }
            if Instant::now() > until {
                judge.found(format!(
                    "P3: {name} is not free although no caller holds it"
                ));
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[test]
fn threads_keep_the_promises_on_the_engine() {
    stress(&Server::Engine(Engine::new()));
}

#[test]
fn threads_keep_the_promises_on_a_server() {
    let Some(server) = RedisServer::or_skip("threads::threads_keep_the_promises_on_a_server")
    else {
        return;
    };
    stress(&Server::Real(Box::new(server)));
}
