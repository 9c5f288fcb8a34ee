//! A redis-rs client on an engine's stream.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisResult};
use stanchion_embedded::{Engine, EngineStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(crate) type Pushes = UnboundedReceiver<PushInfo>;

pub(crate) async fn client(engine: &Engine) -> MultiplexedConnection {
    let stream = engine.connect().unwrap();
    client_on(stream).await.unwrap().0
}

/// A RESP3 client and the messages it gets.
pub(crate) async fn client_on(
    stream: EngineStream,
) -> RedisResult<(MultiplexedConnection, Pushes)> {
    let info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    client_with(stream, info).await
}

pub(crate) async fn client_with(
    stream: EngineStream,
    info: RedisConnectionInfo,
) -> RedisResult<(MultiplexedConnection, Pushes)> {
    let (sender, pushes) = unbounded_channel();
    let mut config = AsyncConnectionConfig::new().set_response_timeout(None);
    if info.protocol() == ProtocolVersion::RESP3 {
        config = config.set_push_sender(sender);
    }
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&info, stream, config).await?;
    tokio::spawn(driver);
    Ok((connection, pushes))
}
