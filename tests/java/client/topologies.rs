//! Every shared primitive on a cluster and behind Sentinel: requests of both libraries reach the right node, and messages arrive.

use serde_json::json;
use stanchion::{
    Client, CountDownLatch, FairLock, LeasedSemaphore, Lock, Lockable, MultiLock, RwLock, Semaphore,
};
use stanchion_testkit::{RedisServer, SentinelSet, eventually, eventually_async};
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind, Object, Redisson};
use stanchion_tests::{cluster, sentinels};

/// Both libraries on several servers.
struct Place<'a> {
    java: Redisson,
    client: Client,
    servers: Vec<&'a RedisServer>,
}

impl<'a> Place<'a> {
    async fn new(java: Redisson, url: String, servers: Vec<&'a RedisServer>) -> Self {
        let config = stanchion::ClientConfig::new(url).poll_interval(LONG * 2);
        let client = Client::connect_with(config).await.unwrap();
        Self {
            java,
            client,
            servers,
        }
    }

    fn java(&self, kind: Kind, name: &str) -> Object {
        self.java.object("java", kind, name)
    }

    /// Waits until Redisson can write to the masters of these semaphores.
    async fn java_is_back(&self, names: &[&str]) {
        for name in names {
            let java = self.java(Kind::Semaphore, name);
            eventually_async("Redisson finds the new master", async || {
                let reply = java.with("add", json!({"n": 0})).await;
                reply.is_done()
            })
            .await;
        }
    }

    fn calls(&self, command: &str) -> u64 {
        let calls = |server: &&RedisServer| server.commands_processed().get(command).copied();
        self.servers.iter().filter_map(calls).sum()
    }

    /// Waits until a client is subscribed to a channel with this prefix, and only polls are sent.
    async fn listening(&self, channel: &str) {
        eventually("a client subscribes", || {
            let listening = |server: &&RedisServer| {
                ["CHANNELS", "SHARDCHANNELS"].iter().any(|list| {
                    let names = server.cli(&["PUBSUB", list, "*"]).as_texts();
                    names.iter().any(|name| name.starts_with(channel))
                })
            };
            self.servers.iter().any(listening)
        })
        .await;
        eventually_async("only polls are sent", async || {
            let scripts = || self.calls("evalsha") + self.calls("eval");
            let before = scripts();
            tokio::time::sleep(ms(100)).await;
            // Behind a client of Redisson's, a waiter in the fair queue polls every second.
            scripts() <= before + 1
        })
        .await;
    }
}

