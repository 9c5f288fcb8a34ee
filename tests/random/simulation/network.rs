//! The simulated network: the server's host, and the connector of the clients.

use std::io;

use async_trait::async_trait;
use stanchion::client::{ByteStream, Connector};
use stanchion::embedded::Engine;
use turmoil::net::{TcpListener, TcpStream};

use crate::simulation::filter::{self, Mutation};

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

/// The server process. The engine outlives it, as data outlives a process.
pub(crate) async fn serve(engine: Engine, mutation: Option<Mutation>) -> turmoil::Result {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let engine = engine.clone();
        // At a crash, local tasks are dropped in the order of their start. The order of other tasks depends on the number of tasks that
        // the program has started. That would change the latency of each closing message, and with it the history of the seed.
        tokio::task::spawn_local(async move {
            // The client notices the end of its connection, so the error is ignored.
            let _ = match mutation {
                None => engine.serve(stream).await,
                Some(mutation) => filter::serve(&engine, stream, mutation).await,
            };
        });
    }
}
