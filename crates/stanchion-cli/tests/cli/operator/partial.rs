//! One master of a cluster and its replica are down: lists show what the others have, name the one that is missing, and exit with 75.

use std::collections::BTreeSet;

use stanchion_testkit::{Cluster, Process, eventually_blocking};

use super::exporter::Exporter;
use super::{command_at, lines};
use crate::support::{SOON, text};

/// The exit code of a partial list.
const PARTIAL: Option<i32> = Some(75);

struct Broken {
    cluster: Cluster,
    /// A name on each master.
    names: Vec<String>,
    _holders: Vec<Process>,
    /// The names whose holders have their records on a server that lives.
    published: BTreeSet<String>,
    dead: String,
    dead_name: String,
    exporter: Exporter,
}

impl Broken {
    fn at(&self, args: &[&str]) -> std::process::Output {
        command_at(&self.cluster.url(), args).output().unwrap()
    }

    /// Takes down the master that has the list of records: the hardest one to do without.
    fn begin() -> Option<Self> {
        let mut cluster = match Cluster::or_skip("a_list_shows_what_it_reaches") {
            Some(_) => Cluster::with(&[("cluster-require-full-coverage", "no")]),
            None => return None,
        };
        let url = cluster.url();
        let name_on = |master| {
            let names = (0..).map(|n| format!("job-{n}"));
            let mut its = names.filter(|name| cluster.master_of_key(name) == master);
            its.next().unwrap()
        };
        let names: Vec<String> = (0..3).map(name_on).collect();
        let hold = |name: &String| {
            let args = [
                "run",
                name,
                "--lease=10m",
                "--label",
                name,
                "--",
                "sh",
                "-c",
            ];
            let mut command = command_at(&url, &args);
            let mut holder = Process::spawn(command.arg("echo ready; exec sleep 300"));
            holder.wait_for_line(|line| line == "ready", SOON);
            holder
        };
        let holders = names.iter().map(hold).collect();
        let exporter = Exporter::start_at(&url, &[]);
        exporter.shows(&[("up", 1.0), ("holders{kind=\"lock\"}", 3.0)]);
        eventually_blocking("each hold is published", || {
            let listed = command_at(&url, &["ls", "--json"]).output().unwrap();
            lines(&listed).last().unwrap()["names"] == 3
        });
        let list = cluster.master_of_key("stanchion_clients");
        let listed = command_at(&url, &["clients", "--json"]).output().unwrap();
        let record_lives = |line: &serde_json::Value| {
            let client = line["client"].as_str().unwrap();
            cluster.master_of_key(&format!("stanchion_client:{{{client}}}")) != list
        };
        let clients = lines(&listed);
        let clients = clients.iter().filter(|line| record_lives(line));
        let labels: BTreeSet<String> = clients
            .map(|line| line["app"].as_str().unwrap().to_owned())
            .collect();
        // The exporter holds nothing.
        let published = labels.into_iter().filter(|label| names.contains(label));
        let published = published.collect();
        let replica = cluster.replica_of(list);
        let dead = cluster.node(list).addr().to_string();
        cluster.kill(replica);
        cluster.kill(list);
        Some(Self {
            dead_name: names[list].clone(),
            cluster,
            names,
            _holders: holders,
            published,
            dead,
            exporter,
        })
    }
}

fn names(lines: &[serde_json::Value]) -> BTreeSet<String> {
    let names = lines.iter().filter_map(|line| line["name"].as_str());
    names.map(str::to_owned).collect()
}

fn json(output: &std::process::Output) -> Vec<serde_json::Value> {
    let lines = text(&output.stdout);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_list_shows_what_it_reaches_and_names_what_it_does_not() {
    let Some(broken) = Broken::begin() else {
        return;
    };
    let dead = broken.dead.as_str();
    let alive: BTreeSet<String> = broken
        .names
        .iter()
        .filter(|name| **name != broken.dead_name)
        .cloned()
        .collect();
    // Records.
    let told = broken.at(&["ls", "--json"]);
    assert_eq!(told.status.code(), PARTIAL, "{}", text(&told.stderr));
    let (told, said) = (json(&told), text(&told.stderr));
    assert_eq!(names(&told), broken.published, "{told:?}");
    assert_eq!(told.last().unwrap()["unreached"][0], dead);
    assert!(said.contains(dead) && said.contains("partial"), "{said}");
    for line in told.iter().filter(|line| line["name"].is_string()) {
        let is_dead = line["name"] == *broken.dead_name;
        assert_eq!(line["held"], true, "{line}");
        let checks = line["trouble"].as_array().unwrap().len();
        assert_eq!(checks, usize::from(is_dead), "{line}");
    }
    // A scan.
    let found = broken.at(&["ls", "--scan", "--json"]);
    assert_eq!(found.status.code(), PARTIAL, "{}", text(&found.stderr));
    let found = json(&found);
    assert_eq!(names(&found), alive, "{found:?}");
    assert_eq!(found.last().unwrap()["complete"], false);
    // The table, live or not, and the processes.
    for args in [
        &["ls"][..],
        &["ls", "--scan"],
        &["top", "--once"],
        &["clients"],
    ] {
        let shown = broken.at(args);
        assert_eq!(shown.status.code(), PARTIAL, "{args:?}");
        assert!(text(&shown.stderr).contains(dead), "{args:?}");
        let shown = text(&shown.stdout);
        let wanted = match args {
            ["ls", "--scan"] => &alive,
            _ => &broken.published,
        };
        assert!(wanted.iter().all(|name| shown.contains(name)), "{shown}");
    }
    let live = json(&broken.at(&["top", "--json", "--count=1"]));
    assert_eq!(live[0]["unreached"][0], dead);
    // Single names.
    for name in &alive {
        for verb in ["status", "inspect"] {
            let shown = broken.at(&[verb, name]);
            assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
            assert!(text(&shown.stdout).contains("held"), "{name}");
        }
    }
    let status = broken.at(&["status", &broken.dead_name]);
    assert_eq!(status.status.code(), Some(69), "{}", text(&status.stderr));
    let pings = broken.at(&["ping", "--json"]);
    assert_eq!(pings.status.code(), Some(69), "{}", text(&pings.stderr));
    assert!(text(&pings.stderr).contains(dead));
    assert_eq!(json(&pings).len(), 2, "each server that lives answers");
    // The checks go on with the other servers.
    let checks = broken.at(&["doctor", "--scan", "--json"]);
    assert_eq!(checks.status.code(), Some(1), "{}", text(&checks.stderr));
    let checks = json(&checks);
    let of = |check: &str| {
        let all = checks.iter().filter(|line| line["check"] == check);
        all.map(|line| line["level"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("version"), ["ok", "ok"]);
    assert_eq!(of("server"), ["fail"]);
    assert_eq!(of("messages"), ["ok"], "{checks:?}");
    assert_eq!(of("deadlock"), ["ok"]);
    assert_eq!(of("scan"), ["skip"]);
    // Metrics.
    let up = format!("node_up{{node=\"{dead}\"}}");
    let samples = broken.exporter.shows(&[
        ("up", 1.0),
        (&up, 0.0),
        ("holders{kind=\"lock\"}", 2.0),
        ("dead_holders{kind=\"lock\"}", 0.0),
    ]);
    let nodes = samples.keys().filter(|name| name.starts_with("node_up"));
    assert_eq!(nodes.count(), 3);
}
