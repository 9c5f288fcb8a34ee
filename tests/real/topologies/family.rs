//! Every primitive is held and waited for while slots move and masters fail over.

use std::time::Duration;

use stanchion::{
    Client, CountDownLatch, FairLock, FairLockGuard, LeasedPermit, LeasedSemaphore, LockGuard,
    Lockable, MultiGuard, MultiLock, Permit, ReadGuard, RwLock, Semaphore, WriteGuard,
};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::{cluster, lease, sentinels};
use tokio::task::JoinSet;

use super::support::*;

/// One object of each primitive for one client, with names under one prefix.
pub(crate) struct Family {
    pub(crate) lock: stanchion::Lock,
    pub(crate) fair: FairLock,
    pub(crate) written: RwLock,
    read: RwLock,
    pub(crate) semaphore: Semaphore,
    pub(crate) leased: LeasedSemaphore,
    pub(crate) latch: CountDownLatch,
    pub(crate) multi: MultiLock,
}

/// One hold of each.
pub(crate) struct Holds {
    pub(crate) lock: LockGuard,
    fair: FairLockGuard,
    write: WriteGuard,
    read: ReadGuard,
    permit: Permit,
    leased: LeasedPermit,
    multi: MultiGuard,
}

impl Family {
    pub(crate) fn new(client: &Client, prefix: &str, length: Duration) -> Self {
        let lease = lease(length);
        let name = |kind: &str| format!("{prefix}{kind}");
        // The name of a latch has no braces. The tag itself, used as a name, is in the slot of the tag.
        let tag = prefix.split(['{', '}']).nth(1);
        let latch = tag.map_or_else(|| name("latch"), str::to_owned);
        let members = ["m1", "m2"].map(|kind| lock(client, &name(kind), length));
        Self {
            lock: lock(client, &name("lock"), length),
            fair: FairLock::new(client, name("fair")).unwrap().lease(lease),
            written: RwLock::new(client, name("written")).unwrap().lease(lease),
            read: RwLock::new(client, name("read")).unwrap().lease(lease),
            semaphore: Semaphore::new(client, name("semaphore")).unwrap(),
            leased: LeasedSemaphore::new(client, name("leased"))
                .unwrap()
                .lease(lease),
            latch: CountDownLatch::new(client, latch).unwrap(),
            multi: MultiLock::new(members.iter().map(|lock| lock as &dyn Lockable))
                .unwrap()
                .lease(lease),
        }
    }

    pub(crate) async fn hold_everything(&self) -> Holds {
        assert!(self.semaphore.init(1).await.unwrap());
        assert!(self.leased.init(1).await.unwrap());
        assert!(self.latch.arm(1).await.unwrap());
        Holds {
            lock: self.lock.acquire().await.unwrap(),
            fair: self.fair.acquire().await.unwrap(),
            write: self.written.write().await.unwrap(),
            read: self.read.read().await.unwrap(),
            permit: self.semaphore.acquire().await.unwrap(),
            leased: self.leased.acquire().await.unwrap(),
            multi: self.multi.acquire().await.unwrap(),
        }
    }

    /// Waits for each in its own task. A task releases what it was granted and returns its name.
    fn wait_for_everything(self) -> JoinSet<&'static str> {
        let mut waiters = JoinSet::new();
        let Self {
            lock,
            fair,
            written,
            read,
            semaphore,
            leased,
            latch,
            multi,
        } = self;
        waiters.spawn(async move {
            lock.acquire().await.unwrap().release().await.unwrap();
            "lock"
        });
        waiters.spawn(async move {
            fair.acquire().await.unwrap().release().await.unwrap();
            "fair"
        });
        waiters.spawn(async move {
            written.read().await.unwrap().release().await.unwrap();
            "reader"
        });
        waiters.spawn(async move {
            read.write().await.unwrap().release().await.unwrap();
            "writer"
        });
        waiters.spawn(async move {
            semaphore.acquire().await.unwrap().release().await.unwrap();
            "semaphore"
        });
        waiters.spawn(async move {
            leased.acquire().await.unwrap().release().await.unwrap();
            "leased"
        });
        waiters.spawn(async move {
            latch.wait().await.unwrap();
            "latch"
        });
        waiters.spawn(async move {
            multi.acquire().await.unwrap().release().await.unwrap();
            "multi"
        });
        waiters
    }

    async fn tidy_up(&self) {
        assert!(self.semaphore.danger().delete().await.unwrap());
        assert!(self.leased.danger().delete().await.unwrap());
    }
}

impl Holds {
    fn valid_until(&self) -> [stanchion::Moment; 6] {
        [
            self.lock.valid_until(),
            self.fair.valid_until(),
            self.write.valid_until(),
            self.read.valid_until(),
            self.leased.valid_until(),
            self.multi.valid_until(),
        ]
    }

