//! Tests the names of connections, and the list of client processes that is read from them.

use stanchion::client::Process;
use stanchion::{Client, Lock};
use stanchion_tests::{JAVA, World, secs};

suite! {
    a_holder_is_found_among_the_processes,
    every_connection_names_its_client,
    application_names_are_sanitized_and_truncated,
    foreign_connections_are_not_listed,
}

async fn processes(client: &Client) -> Vec<Process> {
    client.processes().await.unwrap().list.unwrap()
}

async fn a_holder_is_found_among_the_processes(world: &World) {
    let (a, b) = (world.named("orders-api").await, world.named("ledger").await);
    let _held = Lock::new(&a, "job").unwrap().acquire().await.unwrap();
    let status = Lock::new(&b, "job").unwrap().status().await.unwrap();
    let holder = status.holder.unwrap().owner;
    let all = processes(&b).await;
    assert_eq!(all.len(), 2);
    let its: Vec<&Process> = all.iter().filter(|it| it.is_of(&holder)).collect();
    let [its] = its[..] else {
        panic!("{all:?}");
    };
    assert_eq!((its.client, its.app.as_str()), (a.id(), "orders-api"));
    assert!(!its.address.is_empty() && its.user.as_deref() == Some("default"));
    assert!(its.connected < secs(60));
    assert!(!all.iter().any(|it| it.is_of(JAVA)));
    a.shutdown(secs(1)).await;
    stanchion_testkit::eventually_async("the closed client is not listed", async || {
        processes(&b).await.len() == 1
    })
    .await;
}

async fn every_connection_names_its_client(world: &World) {
    let client = world.named("orders-api").await;
    let own = format!("name=stanchion:{}:orders-api", client.id());
    let list = world.admin(&["CLIENT", "LIST"]);
    let mut names: Vec<&str> = list
        .split_whitespace()
        .filter_map(|word| word.strip_prefix(own.as_str()))
        .collect();
    names.sort_unstable();
    // In virtual time a client has no background runtime, and therefore no background connection.
    match world {
        World::Engine(_) => assert_eq!(names, ["", ":sub"]),
        World::Server(_) => {
            let place = names[0].to_owned();
            let pid = format!(":{}@", std::process::id());
            assert!(place.starts_with(&pid), "{place}");
            assert_eq!(names[1..], [format!("{place}:bg"), format!("{place}:sub")]);
        }
    }
    let [process] = &processes(&client).await[..] else {
        panic!("one process");
    };
    assert_eq!(process.connections as usize, names.len());
    let own = matches!(world, World::Server(_)).then(std::process::id);
    assert_eq!(process.pid, own);
}

async fn application_names_are_sanitized_and_truncated(world: &World) {
    for (given, shown) in [
        ("a b\nc:{d}ä", "a_b_c__d__"),
        ("", ""),
        (
            "a-name.of_more-than-thirty-two-bytes-and-then-some",
            "a-name.of_more-than-thirty-two-b",
        ),
    ] {
        let client = world.named(given).await;
        let all = processes(&client).await;
        let its = all.iter().find(|it| it.client == client.id()).unwrap();
        assert_eq!(its.app, shown);
    }
}

async fn foreign_connections_are_not_listed(world: &World) {
    let client = world.client().await;
    let _listener = world.listen("somewhere").await;
    assert_eq!(processes(&client).await.len(), 1);
}
