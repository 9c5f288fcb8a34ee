//! A cluster of real nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::admin::Value;
use crate::builder::{Part, RedisServerBuilder};
use crate::eventually::{eventually_blocking, within};
use crate::sentinel::offset;
use crate::servers::{RedisServer, start_all};

/// Three masters (nodes 0 to 2) with a replica each (nodes 3 to 5); killed and reaped when dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
    ids: Vec<String>,
}

const MASTERS: usize = 3;
const NODES: usize = 2 * MASTERS;
const SLOTS: usize = 16_384;

/// The milliseconds of silence after which a node counts as failing.
const NODE_TIMEOUT: &str = "1500";

/// The time after which nodes that have not met are introduced again: longer than the node timeout.
const HANDSHAKE: Duration = Duration::from_secs(5);

impl Cluster {
    /// Starts a fresh cluster. Returns `None`, with a line on stderr, when no server is installed.
    #[must_use]
    pub fn or_skip(test: &str) -> Option<Self> {
        if RedisServer::available() {
            return Some(Self::start());
        }
        assert!(RedisServer::or_skip(test).is_none());
        None
    }

    /// Starts the nodes, joins them and waits until they agree and every replica is in sync. Takes about 3 s: a node accepts
    /// no writes in its first two seconds.
    ///
    /// # Panics
    /// If it takes more than 10 s.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// As [`Cluster::start`], with these additional settings of each node.
    ///
    /// # Panics
    /// As [`Cluster::start`], and if the server does not know a setting.
    #[must_use]
    pub fn with(settings: &[(&str, &str)]) -> Self {
        let node = || {
            let node = RedisServer::builder()
                .part(Part::Node)
                .arg("cluster-node-timeout", NODE_TIMEOUT)
                .arg("cluster-replica-validity-factor", "0")
                .arg("repl-diskless-sync-delay", "0");
            let add =
                |node, (name, value): &(&str, &str)| RedisServerBuilder::arg(node, name, value);
            settings.iter().fold(node, add)
        };
        let nodes = start_all((0..NODES).map(|_| node()));
        let ids = nodes
            .iter()
            .map(|n| n.done(&["CLUSTER", "MYID"]).as_text().to_owned())
            .collect();
        let cluster = Self { nodes, ids };
        cluster.join();
        cluster.settle();
        cluster
    }

    fn join(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            // A conflict between nodes is resolved by the higher epoch, so no two may be equal.
            node.done(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number < MASTERS {
                let (from, to) = (number * SLOTS / MASTERS, (number + 1) * SLOTS / MASTERS - 1);
                node.done(&[
                    "CLUSTER",
                    "ADDSLOTSRANGE",
                    &from.to_string(),
                    &to.to_string(),
                ]);
            }
        }
        self.meet();
        let met = || self.running().all(|node| known(node) == NODES);
        eventually_blocking("the nodes have met", || {
            // A node gives up a handshake that takes longer than its timeout, as on a busy machine, and does not repeat it.
            within(HANDSHAKE, met) || {
                self.meet();
                false
            }
        });
        for number in MASTERS..NODES {
            let master = &self.ids[number - MASTERS];
            // Refused until the node knows that the other is a master.
            eventually_blocking("a replica finds its master", || {
                !self.nodes[number]
                    .cli(&["CLUSTER", "REPLICATE", master])
                    .is_error()
            });
        }
    }

