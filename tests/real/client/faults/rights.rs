//! Tests that the ACL line of `docs/running/rights.md` gives a client the rights that it needs, and no others.

use std::collections::BTreeSet;
use std::path::Path;

use stanchion::limiter::{QuotaScope, Usage};
use stanchion::rwlock::Preference;
use stanchion::{
    AcquireError, Client, CountDownLatch, FairLock, IdleExpiry, Lease, LeasedSemaphore, Lock,
    RateLimiter, Rejection, RwLock, Semaphore, TokenBucket,
};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::faults::*;
use stanchion_tests::kinds::{self, PERMITS, Target, kinds};
use stanchion_tests::{assert_is, lease, rights};

/// Connects a client as the user of the ACL line.
pub(crate) async fn client(server: &RedisServer) -> Client {
    admin(server, &rights::the_line());
    let config = rights::as_app(config(server.url()));
    Client::connect_with(config).await.unwrap()
}

/// Asserts that the server refused no command.
pub(crate) fn nothing_refused(server: &RedisServer) {
    assert_eq!(rights::refused(server), [""; 0]);
}

/// Connects two clients, so that waiters are woken by messages.
async fn users(server: &RedisServer) -> (Client, Client) {
    (client(server).await, client(server).await)
}

/// A wait that gives up, one that a message ends, a renewal, a re-entry, and releases.
#[tokio::test]
async fn every_kind_of_hold_needs_no_more_rights_than_the_line_gives() {
    let Some(server) = server() else { return };
    admin(&server, &rights::the_line());
    let config = rights::as_app(config(server.url())).key_prefix("app:");
    let a = Client::connect_with(config.clone()).await.unwrap();
    let b = Client::connect_with(config).await.unwrap();
    for (label, ours, theirs) in kinds() {
        let (ours, theirs) = (ours(&a, &b), theirs(&b, &a));
        if let Target::Seats(seats, _) = &theirs {
            seats.init(PERMITS).await.unwrap();
        }
        let held = ours.acquire().await.unwrap();
        assert!(theirs.acquire_timeout(ms(50)).await.is_err(), "{label}");
        let waiting = kinds::served(theirs);
        eventually("the call waits", || b.waiters() + a.waiters() > 0).await;
        quiet(&server).await;
        held.renew().await.unwrap();
        if let Some(again) = held.reenter().await {
            again.release().await.unwrap();
        }
        held.release().await.unwrap();
        waiting.await.unwrap();
    }
    nothing_refused(&server);
}