/// Java holds and `$acquire` waits, then the reverse. Polls are 60 s apart and leases 30 s long.
macro_rules! both_ways {
    ($place:expr, $java:expr, $lock:literal, $unlock:literal, $channel:expr, $acquire:expr) => {{
        let (place, java): (&Place<'_>, Object) = ($place, $java);
        java.done($lock).await;
        let waiting = $acquire;
        let releasing = async {
            place.listening($channel).await;
            java.done($unlock).await;
        };
        let (guard, ()) = within(SOON * 2, futures_util::future::join(waiting, releasing)).await;
        let waiter = java.start($lock, json!({}));
        place.listening($channel).await;
        guard.unwrap().release().await.unwrap();
        java_granted(waiter, SOON).await;
        java.done($unlock).await;
    }};
}

/// Every primitive, with names in many slots.
async fn every_primitive(place: &Place<'_>, round: &str) {
    let client = &place.client;
    for number in 0..4 {
        let name = format!("lock-{round}-{number}");
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let lock = Lock::new(client, &name).unwrap();
        let java = place.java(Kind::Lock, &name);
        both_ways!(place, java, "lock", "unlock", &channel, lock.acquire());
    }

    let name = format!("fair-{round}");
    let channel = format!("redisson_lock__channel:{{{name}}}:");
    let lock = FairLock::new(client, &name).unwrap();
    let java = place.java(Kind::Fair, &name);
    both_ways!(place, java, "lock", "unlock", &channel, lock.acquire());

    let name = format!("book-{round}");
    let channel = format!("redisson_rwlock:{{{name}}}");
    let book = RwLock::new(client, &name).unwrap();
    let java = place.java(Kind::Write, &name);
    both_ways!(place, java, "lock", "unlock", &channel, book.read());
    let java = place.java(Kind::Read, &name);
    both_ways!(place, java, "lock", "unlock", &channel, book.write());

    let name = format!("seats-{round}");
    let channel = format!("redisson_sc:{{{name}}}");
    let seats = Semaphore::new(client, &name).unwrap();
    assert!(seats.init(1).await.unwrap());
    let java = place.java(Kind::Semaphore, &name);
    both_ways!(place, java, "acquire", "release", &channel, seats.acquire());

    leased(place, &format!("leased-{round}")).await;
    latch(place, &format!("latch-{round}")).await;
    multi(place, ["a", "b"].map(|member| format!("{member}-{round}"))).await;
}

async fn leased(place: &Place<'_>, name: &str) {
    let channel = format!("redisson_sc:{{{name}}}");
    let seats = LeasedSemaphore::new(&place.client, name).unwrap();
    // Returns `false` if the semaphore survived a failover.
    seats.init(1).await.unwrap();
    let java = place.java(Kind::Leased, name);
    let permit = seats.acquire().await.unwrap();
    let waiter = java.start("acquire", json!({"lease": 30_000}));
    place.listening(&channel).await;
    permit.release().await.unwrap();
    let theirs = java_granted(waiter, SOON).await;
    let releasing = async {
        place.listening(&channel).await;
        java.with("release", json!({"permit": theirs.text()}))
            .await
            .value();
    };
    let both = futures_util::future::join(seats.acquire(), releasing);
    let (permit, ()) = within(SOON * 2, both).await;
    permit.unwrap().release().await.unwrap();
}

async fn latch(place: &Place<'_>, name: &str) {
    let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
    let ours = CountDownLatch::new(&place.client, name).unwrap();
    let java = place.java(Kind::Latch, name);
    assert!(java.with("init", json!({"n": 1})).await.bool());
    let counting = async {
        place.listening(&channel).await;
        java.done("countDown").await;
    };
    let (open, ()) = within(SOON * 2, futures_util::future::join(ours.wait(), counting)).await;
    open.unwrap();
    assert!(ours.arm(1).await.unwrap());
    let waiter = java.start("await", json!({}));
    place.listening(&channel).await;
    assert_eq!(ours.count_down().await.unwrap(), 0);
    java_granted(waiter, SOON).await;
}

/// The members are in different slots, so both libraries acquire them one after the other.
async fn multi(place: &Place<'_>, names: [String; 2]) {
    let members = names
        .each_ref()
        .map(|name| Lock::new(&place.client, name).unwrap());
    let ours = MultiLock::new(members.iter().map(|member| member as &dyn Lockable)).unwrap();
    let [first, second] = names.each_ref().map(String::as_str);
    let java = place.java.actor("java").multi(&[first, second]);
    let channel = format!("redisson_lock__channel:{{{first}}}");
    both_ways!(place, java, "lock", "unlock", &channel, ours.acquire());
}

fn addresses<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> Vec<String> {
    servers.into_iter().map(RedisServer::url).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primitive_works_on_a_cluster() {
    let Some(jvm) = Jvm::shared() else { return };
    let Some(cluster) = cluster() else { return };
    let settings = json!({"mode": "cluster", "addresses": addresses(cluster.nodes())});
    let java = Redisson::connect(&jvm, settings).await;
    let servers = cluster.nodes().iter().collect();
    let place = Place::new(java, cluster.url(), servers).await;
    every_primitive(&place, "before").await;
    assert!(place.calls("spublish") > 20, "sharded messages");
    assert_eq!(place.calls("publish"), 0);

    // A replica takes over the slots of its master, and then a slot with a key moves. Redisson finds the first by its scan twice a second,
    // and the second by a redirect.
    let _ = cluster.fail_over(cluster.master_of_key("seats-before"));
    let slot = cluster.slot("leased-before");
    let to = cluster.master_of_key("lock-before-0");
    if to != cluster.master_of(slot) {
        cluster.move_slot(slot, to);
    }
    place.java_is_back(&["seats-before", "leased-before"]).await;
    every_primitive(&place, "after").await;
    leased(&place, "leased-before").await;

    eventually("only fence counters are left", || {
        let mut keys = cluster.keys();
        keys.retain(|key| {
            !key.starts_with("stanchion_") && !key.starts_with("redisson_unlock_latch")
        });
        keys == [
            "leased-after",
            "leased-before",
            "seats-after",
            "seats-before",
        ]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primitive_works_behind_sentinels() {
    let Some(jvm) = Jvm::shared() else { return };
    let Some(set) = sentinels() else { return };
    let sentinels = (0..3).map(|number| set.sentinel(number));
    let settings = json!({
        "mode": "sentinel",
        "addresses": addresses(sentinels),
        "master": SentinelSet::SERVICE,
    });
    let java = Redisson::connect(&jvm, settings).await;
    let servers = (0..3).map(|number| set.server(number)).collect();
    let place = Place::new(java, set.url(), servers).await;
    every_primitive(&place, "before").await;
    let _ = set.fail_over();
    place.java_is_back(&["seats-before"]).await;
    every_primitive(&place, "after").await;
}
