//! The simulated network: the server's host, and the connector of the clients.

use std::io;

use async_trait::async_trait;
use stanchion::embedded::Engine;
use stanchion::{ByteStream, Connector};
use turmoil::net::{TcpListener, TcpStream};

use crate::filter::{self, Mutation};

/// The server's host name.
pub(crate) const SERVER: &str = "server";

const PORT: u16 = 6379;

/// Connects over the simulated network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire;

#[async_trait]
impl Connector for Wire {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(TcpStream::connect((SERVER, PORT)).await?))
    }
}

/// The server's software. The engine outlives it, as data outlives a process.
pub(crate) async fn serve(engine: Engine, mutation: Option<Mutation>) -> turmoil::Result {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let engine = engine.clone();
        // A local task: at a crash these are dropped in the order of their start. Others are dropped in an order that
        // depends on how many tasks the whole program has started, and with it which good-bye gets which latency.
        tokio::task::spawn_local(async move {
            // However a connection ends, its client notices.
            let _ = match mutation {
                None => engine.serve(stream).await,
                Some(mutation) => filter::serve(&engine, stream, mutation).await,
            };
        });
    }
}
