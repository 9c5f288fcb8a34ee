//! Compares the scripts of the read-write lock with a simple model. Clients lose replies, and their requests arrive late or twice, next to
//! Redisson threads.
//!
//! After every script, the reply and the whole keyspace (TTLs to the millisecond) must match the model. The state of the clients must
//! satisfy P1, P2 and P3, and the server must know every valid hold.

mod client;
mod java;
mod server;
mod table;

use stanchion::embedded::Engine;

use client::Sim;

fn simulate(seeds: std::ops::Range<u64>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut scripts = 0;
        for seed in seeds {
            scripts += Sim::new(Engine::in_virtual_time(), seed).run(160).await;
        }
        assert!(scripts > 5_000, "only {scripts} scripts have run");
    });
}

#[test]
fn the_scripts_agree_with_the_model() {
    simulate(0..400);
}
