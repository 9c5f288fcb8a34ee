//! A master, its replicas, and the sentinels that watch them.

use crate::admin::Value;
use crate::builder::Part;
use crate::eventually::eventually_blocking;
use crate::servers::{RedisServer, start_all};

/// One master, two replicas and three sentinels, each a process; killed and reaped when dropped.
#[derive(Debug)]
pub struct SentinelSet {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

/// The milliseconds of silence after which a server counts as down.
const DOWN_AFTER: u32 = 1000;

/// The name and the password of the user with which sentinels log in to the servers.
const WATCHER: &str = "watcher";

impl SentinelSet {
    /// The sentinels' name for the master.
    pub const SERVICE: &'static str = "orders-db";

    /// Starts a fresh set. Returns `None`, with a line on stderr, when no server is installed.
    #[must_use]
    pub fn or_skip(test: &str) -> Option<Self> {
        if RedisServer::available() {
            return Some(Self::start());
        }
        assert!(RedisServer::or_skip(test).is_none());
        None
    }

    /// Starts all processes and waits until every replica is in sync and every sentinel knows all others.
    ///
    /// # Panics
    /// If it takes more than 10 s.
    #[must_use]
    pub fn start() -> Self {
        let server = || {
            RedisServer::builder()
                .arg("repl-diskless-sync-delay", "0")
                .arg("user", &format!("{WATCHER} on >{WATCHER} +@all ~* &*"))
        };
        let master = server().start();
        let port = master.addr().port();
        let master_at = format!("127.0.0.1 {port}");
        let replicas = (0..2).map(|_| server().arg("replicaof", &master_at));
        let sentinels = (0..3).map(|_| {
            let id = random_id();
            let name = Self::SERVICE;
            RedisServer::builder()
                .part(Part::Sentinel(id.clone()))
                .arg("sentinel", &format!("myid {id}"))
                .arg("sentinel", &format!("monitor {name} 127.0.0.1 {port} 2"))
                .arg(
                    "sentinel",
                    &format!("down-after-milliseconds {name} {DOWN_AFTER}"),
                )
                .arg("sentinel", &format!("failover-timeout {name} 2000"))
                .arg("sentinel", &format!("parallel-syncs {name} 2"))
                .arg("sentinel", &format!("auth-user {name} {WATCHER}"))
                .arg("sentinel", &format!("auth-pass {name} {WATCHER}"))
        });
        let mut started = start_all(replicas.chain(sentinels));
        let sentinels = started.split_off(2);
        let mut servers = vec![master];
        servers.extend(started);
        for sentinel in &sentinels {
            // Redis 7.0 and later; an older sentinel keeps its slower periods.
            let _ = sentinel.cli(&[
                "SENTINEL",
                "DEBUG",
                "info-period",
                "200",
                "ask-period",
                "200",
                "publish-period",
                "200",
            ]);
        }
        let set = Self { servers, sentinels };
        set.settle();
        set
    }

