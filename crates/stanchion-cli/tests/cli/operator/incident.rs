//! Three in the morning: 21 locks, 3 processes, 30 waiters, one holder that is dead, one deadlock. The page
//! `docs/running/troubleshooting.md` shows what the commands print here.

use std::process::Command;
use std::time::Duration;

use stanchion::{AcquireOptions, Client, ClientConfig, Lock};
use stanchion_testkit::{Process, RedisServer, eventually_async};

use super::{done, lines};
use crate::support::{output, text, with};

/// A client of stanchion that has no connection any more.
const DEAD: &str = "11111111-1111-8111-8111-111111111111";

/// The services, each a process of its own.
const APPS: [&str; 3] = ["billing", "mail", "orders"];

/// Where the process of a service finds its server, and which of them it is.
const URL: &str = "INCIDENT_URL";
const APP: &str = "INCIDENT_APP";

/// A lock that somebody holds: waits until that is so.
async fn taken(client: &Client, name: &str) -> Lock {
    let lock = Lock::new(client, name).unwrap();
    eventually_async("somebody holds it", async || {
        lock.status().await.unwrap().is_held()
    })
    .await;
    lock
}

/// The process of a service: this test program again, started by [`Incident::begin`] for this test alone.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is no test: a process of the incident"]
async fn service() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let app: usize = std::env::var(APP).unwrap().parse().unwrap();
    let config = ClientConfig::new(url).name(APPS[app]);
    let client = Client::connect_with(config).await.unwrap();
    let mut held = Vec::new();
    for number in (1..=18).filter(|number| number % 3 == app) {
        let lock = Lock::new(&client, format!("job:{number}")).unwrap();
        held.push(lock.acquire().await.unwrap());
    }
    for number in (0..28).filter(|number| number % 3 == app) {
        let name = if number < 24 { "nightly" } else { "job:3" };
        tokio::spawn(taken(&client, name).await.acquire());
    }
    // Two of them take two names in different order, each as one owner.
    let order = match APPS[app] {
        "billing" => Some(("ledger", "stock")),
        "orders" => Some(("stock", "ledger")),
        _ => None,
    };
    if let Some((holds, waits)) = order {
        let owner = AcquireOptions::new().owner(&client.owner());
        let lock = Lock::new(&client, holds).unwrap();
        held.push(lock.acquire_with(owner.clone()).await.unwrap());
        drop(taken(&client, waits).await.acquire_with(owner).await);
    }
    std::future::pending::<()>().await;
}

struct Incident {
    server: RedisServer,
    services: Vec<Process>,
}

impl Incident {
    fn begin() -> Self {
        let server = RedisServer::builder().append_only().start();
        done(&server, &["HSET", "nightly", &format!("{DEAD}:7"), "1"]);
        done(&server, &["PEXPIRE", "nightly", "600000"]);
        let service = |app: usize| {
            let mut again = Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", "operator::incident::service", "--ignored"]);
            Process::spawn(again.env(URL, server.url()).env(APP, app.to_string()))
        };
        Self {
            services: (0..APPS.len()).map(service).collect(),
            server,
        }
    }

    /// The process of a service, as operators see it.
    fn pid(&self, app: &str) -> String {
        let at = APPS.iter().position(|it| *it == app).unwrap();
        format!("pid {}", self.services[at].pid())
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

#[tokio::test(flavor = "multi_thread")]
async fn three_in_the_morning() {
    let incident = Incident::begin();
    incident.is_told().await;

    // Who holds what, for how long, and where the queue is.
    let told = incident.shown(&["ls"]);
    assert_eq!(
        told.lines().filter(|line| !line.starts_with("  ^")).count(),
        22,
        "{told}"
    );
    let row = |name: &str| told.lines().find(|line| line.starts_with(name)).unwrap();
    let billing = incident.pid("billing");
    assert!(
        row("ledger").contains("billing@") && row("ledger").contains(&billing),
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
    for app in APPS {
        let of = clients.lines().filter(|line| line.starts_with(app));
        assert_eq!(of.count(), 1, "{clients}");
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
    for app in APPS {
        assert_eq!(nightly.matches(&incident.pid(app)).count(), 1, "{nightly}");
    }
    incident.shown(&["force-release", "nightly", "--yes"]);
    stanchion_testkit::eventually("all who waited for it are done", || {
        incident.server.cli(&["EXISTS", "nightly"]).as_int() == 0
    })
    .await;
}
