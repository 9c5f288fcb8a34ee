//! A fake server, and what a link makes of its answers.

use super::*;
use crate::ByteStream;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

/// A node of a cluster that accepts every subscription and reports this role.
#[derive(Debug)]
struct Fake(&'static str);

#[async_trait::async_trait]
impl Connector for Fake {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let (near, far) = tokio::io::duplex(4096);
        let role = self.0;
        tokio::spawn(async move {
            let mut far = BufReader::new(far);
            let mut line = String::new();
            while far.read_line(&mut line).await.is_ok_and(|n| n > 0) {
                let words: usize = line.trim()[1..].parse().unwrap();
                let mut command = String::new();
                for _ in 0..words {
                    line.clear();
                    far.read_line(&mut line).await.unwrap();
                    far.read_line(&mut command).await.unwrap();
                }
                line.clear();
                let answer = match command.lines().next() {
                    Some("SSUBSCRIBE") => "*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n".to_owned(),
                    Some("ROLE") => format!("*1\r\n${}\r\n{role}\r\n", role.len()),
                    Some("TIME") => "*2\r\n$1\r\n1\r\n$1\r\n0\r\n".to_owned(),
                    _ => "+OK\r\n".to_owned(),
                };
                far.get_mut().write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Ok(Box::new(near))
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
    let replica = link("slave");
    let _end = replica.connect_once().await.unwrap();
    let started = replica.subscribe(b"c", Subscribe::Start, Messages::Sharded);
    // P1: the master's script may take back a grant that this subscriber receives.
    let refused = started.await.unwrap_err();
    assert!(matches!(refused, Failure::NotNow(_)), "{refused:?}");
}