    /// Returns the URL for clients: `redis+sentinel://…`, with all sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .sentinels
            .iter()
            .map(|s| s.addr().to_string())
            .collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), Self::SERVICE)
    }

    /// Returns the server with this number; number 0 starts as the master.
    #[must_use]
    pub fn server(&self, number: usize) -> &RedisServer {
        &self.servers[number]
    }

    /// Returns the sentinel with this number.
    #[must_use]
    pub fn sentinel(&self, number: usize) -> &RedisServer {
        &self.sentinels[number]
    }

    /// Returns the number of the server that all running sentinels name and that itself reports to be a master; `None` while
    /// they do not agree.
    #[must_use]
    pub fn find_master(&self) -> Option<usize> {
        let mut ports = self
            .sentinels
            .iter()
            .filter(|s| s.is_running())
            .map(|sentinel| {
                let address = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::SERVICE]);
                if address.is_nil() || address.is_error() {
                    None
                } else {
                    Some(address.as_array()[1].as_int())
                }
            });
        let port = ports.next()??;
        if !ports.all(|other| other == Some(port)) {
            return None;
        }
        let found = self
            .servers
            .iter()
            .position(|s| i64::from(s.addr().port()) == port)?;
        let server = &self.servers[found];
        (server.is_running() && role(server) == "master").then_some(found)
    }

    /// Waits until [`SentinelSet::find_master`] finds the master, and returns its number.
    ///
    /// # Panics
    /// If there is none within 10 s.
    #[must_use]
    pub fn master(&self) -> usize {
        let mut found = None;
        eventually_blocking("the sentinels agree on a master", || {
            found = self.find_master();
            found.is_some()
        });
        found.expect("found")
    }

    /// Waits until every running server but the master is a replica in sync, and every sentinel knows all others.
    pub fn settle(&self) {
        eventually_blocking("the replicas are in step and known", || {
            let running = self.servers.iter().filter(|s| s.is_running()).count();
            let Some(master) = self.find_master() else {
                return false;
            };
            let in_step = self
                .servers
                .iter()
                .enumerate()
                .filter(|(_, s)| s.is_running())
                .all(|(n, server)| {
                    n == master
                        || (role(server) == "slave"
                            && server.info("replication", "master_link_status").as_deref()
                                == Some("up"))
                });
            let mut sentinels = self.sentinels.iter().filter(|s| s.is_running());
            let known = sentinels.all(|sentinel| {
                healthy(sentinel, "REPLICAS") + 1 >= running
                    && healthy(sentinel, "SENTINELS") + 1 == self.sentinels.len()
            });
            in_step && known
        });
    }

    /// Makes the sentinels fail over, and waits until the old master follows the new one. Returns the new master.
    ///
    /// Until it follows, the old master accepts writes, which are lost. Earlier writes are kept.
    #[must_use]
    pub fn fail_over(&self) -> usize {
        let before = self.master();
        self.await_replication();
        let sentinel = self
            .sentinels
            .iter()
            .find(|s| s.is_running())
            .expect("a sentinel runs");
        let mut new = None;
        eventually_blocking("another master", || {
            let found = self.find_master();
            new = found.filter(|now| *now != before);
            // Refused while the sentinel's information about the replicas is too old, and during a failover. A sentinel does not repeat a
            // failover that it has aborted.
            if found == Some(before) {
                let _reply = sentinel.cli(&["SENTINEL", "FAILOVER", Self::SERVICE]);
            }
            new.is_some()
        });
        let new = new.unwrap_or(before);
        self.settle();
        new
    }

    /// Waits until the replicas have everything that was written to the master before this call.
    pub fn await_replication(&self) {
        let master = self.master();
        let written = offset(&self.servers[master]);
        eventually_blocking("the replicas have everything", || {
            self.replicas(master)
                .all(|replica| offset(replica) >= written)
        });
    }

    /// Waits until the master is a server other than `before`, and returns it.
    #[must_use]
    pub fn another_master(&self, before: usize) -> usize {
        eventually_blocking("another master", || {
            self.find_master().is_some_and(|now| now != before)
        });
        self.master()
    }

    /// Kills a server (SIGKILL).
    pub fn kill(&mut self, number: usize) {
        self.servers[number].kill();
    }

    /// Starts a killed server again, with its original configuration.
    pub fn restart(&mut self, number: usize) {
        self.servers[number].restart();
    }

    /// Kills a sentinel (SIGKILL).
    pub fn kill_sentinel(&mut self, number: usize) {
        self.sentinels[number].kill();
    }

    /// Starts a killed sentinel again, with its original configuration: it knows of no failover until another sentinel reports one.
    pub fn restart_sentinel(&mut self, number: usize) {
        self.sentinels[number].restart();
    }

    /// Locks only the sentinels out of a server: they consider it down, and cannot tell it that it was replaced.
    pub fn hide_from_sentinels(&self, number: usize) {
        // Not `off`: the sentinels would fall back to the default user.
        self.servers[number].done(&["ACL", "SETUSER", WATCHER, "-@all"]);
    }

    /// Stops the replicas and their connections: later writes to the master are not replicated.
    pub fn hold_replication(&self) {
        let master = self.master();
        for server in self.replicas(master) {
            server.stop_signal();
        }
        self.servers[master].drop_replicas();
    }

    /// Resumes the replicas of `master` after [`SentinelSet::hold_replication`].
    pub fn resume_replicas(&self, master: usize) {
        for server in self.replicas(master) {
            server.cont();
        }
    }

    fn replicas(&self, master: usize) -> impl Iterator<Item = &RedisServer> {
        let others = self
            .servers
            .iter()
            .enumerate()
            .filter(move |(n, _)| *n != master);
        others
            .map(|(_, server)| server)
            .filter(|server| server.is_running())
    }
}

/// Returns the replication offset.
pub(crate) fn offset(server: &RedisServer) -> Option<u64> {
    let offset = server.info("replication", "master_repl_offset")?;
    offset.parse().ok()
}

fn role(server: &RedisServer) -> String {
    server.info("replication", "role").unwrap_or_default()
}

/// Returns the number of `REPLICAS` or `SENTINELS` that a sentinel considers healthy.
fn healthy(sentinel: &RedisServer, others: &str) -> usize {
    let list = sentinel.done(&["SENTINEL", others, SentinelSet::SERVICE]);
    let well = |one: &&Value| {
        let fields = one.as_texts();
        let mut pairs = fields.chunks(2);
        let flags = pairs.find_map(|pair| (pair[0] == "flags").then(|| pair[1].clone()));
        // `master_down` is not a sign: it is that sentinel's last report of the master, and may be long outdated.
        let is_bad = |flag: &str| matches!(flag, "s_down" | "o_down" | "disconnected");
        !flags.is_some_and(|flags| flags.split(',').any(is_bad))
    };
    list.as_array().iter().filter(well).count()
}

/// Returns forty random hexadecimal digits.
fn random_id() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let part = || format!("{:016x}", RandomState::new().hash_one(0));
    let mut id = [part(), part(), part()].concat();
    id.truncate(40);
    id
}
