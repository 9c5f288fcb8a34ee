//! The server for state exploration.

use stanchion_embedded::Reply;
use stanchion_embedded::explore::{ExploredServer, Snapshot};

const NOW: u64 = 1_800_000_000_000_000;

fn canonical(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.canonical(&|number| number, &mut bytes);
    bytes
}

#[test]
fn a_restored_state_equals_the_saved_one() {
    let server = ExploredServer::new(NOW);
    server.run(&["HSET", "h", "b", "1", "a", "2"]);
    server.run(&["PEXPIRE", "h", "500"]);
    server.run(&["ZADD", "z", "7", "m"]);
    server.subscribe(4, b"c");
    let saved = server.save();
    let before = canonical(&saved);

    server.set_clock(NOW + 501_000);
    server.run(&["DEL", "z"]);
    server.unsubscribe(4, b"c");
    assert_eq!(server.save().keys(), Vec::<&[u8]>::new());
    assert_ne!(canonical(&server.save()), before);

    server.restore(&saved);
    let again = server.save();
    assert_eq!(canonical(&again), before);
    assert_eq!(again.micros(), NOW);
    assert_eq!(again.ttls().collect::<Vec<_>>(), [500]);
    assert_eq!(again.listeners(b"c"), 1);
    assert_eq!(again.content(b"z"), [("m".to_owned(), "7".to_owned())]);
}

#[test]
fn states_that_differ_in_the_order_of_fields_and_in_the_clock_alone_are_equal() {
    let build = |clock: u64, fields: [&str; 2]| {
        let server = ExploredServer::new(clock);
        for field in fields {
            server.run(&["HSET", "h", field, "1"]);
        }
        server.run(&["PEXPIRE", "h", "500"]);
        canonical(&server.save())
    };
    assert_eq!(build(NOW, ["a", "b"]), build(NOW + 77_000, ["b", "a"]));
}

#[test]
fn messages_are_taken_with_the_numbers_of_their_connections() {
    let server = ExploredServer::new(NOW);
    server.subscribe(1, b"c");
    server.subscribe(2, b"c");
    let sha = server
        .load("return redis.call('PUBLISH', ARGV[1], 'x')")
        .unwrap();
    assert!(server.load("return (").is_err());
    let reply = server.run(&["EVALSHA", &sha, "0", "c"]);
    assert_eq!(reply, Reply::Int(2));
    let connections = |server: &ExploredServer| {
        let messages = server.take_messages().into_iter();
        messages.map(|m| m.connection).collect::<Vec<_>>()
    };
    assert_eq!(connections(&server), [1, 2]);
    assert_eq!(connections(&server), []);
    server.disconnect(1);
    assert_eq!(
        server.run(&["EVALSHA", &sha, "0", "c"]),
        Reply::Int(1),
        "a closed connection is not subscribed"
    );
}
