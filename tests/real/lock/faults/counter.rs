//! Tests exclusion between processes: four processes with 64 tasks each increment a counter that only the lock protects.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use stanchion_testkit::{Process, RedisServer};
use stanchion_tests::faults::*;
use stanchion_tests::holds::{Hold, violations};

const PROCESSES: u32 = 4;
const TASKS: u32 = 64;
const ROUNDS: u32 = 50;

fn history_of(server: &RedisServer, process: u32) -> PathBuf {
    server
        .unix_path()
        .with_file_name(format!("history-{process}"))
}

#[test]
fn four_processes_lose_no_increment_and_their_histories_are_valid() {
    let Some(server) = server() else { return };
    assert_eq!(server.cli(&["SET", "counter", "0"]).as_text(), "OK");
    let mut workers: Vec<Process> = (0..PROCESSES)
        .map(|process| {
            let path = history_of(&server, process);
            let numbers = [process, TASKS, ROUNDS].map(|n| n.to_string());
            let [process, tasks, rounds] = numbers.each_ref().map(String::as_str);
            let args = [
                "count",
                &server.url(),
                "orders",
                "5000",
                process,
                tasks,
                rounds,
                path.to_str().unwrap(),
            ];
            Process::start(env!("CARGO_BIN_EXE_stanchion-test-worker"), &args)
        })
        .collect();
    for worker in &mut workers {
        worker.wait_for_line(|line| line == "CONNECTED", LONG);
    }
    for worker in &mut workers {
        worker.send_line("go");
    }
    for worker in &mut workers {
        assert!(worker.wait(LONG * 10).success());
    }
    let total = PROCESSES * TASKS * ROUNDS;
    assert_eq!(
        server.cli(&["GET", "counter"]).as_int(),
        i64::from(total),
        "P1"
    );
    assert_eq!(leftovers(&server), ["counter"], "P3");

    let holds: Vec<Hold> = (0..PROCESSES)
        .flat_map(|process| {
            let file = File::open(history_of(&server, process)).unwrap();
            serde_json::from_reader::<_, Vec<Hold>>(BufReader::new(file)).unwrap()
        })
        .collect();
    assert_eq!(holds.len(), total as usize);
    // P1, P2, P4.
    let found = violations(holds, ms(5000));
    assert!(found.is_empty(), "{:#?}", &found[..found.len().min(10)]);
}

/// P1, P2, P4.
#[test]
fn the_check_of_holds_finds_each_violation() {
    let hold = |invoked, granted, token, left| Hold {
        task: (1, 1),
        invoked: ms(invoked),
        granted: ms(granted),
        token,
        left: ms(left),
        released: ms(left + 1),
    };
    let first = hold(0, 1, 7, 10);
    for (second, rule) in [
        (hold(2, 10, 8, 20), None),
        (hold(2, 9, 8, 20), Some("P1")),
        (hold(2, 12, 7, 20), Some("P2")),
        (hold(2, 12, 6, 20), Some("P2")),
        (hold(2, 111, 8, 200), None),
        (hold(2, 112, 8, 200), Some("P4")),
        (hold(50, 150, 8, 200), None),
        (hold(50, 151, 8, 200), Some("P4")),
    ] {
        let found = violations(vec![second, first], ms(100));
        let rules: Vec<&str> = found.iter().map(|text| &text[..2]).collect();
        assert_eq!(rules, Vec::from_iter(rule), "{second:?}");
    }
}
