//! The program of the page on scale: names that are spread over several servers.

use stanchion::embedded::{Engine, Reply};
use stanchion::{Client, ClientConfig, InvalidName, Lock};

/// A client for each server. Every process has the same servers in the same order.
struct Shards(Vec<Client>);

impl Shards {
    fn lock(&self, name: &str) -> Result<Lock, InvalidName> {
        Lock::new(self.client(name), name)
    }

    /// FNV-1a, because the hash must be the same in every process and in every version of Rust.
    fn client(&self, name: &str) -> &Client {
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        &self.0[hash as usize % self.0.len()]
    }
}

async fn process(engines: &[Engine]) -> Shards {
    let mut clients = Vec::new();
    for engine in engines {
        let config = ClientConfig::embedded(engine);
        clients.push(Client::connect_with(config).await.unwrap());
    }
    Shards(clients)
}

#[tokio::test]
async fn all_processes_find_a_name_on_the_same_server() {
    let engines = [Engine::new(), Engine::new(), Engine::new()];
    let (one, other) = (process(&engines).await, process(&engines).await);
    let mut on = [0; 3];
    for number in 0..300 {
        let name = format!("order:{number}");
        let guard = one.lock(&name).unwrap().acquire().await.unwrap();
        let lock = other.lock(&name).unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none(), "{name}");
        let mut found = 0;
        for (engine, on) in engines.iter().zip(&mut on) {
            if engine.execute(&["EXISTS", &name]) == Reply::Int(1) {
                (found, *on) = (found + 1, *on + 1);
            }
        }
        assert_eq!(found, 1, "{name}");
        guard.release().await.unwrap();
    }
    assert!(on.iter().all(|names| *names > 60), "{on:?}");
}
