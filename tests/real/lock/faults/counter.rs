//! Tests exclusion between processes: four processes with 64 tasks each increment a counter that only the lock protects.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use stanchion_testkit::{History, Process, RedisServer, Rules, check};
use stanchion_tests::faults::*;

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
        assert!(worker.wait(LONG * 2).success());
    }
    let total = PROCESSES * TASKS * ROUNDS;
    assert_eq!(
        server.cli(&["GET", "counter"]).as_int(),
        i64::from(total),
        "P1"
    );
    assert_eq!(leftovers(&server), ["counter"], "P3");

    let all = History::new();
    for process in 0..PROCESSES {
        let file = File::open(history_of(&server, process)).unwrap();
        all.merge(&History::from_json_lines(BufReader::new(file)).unwrap());
    }
    // P1, P2, P4.
    let summary = check(&all, &Rules::new().liveness(ms(5000))).unwrap_or_else(|found| {
        let found: Vec<String> = found.iter().take(10).map(ToString::to_string).collect();
        panic!("{found:#?}");
    });
    assert_eq!(summary.grants, total as usize);
    assert_eq!(summary.lost, 0);
}
