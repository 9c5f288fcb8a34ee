//! Three in the morning: 21 locks, 3 processes, 30 waiters, one holder that is dead, one deadlock. The page
//! `docs/three-in-the-morning.md` shows what the commands print here.

use std::time::Duration;

use stanchion::{AcquireOptions, Client, ClientConfig, Lock, LockGuard};
use stanchion_testkit::RedisServer;
use tokio::task::JoinHandle;

use super::{done, lines};
use crate::support::{output, text, with};

/// A client of stanchion that has no connection any more.
const DEAD: &str = "11111111-1111-8111-8111-111111111111";

async fn client(server: &RedisServer, app: &str) -> Client {
    let config = ClientConfig::new(server.url()).name(app);
    Client::connect_with(config).await.unwrap()
}

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

/// Holds one name and waits for another, as one owner.
fn entangled(client: &Client, holds: &'static str, waits: &'static str) -> JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        let owner = AcquireOptions::new().owner(&client.owner());
        let _held = lock(&client, holds)
            .acquire_with(owner.clone())
            .await
            .unwrap();
        while lock(&client, waits)
            .status()
            .await
            .unwrap()
            .holder
            .is_none()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(lock(&client, waits).acquire_with(owner).await);
    })
}

struct Incident {
    server: RedisServer,
    _held: Vec<LockGuard>,
    tasks: Vec<JoinHandle<()>>,
}

impl Incident {
    async fn begin() -> Self {
        let server = RedisServer::builder().append_only().start();
        let mut apps = Vec::new();
        for app in ["billing", "mail", "orders"] {
            apps.push(client(&server, app).await);
        }
        let mut held = Vec::new();
        for number in 1..=18 {
            let name = format!("job:{number}");
            held.push(lock(&apps[number % 3], &name).acquire().await.unwrap());
        }
        done(&server, &["HSET", "nightly", &format!("{DEAD}:7"), "1"]);
        done(&server, &["PEXPIRE", "nightly", "600000"]);
        let waiters = (0..28).map(|number| {
            let name = if number < 24 { "nightly" } else { "job:3" };
            let waiting = lock(&apps[number % 3], name).acquire();
            tokio::spawn(async move { drop(waiting.await) })
        });
        let mut tasks: Vec<_> = waiters.collect();
        tasks.push(entangled(&apps[0], "ledger", "stock"));
        tasks.push(entangled(&apps[2], "stock", "ledger"));
        Self {
            server,
            _held: held,
            tasks,
        }
    }

    /// Waits until every process has told of what lasts.
    async fn is_told(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let seen = lines(&output(&self.server, &["ls", "--json"]));
            let waited_for = seen.iter().filter(|line| {
                let longest = line["longest_wait_ms"].as_u64();
                longest.is_some_and(|longest| longest >= 1000)
            });
            // nightly, job:3 and the two of the deadlock.
            if seen.last().unwrap()["names"] == 21 && waited_for.count() == 4 {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{seen:#?}");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Output of a command on a terminal of 100 columns. Shown with `--nocapture`, for the page.
    #[expect(clippy::print_stdout, reason = "the page is made of it")]
    fn shown(&self, args: &[&str]) -> String {
        let out = with(&self.server, args)
            .env("COLUMNS", "100")
            .output()
            .unwrap();
        let shown = text(&out.stdout);
        println!("$ stanchion {}\n{shown}", args.join(" "));
        shown
    }
}

impl Drop for Incident {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_in_the_morning() {
    let incident = Incident::begin().await;
    incident.is_told().await;

    // Who holds what, for how long, and where the queue is.
    let told = incident.shown(&["ls"]);
    assert_eq!(
        told.lines().filter(|line| !line.starts_with("  ^")).count(),
        22,
        "{told}"
    );
    let row = |name: &str| told.lines().find(|line| line.starts_with(name)).unwrap();
    let pid = format!("pid {}", std::process::id());
    assert!(
        row("ledger").contains("billing@") && row("ledger").contains(&pid),
        "{told}"
    );
    let nightly = row("nightly").split_whitespace().collect::<Vec<_>>();
    assert!(
        nightly.contains(&"seen") && nightly.contains(&"3"),
        "{told}"
    );
    let all = lines(&output(&incident.server, &["ls", "--scan", "--json"]));
    assert_eq!(all.last().unwrap()["names"], 21);

    // Who they are.
    let clients = incident.shown(&["clients"]);
    for app in ["billing", "mail", "orders"] {
        assert!(clients.contains(app), "{clients}");
    }

    // What is wrong, and what to do.
    let findings = lines(&output(&incident.server, &["doctor", "--scan", "--json"]));
    let of = |check: &str| {
        findings
            .iter()
            .find(|finding| finding["check"] == check)
            .unwrap()
    };
    let deadlock = of("deadlock");
    assert_eq!(deadlock["level"], "fail", "{deadlock}");
    let what = deadlock["what"].as_str().unwrap();
    for word in ["ledger", "stock", "billing", "orders"] {
        assert!(what.contains(word), "{what}");
    }
    assert_eq!(of("holder-gone")["level"], "warn");
    assert!(
        of("holder-gone")["what"]
            .as_str()
            .unwrap()
            .starts_with("nightly:")
    );
    incident.shown(&["doctor", "--scan"]);

    // The dead one is helped at once, and its waiters go on.
    let nightly = incident.shown(&["inspect", "nightly"]);
    assert_eq!(nightly.matches(&pid).count(), 3, "{nightly}");
    incident.shown(&["force-release", "nightly", "--yes"]);
    stanchion_testkit::eventually("all who waited for it are done", || {
        incident.server.cli(&["EXISTS", "nightly"]).as_int() == 0
    })
    .await;
}
