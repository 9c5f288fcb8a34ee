//! Both libraries derive the same keys and channels from any name.

use serde_json::json;
use stanchion::{
    Client, ClientConfig, CountDownLatch, FairLock, LeasedSemaphore, Lock, RwLock, Semaphore,
};
use stanchion_testkit::eventually;
use stanchion_tests::interop::*;
use stanchion_tests::java::Kind;

/// Usual and unusual names.
const NAMES: [&str; 12] = [
    "orders",
    "{tenant}:orders",
    "orders:{tenant}",
    "a{b",
    "a}b",
    "{}x",
    "{{deep}}",
    "größe/ünïcode/注文/🦀",
    "two words\tand a tab",
    "quote\"back\\slash'apostrophe",
    "line\nbreak\r\nand\0nul",
    "*[a-z]? %s ${x}\u{feff}",
];

/// The trace of one side: keys while it holds, subscribed channels, and published messages. Owners are masked.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    keys: Vec<String>,
    subscribed: Vec<String>,
    published: Vec<String>,
}

impl Trace {
    /// Removes the messages between processes of this library. Each process is subscribed to its own channel below Redisson's, and receives
    /// its grants there.
    fn ignore_own_channels(&mut self, channel: &str) {
        let quoted = format!("{channel:?}");
        let own = |text: &String| text.len() > quoted.len() + 36;
        assert!(self.subscribed.iter().all(own), "{self:#?}");
        self.subscribed = vec![self.published[0].split_once("\" \"").unwrap().0.to_owned() + "\""];
        self.published.retain(|text| {
            !["\"G ", "\"N ", "\"P "]
                .iter()
                .any(|message| text.contains(message))
        });
    }

    /// Maps the own channel of a process of this library, which is below Redisson's, to Redisson's channel. A grant by message counts as
    /// the message for one permit, and so does the message on which a process confirms one.
    fn map_own_channels(&mut self) {
        let redissons = self.subscribed[0].clone();
        let own = redissons.trim_end_matches('"').to_owned() + ":";
        self.subscribed.retain(|text| !text.starts_with(&own));
        for text in &mut self.published {
            if text.starts_with(&own) {
                let (_, message) = text.split_once("\" \"").unwrap();
                let message = if message.starts_with("G ") || message.starts_with("P OWNER 0") {
                    "1\""
                } else {
                    message
                };
                *text = format!("{redissons} \"{message}");
            }
        }
        self.published.dedup();
    }
}

/// Runs `work`, which returns the keys it saw, under MONITOR. Keys that only one of the libraries uses are left out.
async fn traced(fleet: &Fleet, work: impl AsyncFnOnce() -> Vec<String>) -> Trace {
    let extra = ["stanchion_", "redisson_unlock_latch:"];
    let monitor = fleet.server.monitor();
    let mut keys = work().await;
    fleet.settled().await;
    let lines = monitor.lines();
    let of = |command: &str| {
        let word = format!("\"{command}\" ");
        let arguments = |line: &String| {
            let (_, rest) = line.split_once("] ")?;
            let (first, rest) = rest.split_at_checked(word.len())?;
            first.eq_ignore_ascii_case(&word).then(|| masked(rest))
        };
        let mut found: Vec<String> = lines.iter().filter_map(arguments).collect();
        // The channel of all processes of a queue has no counterpart.
        found.retain(|text| !text.contains(":all:stanchion"));
        found.sort();
        found.dedup();
        found
    };
    keys.retain(|key| extra.iter().all(|prefix| !key.starts_with(prefix)));
    Trace {
        keys: keys.iter().map(|key| masked(key)).collect(),
        subscribed: of("SUBSCRIBE"),
        published: of("PUBLISH"),
    }
}

