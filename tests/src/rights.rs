//! The user with the fewest rights, from the ACL command in `docs/running/rights.md`.

use stanchion::{ClientConfig, Secret};
use stanchion_testkit::RedisServer;

/// The words of the ACL command, read from the page.
#[must_use]
pub fn the_line() -> Vec<&'static str> {
    let page = include_str!("../../docs/running/rights.md");
    let (_, rest) = page.split_once("```text\nACL SETUSER").unwrap();
    let (line, _) = rest.split_once("```").unwrap();
    let words = line.split_whitespace();
    ["ACL", "SETUSER"].into_iter().chain(words).collect()
}

/// Creates that user on `server`, and returns the configuration of its clients.
#[must_use]
pub fn least(server: &RedisServer) -> ClientConfig {
    let made = server.cli(&the_line());
    assert!(!made.is_error(), "{made}");
    as_app(ClientConfig::new(server.url()))
}

/// Logs in as that user.
#[must_use]
pub fn as_app(config: ClientConfig) -> ClientConfig {
    let config = config.username("app".to_owned());
    config.password(Secret::new("password"))
}

/// Returns the commands, keys and channels that `server` has refused, except `CLIENT SETINFO`: only newer servers know it, and no
/// feature depends on it.
#[must_use]
pub fn refused(server: &RedisServer) -> Vec<String> {
    let log = server.cli(&["ACL", "LOG"]);
    // […, "object", the refused command, key or channel, …]
    let objects = log
        .as_array()
        .iter()
        .map(|entry| entry.as_array()[7].as_text());
    let refused = objects.filter(|object| !object.contains("setinfo"));
    refused.map(str::to_owned).collect()
}
