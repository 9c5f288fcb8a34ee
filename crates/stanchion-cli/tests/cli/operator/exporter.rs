//! `exporter`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use stanchion_testkit::{Process, RedisServer, eventually_blocking};

use super::{JAVA, command_at, done, hold_as_java};
use crate::support::{HOLD, start_script, wait_for_waiters, with};

/// A running exporter, which is killed when it is dropped.
pub(crate) struct Exporter {
    child: Child,
    address: String,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // OK: it may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Exporter {
    pub(crate) fn start(server: &RedisServer, args: &[&str]) -> Self {
        Self::start_at(&server.url(), args)
    }

    pub(crate) fn start_at(url: &str, args: &[&str]) -> Self {
        let args = [&["exporter", "--listen=127.0.0.1:0", "--pause=100ms"], args].concat();
        let mut command = command_at(url, &args);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        said.read_line(&mut line).unwrap();
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let address = line.trim().strip_prefix("metrics are at http://");
        let address = address.and_then(|it| it.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address }
    }

    /// The status line and the body of an answer.
    fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// The samples, without `stanchion_server_`.
    pub(crate) fn samples(&self) -> BTreeMap<String, f64> {
        let (status, body) = self.get("/metrics");
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(body.ends_with("# EOF\n"), "{body}");
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let name = name.strip_prefix("stanchion_server_").unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        samples.collect()
    }

    /// Waits until a survey has found these values.
    pub(crate) fn shows(&self, wanted: &[(&str, f64)]) -> BTreeMap<String, f64> {
        let mut samples = BTreeMap::new();
        eventually_blocking(&format!("{wanted:?}"), || {
            samples = self.samples();
            wanted
                .iter()
                .all(|(name, value)| samples.get(*name) == Some(value))
        });
        samples
    }
}

#[test]
fn holders_waiters_and_faults_are_counted_by_kind() {
    let server = RedisServer::start();
    let _lock = start_script(&server, &["job"], HOLD);
    let _readers = [0, 1].map(|_| start_script(&server, &["catalog", "--read"], HOLD));
    let waiter = Process::spawn(&mut with(&server, &["run", "job", "--", "true"]));
    eventually_blocking("the waiter is in the queue", || {
        server.cli(&["ZCARD", "stanchion_line:{job}"]).as_int() == 1
    });
    // Redisson's, one of them without a TTL; and the lock of a process of stanchion that has ended.
    hold_as_java(&server, "java", "88", "200000");
    done(&server, &["HSET", "endless", &format!("{JAVA}:89"), "1"]);
    let dead = "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:1";
    done(&server, &["HSET", "dead", dead, "1"]);
    done(&server, &["PEXPIRE", "dead", "200000"]);
    let exporter = Exporter::start(&server, &["--names=j*"]);
    let samples = exporter.shows(&[
        ("up", 1.0),
        ("survey_complete", 1.0),
        ("names{kind=\"lock\"}", 4.0),
        ("holders{kind=\"lock\"}", 4.0),
        ("waiters{kind=\"lock\"}", 1.0),
        ("names{kind=\"rwlock\"}", 1.0),
        ("holders{kind=\"rwlock\"}", 2.0),
        ("dead_holders{kind=\"lock\"}", 1.0),
        ("endless_holds{kind=\"lock\"}", 1.0),
        ("deadlocks", 0.0),
        ("name_holders{name=\"java\",kind=\"lock\"}", 1.0),
        ("name_waiters{name=\"job\",kind=\"lock\"}", 1.0),
        ("names_left_out", 0.0),
    ]);
    assert!(
        samples.keys().all(|name| !name.contains("catalog")),
        "{samples:?}"
    );
    // The hold of Redisson grows older from survey to survey.
    let age = "name_hold_seconds{name=\"java\",kind=\"lock\"}";
    let first = samples[age];
    eventually_blocking("the hold of Redisson is older", || {
        exporter.samples()[age] > first
    });
    drop(waiter);
}

#[test]
fn the_most_waited_for_names_come_first() {
    let server = RedisServer::start();
    for name in ["a", "b", "c"] {
        hold_as_java(&server, name, "1", "200000");
    }
    let mut subscriber = Command::new("redis-cli");
    subscriber
        .args(["-p", &server.addr().port().to_string()])
        .args(["subscribe", "redisson_lock__channel:{c}"]);
    let subscriber = Process::spawn(&mut subscriber);
    wait_for_waiters(&server, "c", 1);
    let exporter = Exporter::start(&server, &["--names=*", "--most-names=1"]);
    exporter.shows(&[
        ("names_left_out", 2.0),
        ("name_waiters{name=\"c\",kind=\"lock\"}", 1.0),
    ]);
    drop(subscriber);
}

#[test]
fn a_server_that_ends_is_reported_and_found_again() {
    let mut server = RedisServer::start();
    hold_as_java(&server, "java", "1", "200000");
    let exporter = Exporter::start(&server, &[]);
    exporter.shows(&[("up", 1.0), ("names{kind=\"lock\"}", 1.0)]);
    server.kill();
    let samples = exporter.shows(&[("up", 0.0)]);
    assert!(!samples.contains_key("names{kind=\"lock\"}"), "{samples:?}");
    assert!(samples["survey_age_seconds"] > 0.0);
    assert_eq!(
        exporter.get("/healthz"),
        ("HTTP/1.1 200 OK".into(), "ok\n".into())
    );
    assert_eq!(exporter.get("/").0, "HTTP/1.1 404 Not Found");
    server.restart();
    exporter.shows(&[("up", 1.0)]);
}

/// A first survey can take minutes. The server is not down during that time.
#[test]
fn up_is_missing_until_the_first_survey_has_ended() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let exporter = Exporter::start_at(&url, &[]);
    let samples = exporter.samples();
    assert!(samples.is_empty(), "{samples:?}");
    // The server refuses connections from now on.
    drop(silent);
    exporter.shows(&[("up", 0.0)]);
}

/// A real Prometheus reads the page, and evaluates a query on it.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn prometheus_scrapes_it() {
    let program = std::env::var("STANCHION_PROMETHEUS").unwrap_or_else(|_| "prometheus".to_owned());
    if Command::new(&program).arg("--version").output().is_err() {
        eprintln!("SKIPPED prometheus_scrapes_it: no {program}, and no STANCHION_PROMETHEUS");
        return;
    }
    let server = RedisServer::start();
    for thread in ["1", "2", "3"] {
        hold_as_java(&server, &format!("java:{thread}"), thread, "200000");
    }
    let exporter = Exporter::start(&server, &[]);
    exporter.shows(&[("names{kind=\"lock\"}", 3.0)]);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    let target = &exporter.address;
    let scrapes = format!(
        "scrape_configs: [{{job_name: stanchion, scrape_interval: 1s, static_configs: [{{targets: ['{target}']}}]}}]"
    );
    std::fs::write(&config, scrapes).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let child = Command::new(&program)
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.path().join("data").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let prometheus = Exporter { child, address };
    let query = "/api/v1/query?query=stanchion_server_holders%7Bkind%3D%22lock%22%7D";
    eventually_blocking("Prometheus has the number of holders", || {
        let open = TcpStream::connect(&prometheus.address).is_ok();
        open && prometheus.get(query).1.contains("\"3\"]")
    });
}