/// `text` with every `<uuid>:<number>` replaced.
fn masked(text: &str) -> String {
    const SHAPE: &[u8] = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx:";
    let fits = |(c, shape): (&u8, &u8)| match shape {
        b'x' => c.is_ascii_hexdigit(),
        other => c == other,
    };
    let at = (0..text.len()).find(|&i| {
        let window = text.as_bytes().get(i..i + SHAPE.len());
        window.is_some_and(|window| window.iter().zip(SHAPE).all(fits))
    });
    let Some(at) = at else { return text.to_owned() };
    let rest = text[at + SHAPE.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{}OWNER{}", &text[..at], masked(rest))
}

#[test]
fn owners_are_masked() {
    let uuid = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
    assert_eq!(
        masked(&format!("ä{uuid}:42:write {uuid}:7")),
        "äOWNER:write OWNER"
    );
    assert_eq!(masked(uuid), uuid);
}

/// Asserts that a holder and a waiter of either library use the same keys, channels and messages for every name.
async fn assert_same_for_both(
    kind: Kind,
    channel: impl Fn(&str) -> String,
    ours: impl AsyncFn(&Fleet, &str, &str) -> Vec<String>,
) {
    let Some(fleet) = fleet().await else { return };
    let (acquire, release) = match kind {
        Kind::Semaphore => ("acquire", "release"),
        _ => ("lock", "unlock"),
    };
    for name in NAMES {
        let (holder, waiter) = (
            fleet.java("holder", kind, name),
            fleet.java("waiter", kind, name),
        );
        if kind == Kind::Semaphore {
            holder.with("init", json!({"n": 1})).await.value();
        }
        let channel = channel(name);
        let by_java = traced(&fleet, async || {
            holder.done(acquire).await;
            let waiting = waiter.start(acquire, json!({}));
            fleet.listening(&channel).await;
            let keys = fleet.server.keys();
            holder.done(release).await;
            java_granted(waiting, SOON).await;
            waiter.done(release).await;
            keys
        })
        .await;
        assert!(by_java.keys.iter().any(|key| key == name), "{by_java:#?}");
        assert!(!by_java.published.is_empty(), "{by_java:#?}");
        let mut by_us = traced(&fleet, async || ours(&fleet, name, &channel).await).await;
        match kind {
            Kind::Lock | Kind::Read | Kind::Write => by_us.ignore_own_channels(&channel),
            Kind::Semaphore => by_us.map_own_channels(),
            _ => {}
        }
        assert_eq!(by_us, by_java, "{name:?}");
        fleet.server.flush();
    }
}

fn braced(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

/// Two processes of this library: one holds, the other waits and is woken by message.
macro_rules! ours {
    (|$client:ident, $name:ident| $acquire:expr) => {
        async |fleet: &Fleet, $name: &str, channel: &str| {
            let $client = fleet.rust().await;
            let guard = $acquire.await.unwrap();
            let $client = fleet.rust().await;
            let waiting = async { $acquire.await.unwrap().release().await.unwrap() };
            let releasing = async {
                fleet.listening(channel).await;
                let keys = fleet.server.keys();
                guard.release().await.unwrap();
                keys
            };
            within(SOON, futures_util::future::join(waiting, releasing))
                .await
                .1
        }
    };
}

#[tokio::test]
async fn locks_have_the_same_keys_and_channels() {
    let channel = |name: &str| braced("redisson_lock__channel", name);
    let ours = ours!(|client, name| Lock::new(&client, name).unwrap().acquire());
    assert_same_for_both(Kind::Lock, channel, ours).await;
}

#[tokio::test]
async fn readers_have_the_same_keys_and_channels() {
    let channel = |name: &str| braced("redisson_rwlock", name);
    // Readers do not wait for readers. The release of the last reader notifies the writers.
    let Some(fleet) = fleet().await else { return };
    for name in NAMES {
        let java = fleet.java("reader", Kind::Read, name);
        let by_java = traced(&fleet, async || {
            java.done("lock").await;
            let keys = fleet.server.keys();
            java.done("unlock").await;
            keys
        })
        .await;
        let by_us = traced(&fleet, async || {
            let lock = RwLock::new(&fleet.rust().await, name).unwrap();
            let guard = lock.read().await.unwrap();
            let keys = fleet.server.keys();
            guard.release().await.unwrap();
            keys
        })
        .await;
        assert_eq!(
            by_java.keys.len(),
            2,
            "the lock and the reader's lease: {by_java:#?}"
        );
        assert!(by_java.published[0].contains("redisson_rwlock"));
        assert_eq!(by_us, by_java, "{name:?}");
        fleet.server.flush();
    }
    let ours = ours!(|client, name| RwLock::new(&client, name).unwrap().write());
    assert_same_for_both(Kind::Write, channel, ours).await;
}

#[tokio::test]
async fn semaphores_have_the_same_keys_and_channels() {
    let channel = |name: &str| braced("redisson_sc", name);
    let ours = ours!(|client, name| Semaphore::new(&client, name).unwrap().acquire());
    assert_same_for_both(Kind::Semaphore, channel, ours).await;
}

#[tokio::test]
async fn fenced_locks_have_the_same_counter() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    for name in NAMES {
        fleet.server.flush();
        let java = fleet.java("java", Kind::Fenced, name);
        java.done("lock").await;
        let mut theirs = fleet.server.keys();
        theirs.retain(|key| key != name);
        java.done("unlock").await;
        fleet.server.flush();
        let lock = lock(&client, name).fencing(stanchion::Fencing::PerName);
        let guard = lock.acquire().await.unwrap();
        let mut ours = fleet.server.keys();
        ours.retain(|key| key != name);
        assert_eq!(ours, theirs, "{name:?}");
        guard.release().await.unwrap();
        fleet.at_rest().await;
    }
}

/// Our `key_prefix` acts like Redisson's `NameMapper`: the prefix becomes part of the name before keys are derived.
#[tokio::test]
async fn a_key_prefix_acts_as_a_name_mapper() {
    let Some(fleet) = fleet().await else { return };
    let config = ClientConfig::new(fleet.server.url()).key_prefix("app:");
    let client = Client::connect_with(config).await.unwrap();
    let guard = lock(&client, "orders").acquire().await.unwrap();
    let java = fleet.java("waiter", Kind::Lock, "app:orders");
    let waiter = java.start("lock", json!({}));
    fleet.waiting(&channel("app:orders"), 1).await;
    guard.release().await.unwrap();
    java_granted(waiter, SOON).await;
    java.done("unlock").await;
    fleet.at_rest().await;
}

#[tokio::test]
async fn leased_permits_have_the_same_keys_and_channels() {
    let Some(fleet) = fleet().await else { return };
    for name in NAMES {
        let channel = braced("redisson_sc", name);
        let (holder, waiter) = (
            fleet.java("holder", Kind::Leased, name),
            fleet.java("waiter", Kind::Leased, name),
        );
        holder.with("init", json!({"n": 1})).await.value();
        let by_java = traced(&fleet, async || {
            let first = holder.with("acquire", json!({"lease": 30_000})).await;
            let waiting = waiter.start("acquire", json!({"lease": 30_000}));
            fleet.listening(&channel).await;
            let keys = fleet.server.keys();
            holder
                .with("release", json!({"permit": first.text()}))
                .await
                .value();
            let second = java_granted(waiting, SOON).await;
            waiter
                .with("release", json!({"permit": second.text()}))
                .await
                .value();
            keys
        })
        .await;
        assert_eq!(by_java.keys.len(), 2, "{by_java:#?}");
        let ours = ours!(|client, name| LeasedSemaphore::new(&client, name).unwrap().acquire());
        let mut by_us = traced(&fleet, async || ours(&fleet, name, &channel).await).await;
        by_us.map_own_channels();
        assert_eq!(by_us, by_java, "{name:?}");
        fleet.server.flush();
    }
}

#[tokio::test]
async fn latches_have_the_same_keys_and_channels() {
    let Some(fleet) = fleet().await else { return };
    for name in NAMES {
        // Redisson always puts the name in braces here, even if it contains braces.
        let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
        let (java, waiter) = (
            fleet.java("java", Kind::Latch, name),
            fleet.java("waiter", Kind::Latch, name),
        );
        let by_java = traced(&fleet, async || {
            java.with("init", json!({"n": 1})).await.value();
            let waiting = waiter.start("await", json!({}));
            fleet.listening(&channel).await;
            let keys = fleet.server.keys();
            java.done("countDown").await;
            java_granted(waiting, SOON).await;
            keys
        })
        .await;
        let by_us = traced(&fleet, async || {
            let latch = CountDownLatch::new(&fleet.rust().await, name).unwrap();
            assert!(latch.arm(1).await.unwrap());
            let counting = async {
                fleet.listening(&channel).await;
                let keys = fleet.server.keys();
                assert_eq!(latch.count_down().await.unwrap(), 0);
                keys
            };
            let both = futures_util::future::join(latch.wait(), counting);
            within(SOON, both).await.1
        })
        .await;
        assert_eq!(by_us, by_java, "{name:?}");
        fleet.server.flush();
    }
}

/// A waiter of this library is subscribed to its own channel, and also to Redisson's if Redisson is ahead in the queue.
#[tokio::test]
async fn fair_locks_have_the_same_keys_and_channels() {
    let Some(fleet) = fleet().await else { return };
    for name in NAMES {
        let base = braced("redisson_lock__channel", name);
        let queue = braced("redisson_lock_queue", name);
        let waits = || fleet.int(&["LLEN", &queue]) == 1;
        let (holder, waiter) = (
            fleet.java("holder", Kind::Fair, name),
            fleet.java("waiter", Kind::Fair, name),
        );
        let by_java = traced(&fleet, async || {
            holder.done("lock").await;
            let waiting = waiter.start("lock", json!({}));
            eventually("Redisson is queued", waits).await;
            let keys = fleet.server.keys();
            fleet.settled().await;
            holder.done("unlock").await;
            java_granted(waiting, SOON).await;
            waiter.done("unlock").await;
            keys
        })
        .await;
        let owners = format!("{base}:OWNER");
        let quoted = by_java
            .subscribed
            .iter()
            .all(|channel| channel.contains(":OWNER"));
        assert!(quoted && by_java.keys.len() == 3, "{owners}: {by_java:#?}");
        let by_us = traced(&fleet, async || {
            holder.done("lock").await;
            let lock = FairLock::new(&fleet.rust().await, name).unwrap();
            let waiting = tokio::spawn(async move { lock.acquire().await });
            eventually("our waiter is queued", waits).await;
            let keys = fleet.server.keys();
            fleet.settled().await;
            holder.done("unlock").await;
            granted(waiting, SOON).await.release().await.unwrap();
            keys
        })
        .await;
        assert_eq!(by_us.keys, by_java.keys, "{name:?}");
        let listened = |channel| by_us.subscribed.contains(channel);
        assert!(by_java.subscribed.iter().all(listened), "{by_us:#?}");
        assert_eq!(by_us.published, by_java.published, "{name:?}");
        fleet.server.flush();
    }
}
