//! Tests RedLock over real servers that are killed, frozen and restarted.

use stanchion::redlock::NodeOutcome;
use stanchion::{Client, RedGuard, RedLock, RedLockError};
use stanchion_testkit::{Proxy, RedisServer, RedisServerBuilder, eventually, eventually_async};
use stanchion_tests::faults::*;
use tokio::time::Instant;

/// Several servers, each with a proxy in front.
struct Nodes {
    servers: Vec<RedisServer>,
    proxies: Vec<Proxy>,
}

impl Nodes {
    fn start(n: usize, builder: impl Fn() -> RedisServerBuilder) -> Option<Self> {
        let servers: Vec<RedisServer> = (0..n).map_while(|_| start(builder())).collect();
        let proxies = servers.iter().map(|s| Proxy::start(s.addr())).collect();
        (servers.len() == n).then_some(Self { servers, proxies })
    }

    async fn clients(&self) -> Vec<Client> {
        let mut clients = Vec::new();
        for proxy in &self.proxies {
            clients.push(connect(proxy.url()).await);
        }
        clients
    }

    async fn lock(&self) -> RedLock {
        self.lock_with(&self.clients().await).await
    }

    async fn lock_with(&self, clients: &[Client]) -> RedLock {
        let lock = RedLock::new(clients, "orders").unwrap();
        // A late grant is undone, and a release beyond the quorum is completed, in the background. Until then that node is busy. If a test
        // froze another node before that, neither a quorum nor contention would be known before the node timeout. Therefore all nodes are
        // held once: after that no earlier request is in flight.
        self.everywhere(&lock).await.release().await.unwrap();
        self.nothing_left().await;
        lock
    }

    async fn nothing_left(&self) {
        for server in &self.servers {
            nothing_left(server).await;
        }
    }

    /// Acquires until all nodes are held: on a busy machine the last node's reply may be too late to be counted.
    async fn everywhere(&self, lock: &RedLock) -> RedGuard {
        loop {
            let guard = lock.acquire().await.unwrap();
            if guard.nodes_held() == lock.nodes() {
                return guard;
            }
            guard.release().await.unwrap();
            self.nothing_left().await;
        }
    }

    fn held_on(&self) -> usize {
        self.servers
            .iter()
            .filter(|server| holder(server, "orders").is_some())
            .count()
    }
}

fn lease(lock: RedLock, millis: u64) -> RedLock {
    lock.lease(stanchion_tests::lease(ms(millis)))
}

async fn renewed_quorum(guard: &RedGuard) {
    let before = guard.valid_until();
    eventually("a quorum is renewed", || {
        assert!(guard.is_held(), "lost");
        guard.valid_until() > before
    })
    .await;
}

#[tokio::test]
async fn a_killed_majority_is_reported_with_reasons_and_waited_for() {
    let Some(mut nodes) = Nodes::start(3, RedisServer::builder) else {
        return;
    };
    let clients = nodes.clients().await;
    let lock = nodes.lock_with(&clients).await;
    nodes.servers[0].kill();
    nodes.servers[2].kill();
    // Before the disconnects the reported reason may be a missing reply.
    eventually("the client detects both disconnects", || {
        !clients[0].is_connected() && !clients[2].is_connected()
    })
    .await;
    // While the client connects to a node, the only reason is the missing reply of the node.
    eventually_async("both nodes report a failure", async || {
        let started = Instant::now();
        let error = lock.try_acquire().await.unwrap_err();
        assert!(started.elapsed() < ms(100) + SLACK);
        let RedLockError::NoQuorum { nodes, .. } = &error else {
            panic!("{error}");
        };
        // The other node may still have the grant of the try before.
        let granted = matches!(nodes[1].outcome, NodeOutcome::Granted);
        let mut dead = [&nodes[0], &nodes[2]].into_iter();
        granted && dead.all(|it| matches!(it.outcome, NodeOutcome::Failed(_)))
    })
    .await;
    nothing_left(&nodes.servers[1]).await;
    let waiter = tokio::spawn(lock.acquire());
    tokio::time::sleep(ms(300)).await;
    assert!(!waiter.is_finished());
    nodes.servers[2].restart();
    let guard = soon(LONG / 3, waiter).await.unwrap().unwrap();
    guard.release().await.unwrap();
    nothing_left(&nodes.servers[2]).await;
}

#[tokio::test]
async fn a_node_that_keeps_its_data_over_a_restart_takes_part_again() {
    let Some(mut nodes) = Nodes::start(3, || RedisServer::builder().append_only()) else {
        return;
    };
    let lock = lease(nodes.lock().await, 3_000);
    let guard = nodes.everywhere(&lock).await;
    nodes.servers[0].restart();
    renewed_quorum(&guard).await;
    assert_eq!(nodes.held_on(), 3);
    eventually("all nodes are held", || guard.nodes_held() == 3).await;
    guard.release().await.unwrap();
    nodes.nothing_left().await;
}

#[tokio::test]
async fn a_process_starts_while_a_minority_of_the_servers_is_down() {
    let Some(mut nodes) = Nodes::start(3, RedisServer::builder) else {
        return;
    };
    nodes.servers[2].kill();
    let mut clients = Vec::new();
    for server in &nodes.servers {
        let client = Client::connect_lazy_with(config(server.url()));
        clients.push(client.await.unwrap());
    }
    let lock = RedLock::new(&clients, "orders").unwrap();
    let guard = soon(LONG, lock.acquire()).await.unwrap();
    assert_eq!(guard.nodes_held(), 2);
    guard.release().await.unwrap();
    // The restarted node takes part once it is connected.
    nodes.servers[2].restart();
    let guard = soon(LONG, nodes.everywhere(&lock)).await;
    guard.release().await.unwrap();
    nodes.nothing_left().await;
}

#[tokio::test]
async fn a_duplicate_server_is_refused_once_it_is_known() {
    let Some(nodes) = Nodes::start(2, RedisServer::builder) else {
        return;
    };
    let mut clients = Vec::new();
    for server in [0, 1, 1] {
        let client = Client::connect_lazy(nodes.servers[server].url());
        clients.push(client.await.unwrap());
    }
    let lock = RedLock::new(&clients, "orders").unwrap();
    eventually("all clients are connected", || {
        clients.iter().all(Client::is_connected)
    })
    .await;
    let error = lock.acquire().await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("nodes 1 and 2 are the same server"),
        "{error}"
    );
    nodes.nothing_left().await;
}