#[tokio::test]
async fn operations_beyond_holds_need_no_more_rights_than_the_line_gives() {
    let Some(server) = server() else { return };
    let (a, b) = users(&server).await;
    let held = lock(&a, "app:orders", LONG).acquire().await.unwrap();
    let theirs = lock(&b, "app:orders", LONG);
    assert!(theirs.status().await.unwrap().is_held());
    assert!(theirs.danger().force_release().await.unwrap());
    drop(held);

    let [first, second] = [&a, &b].map(|it| FairLock::new(it, "app:line").unwrap());
    let _held = first.acquire().await.unwrap();
    let waiting = tokio::spawn(second.acquire());
    while first.queue_len().await.unwrap() == 0 {
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(second.position().await.unwrap(), Some(0));
    assert!(second.status().await.unwrap().is_held());
    assert!(second.danger().force_release().await.unwrap());
    drop(waiting.await.unwrap().unwrap());

    let [ours, theirs] = [&a, &b].map(|it| {
        let rwlock = RwLock::new(it, "app:prices").unwrap();
        rwlock.preference(Preference::Writer)
    });
    let _reading = ours.write().await.unwrap().downgrade().await.unwrap();
    assert!(theirs.status().await.unwrap().is_held());
    assert!(theirs.danger().force_release().await.unwrap());

    let [latch, theirs] = [&a, &b].map(|it| CountDownLatch::new(it, "app:done").unwrap());
    assert!(latch.arm(1).await.unwrap());
    let opened = tokio::spawn(async move { theirs.wait().await });
    eventually("the call waits", || b.waiters() == 1).await;
    latch.count_down().await.unwrap();
    opened.await.unwrap().unwrap();
    assert!(latch.arm(1).await.unwrap());
    assert!(latch.danger().delete().await.unwrap());
    nothing_refused(&server);
}

#[tokio::test]
async fn without_the_rights_to_inspect_clients_only_inspection_fails() {
    let Some(server) = server() else { return };
    let (a, _b) = users(&server).await;
    admin(
        &server,
        &["ACL", "SETUSER", "app", "-pubsub", "-client|setname"],
    );
    let c = rights::as_app(config(server.url()));
    let c = Client::connect_with(c).await.unwrap();
    let held = lock(&c, "app:orders", ms(600)).acquire().await.unwrap();
    let theirs = lock(&a, "app:orders", ms(600));
    let status = theirs.status().await.unwrap();
    assert!(status.is_held());
    assert_eq!(status.waiting_processes, None);
    let latch = CountDownLatch::new(&c, "app:done").unwrap();
    assert_eq!(latch.waiting_processes().await, None);
    // The ACL line does not include `CLIENT LIST`.
    assert_eq!(a.processes().await.unwrap().list, None);
    admin(&server, &["ACL", "SETUSER", "app", "+client|list"]);
    let shown = a.processes().await.unwrap().list.unwrap();
    assert!(shown.iter().any(|it| it.client == a.id()));
    assert!(!shown.iter().any(|it| it.client == c.id()));
    held.release().await.unwrap();
}

/// With and without an idle expiry.
#[tokio::test]
async fn semaphores_need_no_more_rights_than_the_line_gives() {
    let Some(server) = server() else { return };
    let (a, b) = users(&server).await;
    for is_ephemeral in [false, true] {
        let plain = Semaphore::new(&a, "app:plain").unwrap();
        let lasting = LeasedSemaphore::new(&a, "app:leased").unwrap();
        let (plain, leased) = if is_ephemeral {
            (plain.ephemeral(2, hour()), leased(&a))
        } else {
            assert!(plain.init(2).await.unwrap());
            assert!(lasting.init(2).await.unwrap());
            (plain, lasting.lease(lease(ms(600))))
        };
        let held = plain.acquire_many(2).await.unwrap();
        let theirs = Semaphore::new(&b, "app:plain").unwrap();
        assert!(theirs.acquire_many_timeout(2, ms(50)).await.is_err());
        assert_eq!(theirs.status().await.unwrap().holders.len(), 1);
        held.release().await.unwrap();
        plain.add(2).await.unwrap();
        plain.reduce(1).await.unwrap();
        plain.drain().await.unwrap();
        assert!(plain.danger().delete().await.unwrap());

        let held = leased.acquire_many(2).await.unwrap();
        let before = held.valid_until();
        eventually("the hold is renewed", || held.valid_until() > before).await;
        assert_eq!(leased.total().await.unwrap(), 2);
        assert_eq!(leased.acquired().await.unwrap(), 2);
        leased.set_total(3).await.unwrap();
        assert!(leased.danger().reclaim(&held.ids()[0]).await.unwrap());
        drop(held);
        assert!(leased.danger().delete().await.unwrap());
    }
    nothing_refused(&server);
}

fn hour() -> IdleExpiry {
    IdleExpiry::after(ms(3_600_000)).unwrap()
}

fn leased(client: &Client) -> LeasedSemaphore {
    LeasedSemaphore::new(client, "app:leased")
        .unwrap()
        .lease(lease(ms(600)))
        .ephemeral(2, hour())
}

/// Without the right to set a TTL no permit is granted, no held permit is lost, and no lease outlasts the semaphore.
#[tokio::test]
async fn a_semaphore_whose_ttl_cannot_be_set_gives_no_permits() {
    let Some(server) = server() else { return };
    let (a, _b) = users(&server).await;
    let set = |rights: &[&str]| {
        let words = ["ACL", "SETUSER", "app"];
        let words: Vec<&str> = words.iter().chain(rights).copied().collect();
        admin(&server, &words);
    };
    let free = |name: &str| server.cli(&["GET", name]).as_text().to_owned();
    let plain = Semaphore::new(&a, "app:plain").unwrap();
    let plain = plain.ephemeral(2, hour());
    assert!(plain.init(2).await.unwrap());
    let leased = leased(&a).lease(lease(ms(10_000)));
    let held = leased.acquire().await.unwrap();
    held.renew().await.unwrap();
    set(&["-pexpire"]);
    let longer = leased.clone().lease(Lease::default());
    for refused in [plain.acquire().await.err(), longer.acquire().await.err()] {
        assert_is!(refused, Some(AcquireError::Rejected { .. }));
    }
    assert_eq!(
        (free("app:plain"), free("app:leased")),
        ("2".into(), "1".into())
    );
    // A refused acquire must not leave the TTL of a held semaphore, which is years.
    set(&["+pexpire", "-decrby"]);
    assert!(plain.acquire().await.is_err());
    let ttl = server.cli(&["PTTL", "app:plain"]).as_int();
    assert!((1..=3_600_000).contains(&ttl), "{ttl}");
    set(&["-pexpire", "+decrby"]);
    // P1: a lease that would outlast the semaphore is not renewed.
    assert!(held.renew().await.is_err());
    set(&["+pexpire"]);
    held.renew().await.unwrap();
    // Without the right on the semaphore's idle key a permit is still renewed, as long as the semaphore exists.
    set(&["resetkeys", "~app:*", "~{app:*", "~stanchion_once:*"]);
    held.renew().await.unwrap();
    assert!(plain.acquire().await.is_err());
    assert_eq!(free("app:plain"), "2");
    set(&["~*{app:*"]);
    held.release().await.unwrap();
    assert_eq!(free("app:leased"), "2");
}

#[tokio::test]
async fn limiters_need_no_more_rights_than_the_line_gives() {
    let Some(server) = server() else { return };
    let (a, b) = users(&server).await;
    for scope in [QuotaScope::Overall, QuotaScope::PerClient] {
        let api = RateLimiter::new(&a, "app:api", "1/h".parse().unwrap()).unwrap();
        let api = api.scope(scope);
        let grant = api.acquire().await.unwrap();
        let waiting = tokio::spawn(api.acquire());
        eventually("the client is subscribed", || {
            server.subscribers("stanchion_limiter:{app:api}") == 1
        })
        .await;
        let other = RateLimiter::new(&b, "app:api", "1/h".parse().unwrap()).unwrap();
        let faster = "9/s".parse().unwrap();
        other
            .scope(scope)
            .set_quota(faster, Usage::Keep)
            .await
            .unwrap();
        waiting.await.unwrap().unwrap();
        assert!(grant.refund().await.unwrap());
        assert_eq!(api.status().await.unwrap().free, 8);
        assert!(api.danger().delete().await.unwrap());
    }
    let limit: stanchion::Quota = "1/h".parse().unwrap();
    let user = TokenBucket::new(&a, "app:user", limit).unwrap();
    let grant = user.acquire().await.unwrap();
    assert!(user.try_acquire().await.unwrap().granted().is_none());
    assert!(grant.refund().await.unwrap());
    assert_eq!(user.status().await.unwrap().free, 1);
    nothing_refused(&server);
}

#[tokio::test]
async fn other_names_are_refused() {
    let Some(server) = server() else { return };
    let client = client(&server).await;
    let other = Lock::new(&client, "orders").unwrap();
    assert!(matches!(
        rejected(other.acquire().await),
        Rejection::NotPermitted { .. }
    ));
    assert_eq!(leftovers(&server), [] as [String; 0]);
}

/// Collects the commands that the scripts in a folder call.
fn called_in(folder: &Path, called: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            called_in(&path, called);
        } else if path.extension().is_some_and(|extension| extension == "lua") {
            let text = std::fs::read_to_string(path).unwrap();
            let names = text.split("call('").skip(1);
            called.extend(names.map(|rest| rest.split('\'').next().unwrap().to_lowercase()));
        }
    }
}

/// Returns the commands that the scripts of all crates call.
fn called_by_scripts() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut called = BTreeSet::new();
    for folder in std::fs::read_dir(crates).unwrap() {
        let folder = folder.unwrap().path().join("lua");
        // The command line searches for similar names only if its user has the rights.
        if folder
            .parent()
            .is_some_and(|it| it.ends_with("stanchion-cli"))
        {
            continue;
        }
        if folder.is_dir() {
            called_in(&folder, &mut called);
        }
    }
    called
}

#[test]
fn the_line_allows_exactly_the_commands_of_clients_and_scripts() {
    let own = "hello auth select info time client|setname eval evalsha subscribe unsubscribe publish \
        zremrangebyscore";
    let own = own.split_whitespace().map(str::to_owned);
    let used: BTreeSet<String> = own.chain(called_by_scripts()).collect();
    let allowed: BTreeSet<String> = rights::the_line()
        .iter()
        .filter_map(|word| word.strip_prefix('+'))
        .map(str::to_owned)
        .collect();
    assert_eq!(allowed, used);
}
