//! Names that are not there, are something else, or have another number of permits.

use stanchion_testkit::RedisServer;

use crate::support::{HOLD, code, json, output, start_script, status, text};

fn told(server: &RedisServer, args: &[&str]) -> (Option<i32>, String) {
    let output = output(server, args);
    (
        output.status.code(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

#[test]
fn a_missing_name_differs_from_a_free_one() {
    let server = RedisServer::start();
    let _one = start_script(&server, &["nightly", "--prefix", "app:"], HOLD);
    let _two = start_script(&server, &["job:7"], HOLD);
    for (asked, there) in [
        ("nightly", "app:nightly"),
        ("app:nigthly", "app:nightly"),
        ("job:*", "job:7"),
    ] {
        let expected = match asked.contains('*') {
            true => format!("{asked}: a pattern. There is: {there}\n"),
            false => format!("{asked}: free, there is no such key\n  There is: {there}\n"),
        };
        assert_eq!(told(&server, &["status", asked]), (Some(0), expected));
    }
    let line = status(&server, "job:8");
    assert_eq!(
        (&line["exists"], &line["similar"][0]),
        (&false.into(), &"job:7".into())
    );
    let line = status(&server, "job:7");
    assert!(
        line["exists"] == true && line["similar"].is_null(),
        "{line}"
    );
    assert_eq!(
        told(&server, &["status", "other"]).1,
        "other: free, there is no such key\n"
    );
}

#[test]
fn a_foreign_hash_is_refused_by_name() {
    let server = RedisServer::start();
    for fields in [
        &["name", "ada"][..],
        &["visits", "7"],
        &["a", "1", "b", "2"],
    ] {
        let _ = server.cli(&["DEL", "user:1"]);
        let _ = server.cli(&[&["HSET", "user:1"], fields].concat());
        for args in [
            &["status", "user:1"][..],
            &["force-release", "user:1", "--yes"],
            &["run", "user:1", "--wait", "0", "--", "true"],
            &["run", "user:1", "--", "true"],
            &["run", "user:1", "--fair", "--wait", "0", "--", "true"],
        ] {
            let (code, told) = told(&server, args);
            assert_eq!(code, Some(78), "{args:?}: {told}");
            let named = ["belongs to something else", "in use as another kind"];
            assert!(
                named.iter().any(|words| told.contains(words)),
                "{args:?}: {told}"
            );
            assert!(!told.contains("Array(") && !told.contains("ada"), "{told}");
        }
        assert_eq!(
            server.cli(&["HLEN", "user:1"]).as_int() * 2,
            i64::try_from(fields.len()).unwrap()
        );
    }
}

#[test]
fn the_number_of_permits_can_be_changed_and_one_taken_back() {
    let server = RedisServer::start();
    let _holder = start_script(&server, &["thumbs", "--permits", "1"], HOLD);
    let more = [
        "run",
        "thumbs",
        "--permits",
        "2",
        "--wait",
        "0",
        "--",
        "true",
    ];
    let (refused, hint) = told(&server, &more);
    assert_eq!(refused, Some(75));
    assert!(hint.contains("stanchion permits thumbs set 2"), "{hint}");
    let set = told(&server, &["permits", "thumbs", "set", "2"]);
    assert_eq!(set, (Some(0), "thumbs: 2 permits; there were 1\n".into()));
    assert_eq!(code(&server, &more), Some(0));

    let line = status(&server, "thumbs");
    let id = line["permits"][0]["id"].as_str().unwrap().to_owned();
    let reclaim = ["permits", "thumbs", "reclaim", &id];
    assert_eq!(
        told(&server, &reclaim),
        (Some(0), format!("thumbs: took {id} back\n"))
    );
    assert_eq!(
        told(&server, &reclaim),
        (Some(1), format!("thumbs: nobody holds {id}\n"))
    );
    assert_eq!(
        code(&server, &["permits", "thumbs", "reclaim", "x"]),
        Some(2)
    );
    let line = json(&output(&server, &["permits", "thumbs", "set", "3", "--json"]).stdout);
    assert_eq!(
        (&line["set"]["before"], &line["set"]["permits"]),
        (&2.into(), &3.into())
    );
}

#[test]
fn a_lock_is_not_taken_for_permits() {
    let server = RedisServer::start();
    let _holder = start_script(&server, &["job"], HOLD);
    let _reader = start_script(&server, &["catalog", "--read"], HOLD);
    for (name, what) in [("job", "a lock"), ("catalog", "a read-write lock")] {
        let expected =
            format!("stanchion: {name} is {what} and has no permits: give each its own name\n");
        for args in [
            &["run", name, "--permits", "2", "--", "true"][..],
            &["permits", name, "set", "2"],
        ] {
            assert_eq!(
                told(&server, args),
                (Some(78), expected.clone()),
                "{args:?}"
            );
        }
    }
}

#[test]
fn a_too_long_lease_is_shown_as_typed() {
    let server = RedisServer::start();
    let (code, told) = told(&server, &["hold", "job", "--for", "100d"]);
    assert_eq!(code, Some(2));
    let first = told.lines().next().unwrap_or_default();
    assert_eq!(
        first,
        "error: invalid value '100d' for '--for <DURATION>': a lease is 10ms to 30d"
    );
}

#[test]
fn force_release_says_when_the_holder_notices_at_the_latest() {
    let server = RedisServer::start();
    let _holder = start_script(&server, &["job", "--lease", "30s"], HOLD);
    let (code, told) = told(&server, &["force-release", "job", "--yes"]);
    assert_eq!(code, Some(0));
    let within = told.contains("within 9s") || told.contains("within 10s");
    assert!(told.contains("at its next renewal, ") && within, "{told}");
}
