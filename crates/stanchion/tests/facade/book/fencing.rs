//! The Redis script of the chapter on fencing, on the embedded engine; and two holds to try all of the chapter with.

use stanchion::embedded::{Engine, Reply};
use stanchion::{Client, ClientConfig, Lock, LockGuard};

use super::pages;

/// A hold that was lost without its holder's doing, and the next one. The first believes that it holds.
pub(crate) async fn a_stale_and_a_fresh_hold() -> (LockGuard, LockGuard) {
    let engine = Engine::in_virtual_time();
    let config = ClientConfig::embedded(&engine).virtual_time();
    let client = Client::connect_with(config).await.unwrap();
    let lock = Lock::new(&client, "accounts").unwrap();
    let old = lock.acquire().await.unwrap();
    engine.execute(&["DEL", "accounts"]); // a failover that forgot it
    let new = lock.acquire().await.unwrap();
    assert!(old.is_held() && new.is_held(), "two believe that they hold");
    (old, new)
}

pub(crate) fn token_of(guard: &LockGuard) -> i64 {
    guard.fencing_token().unwrap().get().cast_signed()
}

struct Store {
    engine: Engine,
    script: String,
}

impl Store {
    fn put(&self, token: i64, value: Option<&str>) -> bool {
        let token = token.to_string();
        let mut command = vec!["EVAL", &self.script, "1", "account:7", &token];
        command.extend(value);
        self.engine.execute(&command) == Reply::Int(1)
    }

    fn value(&self) -> Reply {
        self.engine.execute(&["HGET", "account:7", "value"])
    }
}

fn store() -> Store {
    let [script] = pages::blocks_in("docs/fencing.md", "lua")
        .try_into()
        .expect("the page has one script");
    Store {
        engine: Engine::new(),
        script,
    }
}

#[tokio::test(start_paused = true)]
async fn the_script_refuses_a_paused_holder() {
    let (old, new) = a_stale_and_a_fresh_hold().await;
    let store = store();
    assert!(store.put(token_of(&old), Some("old")));
    assert!(store.put(token_of(&new), None), "a claim");
    assert_eq!(store.value(), Reply::Bulk(b"old".to_vec()));
    assert!(!store.put(token_of(&old), Some("late")));
    assert!(store.put(token_of(&new), Some("new")));
    assert_eq!(store.value(), Reply::Bulk(b"new".to_vec()));
}

#[test]
fn tokens_are_compared_as_numbers() {
    let store = store();
    assert!(store.put(10, Some("ten")));
    assert!(!store.put(9, Some("nine")), "as text, 9 is larger than 10");
}
