//! Checks the server's own report: version, role, memory, persistence, timeouts.

use std::collections::BTreeMap;

use stanchion::QueryError;
use stanchion::console::Console;

use super::finding::Finding;

/// The fields of `INFO`.
#[derive(Debug, Default)]
struct Info(BTreeMap<String, String>);

impl Info {
    fn read(text: &str) -> Self {
        let fields = text
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'));
        Self(
            fields
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    fn is_engine(&self) -> bool {
        self.is("server_name", "stanchion")
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.text(name) == value
    }
}

/// The findings about one server, from its own reports.
pub(super) struct Settings {
    pub(super) findings: Vec<Finding>,
    /// True for the engine that is a part of this program.
    pub(super) is_engine: bool,
}

/// Checks the settings of one server.
pub(super) async fn check(console: &Console) -> Result<Settings, QueryError> {
    let text = match console.command(&["INFO"]).await {
        Ok(reply) => reply.as_text().unwrap_or_default().to_owned(),
        Err(QueryError::Rejected { .. }) => {
            let findings = vec![Finding::skip(
                "server",
                "INFO is refused: version, memory and persistence are not checked",
                "ACL SETUSER … +info",
            )];
            return Ok(Settings {
                findings,
                is_engine: false,
            });
        }
        Err(error) => return Err(error),
    };
    let info = Info::read(&text);
    let mut findings = of_info(&info);
    findings.push(timeout(console).await);
    Ok(Settings {
        findings,
        is_engine: info.is_engine(),
    })
}

fn of_info(info: &Info) -> Vec<Finding> {
    let mut findings = vec![version(info), role(info)];
    findings.extend(clients(info));
    findings.extend(memory(info));
    findings.extend(persistence(info));
    findings
}

fn version(info: &Info) -> Finding {
    let (product, version) = match info.text("valkey_version") {
        "" => ("redis", info.text("redis_version")),
        version => ("valkey", version),
    };
    if version.is_empty() {
        let advice = "Redis 7.0 or Valkey 7.2 or later is needed";
        return Finding::warn("version", "the server does not say its version", advice);
    }
    if info.is_engine() {
        let what = format!("the engine of stanchion serve, which behaves as redis {version}");
        return Finding::ok("version", what);
    }
    // docs/running/server.md: the clock of these versions can freeze, and leases do not end while it does.
    if product == "valkey" && ["9.1.0", "9.1.1"].contains(&version) {
        return Finding::fail(
            "version",
            format!("valkey {version}: its clock can freeze, and then no lease ends"),
            "upgrade to 9.1.2 or later",
        );
    }
    Finding::ok("version", format!("{product} {version}"))
}

fn role(info: &Info) -> Finding {
    if info.is("loading", "1") {
        return Finding::fail(
            "role",
            "the server is loading its data",
            "wait until it has",
        );
    }
    match info.text("role") {
        "master" => match info.number("connected_slaves") {
            0 => Finding::ok("role", "a master without replicas"),
            replicas => Finding::ok(
                "role",
                format!("a master with {replicas} replicas; a failover may lose the last grants"),
            ),
        },
        "" => Finding::skip(
            "role",
            "the server does not say its role",
            "it should be a master",
        ),
        other => Finding::fail(
            "role",
            format!("a {other}: nothing can be acquired here"),
            "name the master in the URL, or its sentinels",
        ),
    }
}

/// A server with `maxclients` connections refuses new ones, and so a client that lost its own cannot renew.
fn clients(info: &Info) -> Option<Finding> {
    let (most, open) = (info.number("maxclients"), info.number("connected_clients"));
    let percent = open.saturating_mul(100).checked_div(most)?;
    let room = format!("{open} of {most} connections are open (maxclients)");
    let advice = "raise maxclients, or find the program that leaves connections open";
    Some(match percent {
        100.. => Finding::fail("clients", format!("{room}: new ones are refused"), advice),
        80.. => Finding::warn(
            "clients",
            format!("{room}: at the limit new ones are refused"),
            advice,
        ),
        _ => Finding::ok("clients", room),
    })
}

fn memory(info: &Info) -> Vec<Finding> {
    let (limit, used) = (info.number("maxmemory"), info.number("used_memory"));
    let policy = info.text("maxmemory_policy");
    let advice = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file";
    let eviction = match policy {
        "noeviction" => Finding::ok("eviction", "maxmemory-policy is noeviction"),
        "" => Finding::skip(
            "eviction",
            "the server does not say its maxmemory-policy",
            advice,
        ),
        // Without a memory limit nothing is evicted until an administrator sets one.
        _ if limit == 0 => Finding::warn(
            "eviction",
            format!("maxmemory-policy is {policy}: locks may be evicted once maxmemory is set"),
            advice,
        ),
        _ => Finding::fail(
            "eviction",
            format!("maxmemory-policy is {policy}: locks may be evicted"),
            advice,
        ),
    };
    let mut findings = vec![eviction];
    let percent = used.saturating_mul(100).checked_div(limit).unwrap_or(0);
    let room = format!("{percent} % of maxmemory is used");
    findings.push(match percent {
        _ if limit == 0 => Finding::ok("memory", "no limit is set"),
        100.. => Finding::fail(
            "memory",
            format!("{room}: acquires are refused with OutOfMemory"),
            "raise maxmemory, or find the data that fills the server",
        ),
        90.. => Finding::warn(
            "memory",
            format!("{room}: at the limit acquires are refused"),
            "raise maxmemory, or find the data that fills the server",
        ),
        _ => Finding::ok("memory", room),
    });
    let evicted = info.number("evicted_keys");
    if evicted > 0 {
        findings.push(Finding::warn(
            "evicted",
            format!("{evicted} keys were evicted since the server started; locks may have been among them"),
            "see the policy above; alert on holds that are lost with LostReason::Gone",
        ));
    }
    findings
}

fn persistence(info: &Info) -> Vec<Finding> {
    if info.is_engine() {
        return vec![Finding::warn(
            "persistence",
            "the engine keeps nothing on disk: when it ends, all locks are free, and their holders find out at the next renewal",
            "for locks that outlive the server, or of several machines, use Redis or Valkey; tokens grow on either",
        )];
    }
    let aof = info.is("aof_enabled", "1");
    let mut findings = Vec::new();
    for (field, what) in [
        ("aof_last_write_status", "the append-only file"),
        ("rdb_last_bgsave_status", "the last snapshot"),
    ] {
        let matters = aof || field.starts_with("rdb");
        if matters && info.is(field, "err") {
            findings.push(Finding::fail(
                "disk",
                format!("{what} could not be written: the server may refuse all writes"),
                "see the server's log; free disk space",
            ));
        }
    }
    findings.push(if aof {
        Finding::ok("persistence", "appendonly yes")
    } else {
        Finding::warn(
            "persistence",
            "appendonly no: a restart may lose all locks, and their holders find out at the next renewal",
            "CONFIG SET appendonly yes, or check fencing tokens where that matters",
        )
    });
    findings
}

/// Idle clients keep up to three connections. A server that closes them makes each client reconnect at the cost of a login.
async fn timeout(console: &Console) -> Finding {
    const SHORTEST: i64 = 60;
    let asked = console.command(&["CONFIG", "GET", "timeout"]).await;
    let seconds = asked
        .ok()
        .and_then(|reply| reply.as_array()?.get(1)?.as_int());
    match seconds {
        None => Finding::skip(
            "timeout",
            "CONFIG GET is refused: the timeout of idle connections is not checked",
            "ACL SETUSER … +config|get, for the operator's user",
        ),
        Some(seconds @ 1..SHORTEST) => Finding::warn(
            "timeout",
            format!("connections that are idle for {seconds} s are closed"),
            "CONFIG SET timeout 0, or well above a minute",
        ),
        Some(0) => Finding::ok("timeout", "idle connections stay open"),
        Some(seconds) => Finding::ok(
            "timeout",
            format!("idle connections stay open for {seconds} s"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn level(check: &str, text: &str) -> Level {
        let findings = of_info(&Info::read(text));
        let of_check = findings.iter().filter(|finding| finding.check == check);
        of_check
            .map(|finding| finding.level)
            .max()
            .unwrap_or(Level::Ok)
    }

    #[test]
    fn each_setting_is_judged() {
        for (check, text, expected) in [
            ("version", "redis_version:7.0.15\r\n", Level::Ok),
            (
                "version",
                "redis_version:7.2.4\r\nvalkey_version:9.1.1\r\n",
                Level::Fail,
            ),
            (
                "version",
                "redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n",
                Level::Ok,
            ),
            (
                "persistence",
                "server_name:stanchion\r\nredis_version:7.0.15\r\naof_enabled:0\r\n",
                Level::Warn,
            ),
            ("role", "role:master\r\n", Level::Ok),
            ("role", "role:slave\r\n", Level::Fail),
            ("role", "role:master\r\nloading:1\r\n", Level::Fail),
            (
                "eviction",
                "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
                Level::Ok,
            ),
            (
                "eviction",
                "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n",
                Level::Warn,
            ),
            (
                "eviction",
                "maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n",
                Level::Fail,
            ),
            ("memory", "maxmemory:100\r\nused_memory:50\r\n", Level::Ok),
            ("memory", "maxmemory:100\r\nused_memory:95\r\n", Level::Warn),
            (
                "memory",
                "maxmemory:100\r\nused_memory:101\r\n",
                Level::Fail,
            ),
            (
                "clients",
                "connected_clients:4\r\nmaxclients:10\r\n",
                Level::Ok,
            ),
            (
                "clients",
                "connected_clients:8\r\nmaxclients:10\r\n",
                Level::Warn,
            ),
            (
                "clients",
                "connected_clients:10\r\nmaxclients:10\r\n",
                Level::Fail,
            ),
            ("evicted", "evicted_keys:3\r\n", Level::Warn),
            ("persistence", "aof_enabled:1\r\n", Level::Ok),
            ("persistence", "aof_enabled:0\r\n", Level::Warn),
            (
                "disk",
                "aof_enabled:0\r\nrdb_last_bgsave_status:err\r\n",
                Level::Fail,
            ),
            (
                "disk",
                "aof_enabled:0\r\naof_last_write_status:err\r\n",
                Level::Ok,
            ),
        ] {
            assert_eq!(level(check, text), expected, "{check}: {text:?}");
        }
    }
}