    /// Waits until the watchdog has renewed every hold.
    async fn renewed(&self) {
        let before = self.valid_until();
        eventually("all are renewed", || {
            let now = self.valid_until();
            let held = [
                self.lock.is_held(),
                self.fair.is_held(),
                self.write.is_held(),
                self.read.is_held(),
                self.leased.is_held(),
                self.multi.is_held(),
            ];
            assert_eq!(held, [true; 6]);
            now.iter().zip(before).all(|(now, before)| *now > before)
        })
        .await;
    }

    pub(crate) async fn release_everything(self, latch: &CountDownLatch) {
        self.lock.release().await.unwrap();
        self.fair.release().await.unwrap();
        self.write.release().await.unwrap();
        self.read.release().await.unwrap();
        self.permit.release().await.unwrap();
        self.leased.release().await.unwrap();
        self.multi.release().await.unwrap();
        assert_eq!(latch.count_down().await.unwrap(), 0);
    }
}

/// The number of subscribed channels of names with this prefix, without those of all processes of a queue.
fn channels<'a>(servers: impl Iterator<Item = &'a RedisServer>, prefix: &str) -> usize {
    let pattern = format!("*{}*", prefix.trim_end_matches(':'));
    let count = |server: &RedisServer, kind: &str| {
        let names = server.cli(&["PUBSUB", kind, &pattern]).as_texts();
        names
            .iter()
            .filter(|name| !name.ends_with(":stanchion"))
            .count()
    };
    let both = |server| count(server, "CHANNELS") + count(server, "SHARDCHANNELS");
    servers.map(both).sum()
}

/// One channel for each of eight waiters. The multi-lock waits on its first member only.
const CHANNELS: usize = 8;

/// Holds and waits for everything while `change` runs. Asserts that the holds survive and that messages wake the waiters, whose own polls
/// would come far too late.
pub(crate) async fn survives<'a>(
    (a, b): (Client, Client),
    prefix: &str,
    servers: impl Fn() -> Vec<&'a RedisServer>,
    change: impl FnOnce(),
) {
    let family = Family::new(&a, prefix, KEPT);
    let holds = family.hold_everything().await;
    let mut waiters = Family::new(&b, prefix, KEPT).wait_for_everything();
    let listening = || channels(servers().into_iter(), prefix) >= CHANNELS;
    eventually("all waiters listen", listening).await;
    apart(change);
    holds.renewed().await;
    eventually("all waiters listen again", listening).await;
    holds.release_everything(&family.latch).await;
    let mut woken = Vec::new();
    let all_wake = async {
        while let Some(name) = waiters.join_next().await {
            woken.push(name.unwrap());
        }
    };
    // The comparison below shows a missing waiter.
    let _ = tokio::time::timeout(BY_MESSAGE, all_wake).await;
    woken.sort_unstable();
    let all = [
        "fair",
        "latch",
        "leased",
        "lock",
        "multi",
        "reader",
        "semaphore",
        "writer",
    ];
    assert_eq!(woken, all);
    family.tidy_up().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primitive_works_on_a_cluster_of_three_nodes() {
    let Some(cluster) = cluster() else { return };
    let masters = || cluster.nodes()[..3].iter().collect();
    // Names that are spread over the nodes.
    let clients = (connect(cluster.url()).await, connect(cluster.url()).await);
    survives(clients, "spread-", masters, || {}).await;
    let left = |key: &String| {
        !["stanchion_once", "stanchion_semaphore_total"]
            .iter()
            .any(|known| key.starts_with(known))
    };
    eventually("only keys with a TTL are left", || {
        !leftovers(cluster.keys()).iter().any(left)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primitive_survives_the_move_of_its_slot() {
    let Some(cluster) = cluster() else { return };
    let clients = (connect(cluster.url()).await, connect(cluster.url()).await);
    let slot = cluster.slot("{t}");
    let to = (cluster.master_of(slot) + 1) % 3;
    let owner = || vec![cluster.node(cluster.master_of(slot))];
    survives(clients, "{t}:", owner, || cluster.move_slot(slot, to)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primitive_survives_the_failover_of_its_node() {
    let Some(cluster) = cluster() else { return };
    let clients = (connect(cluster.url()).await, connect(cluster.url()).await);
    let slot = cluster.slot("{t}");
    let owner = || vec![cluster.node(cluster.master_of(slot))];
    survives(clients, "{t}:", owner, || {
        let _ = cluster.fail_over(cluster.master_of(slot));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primitive_survives_a_failover_by_sentinels() {
    let Some(set) = sentinels() else { return };
    let clients = (connect(set.url()).await, connect(set.url()).await);
    let master = || vec![set.server(set.master())];
    survives(clients, "app:", master, || {
        let _ = set.fail_over();
    })
    .await;
}