    /// Introduces the nodes to each other.
    fn meet(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[..number] {
                let (port, bus) = (other.addr().port(), other.bus_port());
                node.done(&[
                    "CLUSTER",
                    "MEET",
                    "127.0.0.1",
                    &port.to_string(),
                    &bus.to_string(),
                ]);
            }
        }
    }

    /// Waits until all running nodes serve and agree on every slot's master, and running replicas are in sync.
    pub fn settle(&self) {
        eventually_blocking("the cluster agrees", || {
            self.agrees() && self.running().all(in_step)
        });
    }

    /// Returns whether all running nodes serve and agree on every slot's master.
    fn agrees(&self) -> bool {
        let mut views = self.running().map(|node| {
            let info = node.done(&["CLUSTER", "INFO"]);
            info.as_text()
                .contains("cluster_state:ok")
                .then(|| masters(node))
        });
        let Some(Some(first)) = views.next() else {
            return false;
        };
        let dead = |id: &String| self.number(id).is_none_or(|n| !self.nodes[n].is_running());
        !first.is_empty()
            && !first.values().any(dead)
            && views.all(|view| view.as_ref() == Some(&first))
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    fn number(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|other| other == id)
    }

    /// Returns the URL for clients: `redis+cluster://…`, with the first three nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes[..MASTERS]
            .iter()
            .map(|n| n.addr().to_string())
            .collect();
        format!("redis+cluster://{}/", hosts.join(","))
    }

    /// Returns the node with this number.
    #[must_use]
    pub fn node(&self, number: usize) -> &RedisServer {
        &self.nodes[number]
    }

    /// Returns all nodes.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns the slot of a key.
    ///
    /// # Panics
    /// If no node runs.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let node = self.running().next().expect("a node runs");
        u16::try_from(node.done(&["CLUSTER", "KEYSLOT", key]).as_int()).expect("a slot")
    }

    /// Waits until all running nodes agree on the master that owns `slot`, and returns its number.
    ///
    /// # Panics
    /// If they do not agree within 10 s.
    #[must_use]
    pub fn master_of(&self, slot: u16) -> usize {
        eventually_blocking("the cluster agrees", || self.agrees());
        let node = self.running().next().expect("a node runs");
        let owners = masters(node);
        let (_, id) = owners
            .range(..=slot)
            .next_back()
            .expect("every slot has an owner");
        self.number(id).expect("an owner of ours")
    }

    /// Waits for agreement as [`Cluster::master_of`], and returns the number of the master that owns a key's slot.
    #[must_use]
    pub fn master_of_key(&self, key: &str) -> usize {
        self.master_of(self.slot(key))
    }

    /// Returns a running replica of a master.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn replica_of(&self, master: usize) -> usize {
        let port = self.nodes[master].addr().port().to_string();
        let is_replica = |node: &RedisServer| {
            node.is_running()
                && node.info("replication", "master_port").as_deref() == Some(port.as_str())
        };
        self.nodes
            .iter()
            .position(is_replica)
            .expect("a running replica")
    }

    /// Promotes the replica of `master`, without losing writes. Returns the new master.
    #[must_use]
    pub fn fail_over(&self, master: usize) -> usize {
        let replica = self.replica_of(master);
        self.nodes[replica].done(&["CLUSTER", "FAILOVER"]);
        self.await_promotion(replica)
    }

    /// Makes `replica` take over the slots of its master at once, with the data it has, without a vote.
    pub fn take_over(&self, replica: usize) {
        self.nodes[replica].done(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        let _ = self.await_promotion(replica);
    }

    /// Waits until `replica` is a master and all running nodes know it.
    fn await_promotion(&self, replica: usize) -> usize {
        let id = &self.ids[replica];
        eventually_blocking("the replica is promoted", || {
            self.agrees()
                && self
                    .running()
                    .all(|node| masters(node).values().any(|owner| owner == id))
        });
        replica
    }

    /// Kills a node (SIGKILL).
    pub fn kill(&mut self, number: usize) {
        self.nodes[number].kill();
    }

    /// Starts a killed node again; it remembers the cluster.
    pub fn restart(&mut self, number: usize) {
        self.nodes[number].restart();
    }

    /// Waits until the replica of `master` has everything that was written before this call.
    pub fn await_replication(&self, master: usize) {
        let written = offset(&self.nodes[master]);
        let replica = &self.nodes[self.replica_of(master)];
        eventually_blocking("the replica has everything", || offset(replica) >= written);
    }

    /// Stops the replica of `master` and its connection: later writes to the master are not replicated. Returns the replica;
    /// [`RedisServer::cont`] resumes it.
    #[must_use]
    pub fn hold_replication(&self, master: usize) -> usize {
        let replica = self.replica_of(master);
        self.nodes[replica].stop_signal();
        self.nodes[master].drop_replicas();
        replica
    }

    /// Begins to move `slot` to another master: from now on its owner redirects requests for missing keys there (`ASK`).
    ///
    /// # Panics
    /// If `to` owns it already.
    #[must_use]
    pub fn migrate(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = self.master_of(slot);
        assert_ne!(from, to, "node {to} owns slot {slot} already");
        let number = slot.to_string();
        self.nodes[to].done(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &self.ids[from]]);
        self.nodes[from].done(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &self.ids[to]]);
        Migration {
            cluster: self,
            slot,
            from,
            to,
        }
    }

    /// Moves `slot` with its keys to another master: from now on its old owner redirects requests there (`MOVED`).
    pub fn move_slot(&self, slot: u16, to: usize) {
        let migration = self.migrate(slot, to);
        migration.move_keys();
        migration.finish();
    }

    /// Returns every key of the cluster, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let is_master =
            |node: &&RedisServer| node.info("replication", "role").as_deref() == Some("master");
        let mut keys: Vec<String> = self
            .running()
            .filter(is_master)
            .flat_map(RedisServer::keys)
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the number of connections that are subscribed to `channel`, on all nodes together.
    #[must_use]
    pub fn subscribers(&self, channel: &str) -> usize {
        self.running().map(|node| node.subscribers(channel)).sum()
    }
}

