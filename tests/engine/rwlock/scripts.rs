//! The scripts themselves, next to a plain model: clients whose replies get lost and whose requests arrive late or twice,
//! beside threads of Java.
//!
//! After every script the reply and the whole keyspace, TTLs to the millisecond, are compared with the model, and what
//! the clients believe is checked: P1, P2, P3 and that a valid hold is known to the server.

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
fn the_scripts_do_what_the_model_does() {
    simulate(0..400);
}
