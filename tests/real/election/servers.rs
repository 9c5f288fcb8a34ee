//! Elections on real servers: leaders that are killed or stopped, restarts, full memory, minimal rights, a slot that moves.

mod failovers;

use std::process::Command;
use std::time::Duration;

use stanchion::election::{CampaignOptions, Leadership, Observed, Term, WorkError};
use stanchion::{Client, ClientConfig, Election, Secret};
use stanchion_testkit::{Process, RedisServer, Signal, eventually, eventually_async};
use stanchion_tests::{World, cluster, lease, ms, rights, secs, server};
use tokio::time::timeout;

use stanchion_tests::election::*;

/// A timeout far above the duration of any step.
const LONG: Duration = secs(30);
/// A short lease, for tests that wait for its end.
const SHORT: Duration = ms(1500);

/// The environment variable with the URL of the server of a [`worker`].
const URL: &str = "STANCHION_TEST_ELECTION_URL";

fn start_worker(url: &str) -> Process {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new(me);
    command.args(["election::servers::worker", "--exact", "--nocapture"]);
    Process::spawn(command.env(URL, url))
}

/// Runs in a copy of this program: leads, and prints its progress. Without [`URL`] in the environment this test does nothing.
#[test]
fn worker() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let led = runtime.block_on(async {
        let client = Client::connect(&url).await.unwrap();
        let lease = lease(SHORT);
        let election = election(&client).lease(lease);
        election.lead("worker", work).await
    });
    println!("END {led:?}");
}

/// Prints a line every 20 ms, and one when it is dropped.
async fn work(term: Term, _: stanchion::election::Stop) -> Result<(), WorkError> {
    println!("\nLEADS {}", term.fencing_token().unwrap());
    struct OnDrop;
    impl Drop for OnDrop {
        fn drop(&mut self) {
            println!("\nDROPPED");
        }
    }
    let _on_drop = OnDrop;
    loop {
        println!("\nWORKS {}", term.is_held());
        tokio::time::sleep(ms(20)).await;
    }
}

fn line(worker: &mut Process, start: &str) -> String {
    worker.wait_for_line(|line| line.starts_with(start), LONG)
}

async fn connected(server: &RedisServer) -> (Client, Election) {
    let client = Client::connect(&server.url()).await.unwrap();
    let election = election(&client).lease(lease(SHORT));
    (client, election)
}

/// Curator's phantom leaders (CURATOR-504 and others): two leaders after a pause or a reconnect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_leader_does_no_work_after_it_continues() {
    let Some(server) = server() else { return };
    let mut leader = start_worker(&server.url());
    let stale: u64 = line(&mut leader, "LEADS")[6..].parse().unwrap();
    line(&mut leader, "WORKS");
    leader.signal(Signal::Stop);
    let (_client, election) = connected(&server).await;
    let term = timeout(LONG, election.campaign("next"))
        .await
        .unwrap()
        .unwrap();
    assert!(term.fencing_token().unwrap().get() > stale, "P2");
    tokio::time::sleep(SHORT).await;
    let seen = leader.lines().len();
    leader.signal(Signal::Cont);
    line(&mut leader, "DROPPED");
    let printed: Vec<_> = leader.lines()[seen..].to_vec();
    let works = printed.iter().take_while(|it| *it != "DROPPED");
    assert_eq!(
        works.filter(|it| it.starts_with("WORKS")).count(),
        0,
        "{printed:?}"
    );
    // The worker is a candidate again, and leads after this term.
    eventually_async("the worker is a candidate", async || {
        !election.candidates().await.unwrap().is_empty()
    })
    .await;
    assert!(term.is_held());
    term.step_down().await.unwrap();
    let again: u64 = line(&mut leader, "LEADS")[6..].parse().unwrap();
    assert!(again > stale);
}

/// The server is restarted without its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_seen_by_leader_candidate_and_observer() {
    let Some(mut server) = server() else { return };
    let (_ours, election) = connected(&server).await;
    let (_theirs, other) = connected(&server).await;
    let term = election.campaign("first").await.unwrap();
    let before = term.fencing_token();
    let mut leaders = other.observe();
    assert!(matches!(leaders.next().await, Some(Observed::Leader(_))));
    let waiting = tokio::spawn(other.campaign("second"));
    server.kill();
    let seen = timeout(LONG, leaders.next()).await.unwrap();
    assert!(matches!(seen, Some(Observed::Unknown(_))), "{seen:?}");
    assert!(!term.is_held(), "P5");
    server.restart();
    let next = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.fencing_token() > before, "P2");
    let found = timeout(LONG, async {
        loop {
            if let Some(Observed::Leader(leader)) = leaders.next().await {
                return leader;
            }
        }
    });
    assert_eq!(found.await.unwrap().id, next.id());
    next.step_down().await.unwrap();
}

#[test]
fn a_term_outlives_its_runtime_and_is_ended_in_the_background() {
    let Some(server) = server() else { return };
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let (client, election) = first.block_on(connected(&server));
    let term = first.block_on(election.campaign("v")).unwrap();
    drop(first);
    drop(term);
    let second = runtime();
    second.block_on(async {
        let (_other, election) = connected(&server).await;
        let next = timeout(LONG, election.campaign("w")).await.unwrap();
        next.unwrap().step_down().await.unwrap();
    });
    drop(client);
}

