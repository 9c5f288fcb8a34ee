//! A redis-rs client on an engine's stream.

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, FromRedisValue, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, RedisResult, Value, cmd,
};
use stanchion_embedded::{Engine, EngineStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(crate) const SOON: std::time::Duration = std::time::Duration::from_secs(60);

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

/// Sends a command, whose words are separated by spaces.
pub(crate) async fn run<T: FromRedisValue>(
    client: &mut MultiplexedConnection,
    words: &str,
) -> RedisResult<T> {
    let mut words = words.split(' ');
    let mut command = cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>());
    command.query_async(client).await
}

/// Runs a script without keys.
pub(crate) async fn eval<T: FromRedisValue>(
    client: &mut MultiplexedConnection,
    script: &str,
) -> RedisResult<T> {
    cmd("EVAL").arg(script).arg(0).query_async(client).await
}

/// Returns the data of the next push of this kind.
pub(crate) async fn pushed(pushes: &mut Pushes, kind: PushKind) -> Vec<Value> {
    loop {
        let push = tokio::time::timeout(SOON, pushes.recv()).await;
        let push = push.unwrap().unwrap();
        if push.kind == kind {
            return push.data;
        }
    }
}
