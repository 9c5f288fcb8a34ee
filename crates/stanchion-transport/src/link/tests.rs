//! A fake server, and the reaction of a link to its answers.

use super::*;
use crate::{ByteStream, fake};

/// A cluster node that accepts every subscription and reports this role.
#[derive(Debug)]
struct Fake(&'static str);

#[async_trait::async_trait]
impl Connector for Fake {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let role = self.0;
        Ok(fake::peer(move |command| {
            match command.lines().next().unwrap_or_default() {
                "SSUBSCRIBE" => "*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n".to_owned(),
                "ROLE" => format!("*1\r\n${}\r\n{role}\r\n", role.len()),
                "TIME" => "*2\r\n$1\r\n1\r\n$1\r\n0\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            }
        }))
    }
}

fn link(role: &'static str) -> Link {
    let plan = Plan {
        server: "fake".into(),
        peer: Peer::Server,
        connector: Arc::new(Fake(role)),
        login: Login::default(),
        clock: Arc::new(crate::clock::BootClock),
        server_clock: Arc::default(),
        stir: Arc::default(),
        health: Arc::default(),
        on_push: None,
        name: None,
    };
    Link::new(&ClientConfig::default(), plan)
}

#[tokio::test]
async fn a_shard_subscription_at_a_replica_does_not_count() {
    let master = link("master");
    let _end = master.connect_once().await.unwrap();
    let started = master.subscribe(b"c", Subscribe::Start, Messages::Sharded);
    started.await.unwrap();
    // The flag makes the next attempt to connect wait only for the first pause.
    let served = |link: &Link| link.live().unwrap().served.load(Ordering::Relaxed);
    assert!(served(&master));
    let replica = link("slave");
    let _end = replica.connect_once().await.unwrap();
    let started = replica.subscribe(b"c", Subscribe::Start, Messages::Sharded);
    // P1: the master's script may take back a grant that this subscriber receives.
    let refused = started.await.unwrap_err();
    assert!(matches!(refused, Failure::NotNow(_)), "{refused:?}");
    assert!(!served(&replica));
}