/// A slot that is being moved from one master to another. If dropped before [`Migration::finish`], it stays half moved.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl Migration<'_> {
    /// Returns the node that the slot leaves.
    #[must_use]
    pub const fn from(&self) -> usize {
        self.from
    }

    /// Returns the slot's keys that have not been moved.
    #[must_use]
    pub fn keys_left(&self) -> Vec<String> {
        let keys = ["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), "1000"];
        self.cluster.nodes[self.from].done(&keys).as_texts()
    }

    /// Moves one key.
    pub fn move_key(&self, key: &str) {
        let port = self.cluster.nodes[self.to].addr().port().to_string();
        self.cluster.nodes[self.from].done(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }

    /// Moves all keys that are left.
    pub fn move_keys(&self) {
        for key in self.keys_left() {
            self.move_key(&key);
        }
    }

    /// Gives the slot with all remaining keys to its new owner, and waits until all nodes know it.
    pub fn finish(self) {
        let (slot, id) = (self.slot.to_string(), &self.cluster.ids[self.to]);
        let assign = ["CLUSTER", "SETSLOT", &slot, "NODE", id];
        // First, because the old owner gives the slot up when it learns of the new one, with the keys that it has then.
        self.move_keys();
        self.cluster.nodes[self.to].done(&assign);
        // Refused while the old owner still has a key.
        eventually_blocking("the old owner lets the slot go", || {
            self.move_keys();
            !self.cluster.nodes[self.from].cli(&assign).is_error()
        });
        eventually_blocking("all nodes know the new owner", || {
            self.cluster.agrees() && self.cluster.master_of(self.slot) == self.to
        });
    }
}

fn known(node: &RedisServer) -> usize {
    let nodes = node.done(&["CLUSTER", "NODES"]);
    nodes
        .as_text()
        .lines()
        .filter(|line| !line.contains("handshake"))
        .count()
}

/// Returns the masters by the first slot of each of their ranges, as a node sees it; empty unless every slot has one.
fn masters(node: &RedisServer) -> BTreeMap<u16, String> {
    let slots = node.done(&["CLUSTER", "SLOTS"]);
    let mut covered = 0;
    let mut owners = BTreeMap::new();
    for range in slots.as_array() {
        let [from, to, Value::Array(master), ..] = range.as_array() else {
            panic!("not a range of slots: {range}");
        };
        covered += to.as_int() - from.as_int() + 1;
        let from = u16::try_from(from.as_int()).expect("a slot");
        owners.insert(from, master[2].as_text().to_owned());
    }
    if usize::try_from(covered) != Ok(SLOTS) {
        owners.clear();
    }
    owners
}

fn in_step(node: &RedisServer) -> bool {
    let info = |field| node.info("replication", field);
    info("role").as_deref() == Some("master") || info("master_link_status").as_deref() == Some("up")
}
