//! The program of the page on integration: a client for the server of a `redis::Client`.

use redis::ConnectionAddr;
use stanchion::{Client, ClientConfig, Lock, Secret};
use stanchion_testkit::RedisServer;

fn config_of(info: &redis::ConnectionInfo) -> anyhow::Result<ClientConfig> {
    let url = match info.addr() {
        ConnectionAddr::Tcp(host, port) if host.contains(':') => format!("redis://[{host}]:{port}"),
        ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}"),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{host}:{port}"),
        ConnectionAddr::Unix(path) => format!("unix://{}", path.display()),
        other => anyhow::bail!("no URL for {other}"),
    };
    let login = info.redis_settings();
    let mut config = ClientConfig::new(url).database(u32::try_from(login.db())?);
    if let Some(user) = login.username() {
        config = config.username(user.to_owned());
    }
    if let Some(password) = login.password() {
        config = config.password(Secret::new(password));
    }
    Ok(config)
}

#[tokio::test]
async fn a_client_uses_the_server_the_login_and_the_database_of_a_redis_client() {
    let server = RedisServer::start();
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">p@ss/w:rd",
        "+@all",
        "~*",
        "&*",
    ];
    let _ = server.cli(&user);
    let _ = server.cli(&["ACL", "SETUSER", "default", "off"]);
    let url = server
        .url()
        .replace("redis://", "redis://app:p%40ss%2Fw%3Ard@");
    let redis = redis::Client::open(format!("{url}/3")).unwrap();

    let config = config_of(redis.get_connection_info()).unwrap();
    assert!(!format!("{config:?}").contains("p@ss"));
    let client = Client::connect_with(config).await.unwrap();
    let guard = Lock::new(&client, "job").unwrap().acquire().await.unwrap();
    let mut commands = redis.get_multiplexed_async_connection().await.unwrap();
    let mut exists = redis::cmd("EXISTS");
    exists.arg("job");
    let held: bool = exists.query_async(&mut commands).await.unwrap();
    assert!(held, "in another database, or on another server");
    guard.release().await.unwrap();
}

#[test]
fn every_kind_of_address_has_a_url() {
    for (url, address, database) in [
        ("redis://[::1]:7/2", "redis://[::1]:7", 2),
        ("unix:///run/redis.sock?db=4", "unix:///run/redis.sock", 4),
    ] {
        let client = redis::Client::open(url).unwrap();
        let config = config_of(client.get_connection_info()).unwrap();
        assert_eq!(config.url.to_string(), address);
        assert_eq!(config.database, Some(database));
    }
}
