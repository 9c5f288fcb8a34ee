//! Fleets of processes that acquire, hold, release and pause in a loop, for every kind of hold: the cost of a grant, turns of all processes and of
//! clients that poll, and silent processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stanchion::Client;
use stanchion_testkit::eventually;
use stanchion_tests::kinds::{Case, Kind, Target, kinds, served};
use stanchion_tests::{World, assert_within, ms, secs};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The grants of each process, the sum of their waits, and the longest one.
#[derive(Debug, Default)]
struct Tally {
    grants: Vec<u32>,
    waited: Duration,
    longest: Duration,
}

fn work(targets: Vec<Target>) -> (JoinSet<()>, Arc<Mutex<Tally>>) {
    let (mut tasks, tally) = (JoinSet::new(), Arc::new(Mutex::new(Tally::default())));
    tally.lock().unwrap().grants = vec![0; targets.len()];
    for (n, target) in targets.into_iter().enumerate() {
        let tally = Arc::clone(&tally);
        tasks.spawn(async move {
            loop {
                let began = Instant::now();
                let held = target.acquire().await.unwrap();
                {
                    let waited = began.elapsed();
                    let mut tally = tally.lock().unwrap();
                    tally.grants[n] += 1;
                    tally.waited += waited;
                    tally.longest = tally.longest.max(waited);
                }
                sleep(ms(2)).await;
                held.release().await.unwrap();
                sleep(ms(2)).await;
            }
        });
    }
    (tasks, tally)
}

/// Lets processes work for `length` to warm up. Asserts that each gets its turns in the next `length`, and returns the number of scripts, the
/// number of grants, and the tally.
async fn tallied(world: &World, targets: Vec<Target>, length: Duration) -> (u64, u32, Tally) {
    let size = targets.len();
    let (mut tasks, tally) = work(targets);
    sleep(length).await;
    let scripts = world.scripts_run();
    let of_none = Tally {
        grants: vec![0; size],
        ..Tally::default()
    };
    *tally.lock().unwrap() = of_none;
    sleep(length).await;
    let scripts = world.scripts_run() - scripts;
    tasks.shutdown().await;
    let tally = std::mem::take(&mut *tally.lock().unwrap());
    assert!(tally.grants.iter().all(|count| *count > 0), "{tally:?}");
    (scripts, tally.grants.iter().sum(), tally)
}

fn kind(label: &str) -> Kind {
    let mut all = kinds().into_iter();
    all.find(|kind| kind.0 == label).unwrap()
}

async fn fleet(kind: Kind, size: usize) -> (Case, Vec<Client>) {
    let (world, clients) = World::engine().with_fleet(size).await;
    let first = [clients[0].clone(), clients[1].clone()];
    (Case::of(kind, world, first).await, clients)
}

/// P11: a release grants to the head of the queue. A process confirms a plain permit, which is one script more. P4: processes take turns.
#[tokio::test(start_paused = true)]
async fn a_grant_costs_the_same_however_many_processes_wait() {
    for (label, tenths) in [
        ("lock", 23),
        ("fair lock", 23),
        ("write side", 23),
        ("preferred write side", 23),
        ("plain permit", 32),
        ("leased permit", 21),
    ] {
        let small = if label.ends_with("permit") { 8 } else { 3 };
        for size in [small, 16, 64] {
            let (case, clients) = fleet(kind(label), size).await;
            let targets = clients.iter().map(|it| (kind(label).1)(it, it)).collect();
            let (scripts, grants, tally) = tallied(&case.world, targets, secs(1)).await;
            assert!(grants > 150, "{label}, {size}: {grants} grants");
            assert!(
                scripts * 10 <= u64::from(grants * tenths),
                "{label}, {size}: {scripts} scripts for {grants} grants"
            );
            let mean = tally.waited / grants;
            assert!(
                tally.longest <= 5 * mean,
                "{label}, {size}: {mean:?}, {tally:?}"
            );
        }
    }
}

/// P11: notified readers can hold the lock together, so no wake-up is wasted.
#[tokio::test(start_paused = true)]
async fn readers_and_writers_take_turns_at_a_constant_cost_per_grant() {
    for (reads, writes) in [
        ("read side", "write side"),
        ("deferring read side", "preferred write side"),
    ] {
        for size in [4, 32] {
            let (case, clients) = fleet(kind(reads), size).await;
            let sides = [writes, reads, reads, reads].into_iter().cycle();
            let targets = clients
                .iter()
                .zip(sides)
                .map(|(it, side)| (kind(side).1)(it, it));
            let (scripts, grants, tally) = tallied(&case.world, targets.collect(), ms(1500)).await;
            assert!(tally.longest < ms(500), "{reads} {size}: {tally:?}");
            assert!(
                scripts <= u64::from(grants * 4),
                "{reads} {size}: {scripts} scripts for {grants} grants"
            );
        }
    }
}

/// P4, L6: next to four processes, or to four tasks of a process that hand the hold over, which never leave the name free for long.
#[tokio::test(start_paused = true)]
async fn a_polling_client_gets_its_turns_with_every_kind() {
    for kind in kinds() {
        for hand_over in [false, true] {
            let (world, fleet) = World::engine().with_fleet(4).await;
            let clients = [world.polling().await, fleet[0].clone()];
            let case = Case::of(kind, world, clients).await;
            let rival = |n: usize| &fleet[if hand_over { 0 } else { n }];
            let (mut tasks, _) = work((0..4).map(|n| (kind.2)(rival(n), rival(n))).collect());
            sleep(secs(1)).await;
            for _ in 0..10 {
                let held = timeout(secs(6), case.ours().acquire()).await;
                let starved = |_| panic!("{}, {hand_over}: starved", case.label);
                let held = held.unwrap_or_else(starved);
                held.unwrap().release().await.unwrap();
            }
            tasks.shutdown().await;
        }
    }
}

/// L3. Without that rule each silent process costs 1.5 s, or 0.5 s for a plain permit.
#[tokio::test(start_paused = true)]
async fn many_silent_processes_cost_little_more_than_one() {
    for (label, most) in [
        ("lock", 2000),
        ("write side", 2000),
        ("read side", 2000),
        ("plain permit", 700),
        ("leased permit", 2000),
    ] {
        let (case, clients) = fleet(kind(label), 61).await;
        let held = case.theirs().acquire().await.unwrap();
        let mut waiters = Vec::new();
        for client in &clients[2..] {
            waiters.push(served((kind(label).1)(client, client)));
            eventually("it waits", || client.waiters() == 1).await;
            case.world.quiet().await;
        }
        for silent in 2..40 {
            case.world.faults().freeze(Some(&format!("p{silent}")));
        }
        let released = Instant::now();
        held.release().await.unwrap();
        for living in waiters.split_off(38) {
            living.await.unwrap();
        }
        assert_within(released, ms(most), label);
    }
}
