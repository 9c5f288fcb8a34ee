//! The benchmark `peers` with stanchion's contenders, on a real server: a short run of the waits and the hand-offs.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking"
)]

use std::fs;
use std::process::Command;

use serde_json::Value;

fn measured(cells: &str, only: &str) -> Value {
    let folder =
        std::env::temp_dir().join(format!("stanchion-peers-{}-{cells}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let json = folder.join("peers.json");
    let out = Command::new(env!("CARGO_BIN_EXE_stanchion-benches"))
        .args([
            "peers", "--quick", "--rounds", "2", "--cells", cells, "--only", only,
        ])
        .arg("--peers")
        .arg(&folder)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stdout)
    );
    let run = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    run
}

fn blocks<'a>(run: &'a Value, name: &str) -> &'a Vec<Value> {
    let contenders = run["cells"][0]["contenders"].as_array().unwrap();
    let contender = contenders.iter().find(|one| one["name"] == name);
    contender.expect(name)["blocks"].as_array().unwrap()
}

fn number(block: &Value, figure: &str) -> f64 {
    block[figure]
        .as_f64()
        .unwrap_or_else(|| panic!("{figure} of {block}"))
}

#[test]
fn two_tasks_hand_a_lock_to_each_other() {
    let run = measured("hand2", "raw,stanchion");
    for name in ["stanchion", "stanchion-ct", "stanchion-fair"] {
        assert_eq!(blocks(&run, name).len(), 2, "{name}");
        for block in blocks(&run, name) {
            let (grants, handoffs) = (number(block, "grants"), number(block, "handoffs"));
            assert!(grants > 20.0 && handoffs > grants / 4.0, "{name}: {block}");
            assert_eq!(number(block, "overlaps"), 0.0, "{name}: {block}");
            assert_eq!(number(block, "starved"), 0.0, "{name}: {block}");
            let commands = number(block, "commands");
            assert!((0.9..4.0).contains(&commands), "{name}: {block}");
            assert!(
                number(block, "gap") <= number(&block["wait"], "max"),
                "{name}: {block}"
            );
        }
    }
    // The bare scripts have no waiters: two commands per cycle.
    for block in blocks(&run, "raw") {
        assert_eq!(number(block, "handoffs"), 0.0, "{block}");
        assert!((number(block, "commands") - 2.0).abs() < 0.1, "{block}");
    }
}

#[test]
fn processes_hand_a_lock_to_each_other_and_hold_for_a_millisecond() {
    let run = measured("procs", "stanchion");
    for block in blocks(&run, "stanchion") {
        assert!(number(block, "grants") > 10.0, "{block}");
        assert_eq!(number(block, "overlaps"), 0.0, "{block}");
        // Microseconds. There is no upper bound: a busy machine ends each wait late.
        assert!(number(block, "held") >= 1000.0, "{block}");
    }
}
