//! `inspect`.

use stanchion_testkit::RedisServer;

use super::{JAVA, done, hold_as_java, queue_as_java};
use crate::support::{HOLD, json, output, start_script, text};

#[test]
fn a_fair_lock_shows_its_queue_in_order() {
    let server = RedisServer::start();
    hold_as_java(&server, "tick", "1", "20000");
    queue_as_java(&server, "tick", &["7", "3"]);
    let line = json(&output(&server, &["inspect", "tick", "--json"]).stdout);
    assert_eq!(
        (&line["kind"], &line["state"]),
        (&"fair".into(), &"held".into())
    );
    assert_eq!(line["holders"][0]["owner"], format!("{JAVA}:1"));
    let queue: Vec<&str> = line["queue"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place["owner"].as_str().unwrap())
        .collect();
    assert_eq!(queue, [format!("{JAVA}:7"), format!("{JAVA}:3")]);
    let keys = line["keys"].as_array().unwrap();
    assert!(
        keys.iter()
            .any(|key| key["key"] == "redisson_lock_queue:{tick}" && key["ttl_ms"].is_null())
    );
}

#[test]
fn readers_and_permits_are_listed_one_by_one() {
    let server = RedisServer::start();
    let _readers = [0, 1].map(|_| start_script(&server, &["catalog", "--read"], HOLD));
    let _permits = [0, 1].map(|_| start_script(&server, &["thumbs", "--permits=3"], HOLD));
    let line = json(&output(&server, &["inspect", "catalog", "--json"]).stdout);
    assert_eq!(line["holders"].as_array().unwrap().len(), 2);
    assert_eq!(line["holders"][0]["what"], "reader");
    let line = json(&output(&server, &["inspect", "thumbs", "--json"]).stdout);
    assert_eq!(line["state"], "1 of 3 permits free");
    assert_eq!(line["holders"].as_array().unwrap().len(), 2);
}

#[test]
fn nothing_is_shown_of_nothing_and_other_data_is_left_alone() {
    let server = RedisServer::start();
    let free = output(&server, &["inspect", "job"]);
    assert_eq!(
        (free.status.code(), text(&free.stdout)),
        (Some(0), "job: of no known kind, free\n".into())
    );
    done(&server, &["SET", "precious", "data"]);
    assert_eq!(
        output(&server, &["inspect", "precious"]).status.code(),
        Some(78)
    );
}