/// A scenario with all operations, for the engine and for a real server.
async fn all_operations(world: &World) {
    let fleet = world.fleet(3).await;
    let looking = world.named("looking").await;
    let mut leaders = election(&looking).observe();
    assert_eq!(leaders.next().await, Some(Observed::Vacant));
    let first = election(&fleet[0]).campaign("a").await.unwrap();
    first.proclaim("a2").await.unwrap();
    let challenged = tokio::spawn(first.challenged());
    let plain = campaign(&fleet[1], "b");
    let higher = campaign_with(&fleet[2], "c", priority(3));
    candidates(world, &looking, 2).await;
    let limit = world.limit(POLL);
    let challenge = timeout(limit, challenged).await.unwrap().unwrap();
    assert_eq!(challenge.priority, 3);
    assert_eq!(value(election(&looking).leader().await.unwrap()), "a2");
    let before = first.fencing_token();
    first.step_down().await.unwrap();
    let second = higher.await.unwrap().unwrap();
    assert!(second.fencing_token() > before);
    let heir = election(&looking).candidates().await.unwrap().remove(0).id;
    second.hand_over(&heir).await.unwrap();
    let third = plain.await.unwrap().unwrap();
    assert_eq!(third.id(), heir);
    let seen = timeout(world.limit(POLL), async {
        loop {
            if let Some(Observed::Leader(leader)) = leaders.next().await
                && leader.id == heir
            {
                return leader.value.unwrap();
            }
        }
    });
    assert_eq!(seen.await.unwrap(), b"b");
    tokio::time::sleep(secs(1)).await;
    assert!(election(&looking).danger().depose().await.unwrap());
    third.lost().await;
    drop(third);
    let gone = election(&fleet[0])
        .campaign_timeout("d", POLL)
        .await
        .unwrap();
    gone.step_down().await.unwrap();
    // The rest of the last leader expires.
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn all_operations_work_on_the_engine() {
    all_operations(&World::engine()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_operations_work_on_a_real_server() {
    let Some(world) = World::server("all_operations_work_on_a_real_server") else {
        return;
    };
    all_operations(&world).await;
}

/// As the ACL user of `docs/running/rights.md`.
#[tokio::test]
async fn an_election_needs_only_the_documented_rights() {
    let Some(server) = server() else { return };
    let config = rights::least(&server);
    let user = async || {
        let client = Client::connect_with(config.clone()).await.unwrap();
        let lease = lease(ms(600));
        let election = Election::new(&client, "app:indexer").unwrap();
        (client, election.lease(lease))
    };
    let ((_a, ours), (_b, theirs)) = (user().await, user().await);
    let mut leaders = ours.observe();
    assert_eq!(leaders.next().await, Some(Observed::Vacant));
    let term = ours.campaign("a").await.unwrap();
    let challenged = term.challenged();
    let waiting = tokio::spawn(theirs.campaign_with("b", CampaignOptions::new().priority(1)));
    timeout(LONG, challenged).await.unwrap();
    term.proclaim("c").await.unwrap();
    tokio::time::sleep(secs(1)).await;
    let heir = ours.candidates().await.unwrap().remove(0).id;
    term.hand_over(&heir).await.unwrap();
    let term = waiting.await.unwrap().unwrap();
    assert!(matches!(leaders.next().await, Some(Observed::Leader(_))));
    assert!(ours.danger().depose().await.unwrap());
    term.lost().await;
    assert_eq!(rights::refused(&server), [""; 0]);
}

#[tokio::test]
async fn a_leader_without_the_right_to_publish_steps_down() {
    let Some(server) = server() else { return };
    let _ = server.cli(&[
        "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish",
    ]);
    let config = ClientConfig::new(server.url()).username("mute".to_owned());
    let client = Client::connect_with(config.password(Secret::new("x")))
        .await
        .unwrap();
    let term = election(&client).campaign("v").await.unwrap();
    term.proclaim("w").await.unwrap();
    term.step_down().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "indexer"]).as_int(), 0);
}

/// Waits for two renewals: the request for the second one is sent after this call.
async fn renewed_twice(term: &Leadership) {
    for _ in 0..2 {
        let end = term.valid_until();
        eventually("the term is renewed", || term.valid_until() > end).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_a_term_moves_with_its_slot() {
    let Some(cluster) = cluster() else { return };
    let connect = async || Client::connect(&cluster.url()).await.unwrap();
    let (a, b) = (connect().await, connect().await);
    for name in ["indexer", "{tag}:indexer"] {
        let of = |client: &Client| {
            let lease = lease(secs(4));
            Election::new(client, name).unwrap().lease(lease)
        };
        let (ours, theirs) = (of(&a), of(&b));
        let mut leaders = theirs.observe();
        assert_eq!(leaders.next().await, Some(Observed::Vacant));
        let term = ours.campaign("a").await.unwrap();
        assert!(matches!(leaders.next().await, Some(Observed::Leader(_))));
        let challenged = tokio::spawn(term.challenged());
        let waiting = tokio::spawn(theirs.campaign_with("b", CampaignOptions::new().priority(1)));
        timeout(LONG, challenged).await.unwrap().unwrap();
        let from = cluster.master_of_key(name);
        let to = (from + 1) % 3;
        tokio::task::block_in_place(|| cluster.move_slot(cluster.slot(name), to));
        renewed_twice(&term).await;
        term.proclaim("a2").await.unwrap();
        assert_eq!(value(theirs.leader().await.unwrap()), "a2");
        let token = term.fencing_token();
        term.step_down().await.unwrap();
        let next = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
        assert!(next.fencing_token() > token, "P2");
        // During the migration the term is renewed, and can be ended.
        let migration = tokio::task::block_in_place(|| cluster.migrate(cluster.slot(name), from));
        tokio::task::block_in_place(|| migration.move_key(name));
        renewed_twice(&next).await;
        timeout(LONG, next.step_down()).await.unwrap().unwrap();
        tokio::task::block_in_place(|| {
            migration.move_keys();
            migration.finish();
        });
        let last = timeout(LONG, ours.campaign("c")).await.unwrap().unwrap();
        last.step_down().await.unwrap();
    }
}
