//! The facts that a client learns about the server when it connects.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{ConnectError, ServerRejection};
use crate::link::{Link, Live, plain};
use crate::{Failure, Reply};

/// The way in which the server distributes keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// One server (or one replicated set): a script may use any keys.
    Anywhere,
    /// A cluster: a script may use keys of one slot.
    Slots,
}

/// Facts about the server, read once with `INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The product and version: `redis 7.0.15`, `valkey 8.1.0`; `unknown` where `INFO` is refused.
    pub version: String,
    /// The distribution of keys: by slot on a cluster.
    pub placement: Placement,
    /// The server's policy for full memory. Any policy except `noeviction` may evict locks.
    pub eviction_policy: String,
    /// The server's role: `master` or `slave`.
    pub role: String,
    /// The server process's identity, new with every start; empty where `INFO` is refused.
    pub run_id: String,
}

impl Default for ServerInfo {
    fn default() -> Self {
        Self {
            version: "unknown".into(),
            placement: Placement::Anywhere,
            eviction_policy: "unknown".into(),
            role: "unknown".into(),
            run_id: String::new(),
        }
    }
}

/// The command that reads the facts. Without a section argument, one reply contains all of them, in one round trip.
const INFO: [&str; 1] = ["INFO"];

/// The facts that a client has about its servers.
#[derive(Debug)]
pub struct Facts {
    /// The default facts until they are read. Only the placement is set, from the URL.
    assumed: ServerInfo,
    /// Set once: at the connect, or by the first connection of a client that connects later.
    read: OnceLock<ServerInfo>,
    /// True once a server has refused a write as a replica. Set by any link.
    refused: AtomicBool,
    /// True for a client that connects later: each connection reads the facts before its first call, until one has succeeded.
    later: bool,
}

impl Facts {
    pub(crate) fn new(placement: Placement, later: bool) -> Self {
        Self {
            assumed: ServerInfo {
                placement,
                ..ServerInfo::default()
            },
            read: OnceLock::new(),
            refused: AtomicBool::new(false),
            later,
        }
    }

    /// Returns the facts known now.
    pub fn get(&self) -> &ServerInfo {
        self.read.get().unwrap_or(&self.assumed)
    }

    /// Returns whether the client needs a master: its server was one, or a replica has refused a write.
    ///
    /// A name may lead to another server after a failover, while the old master lives on as a replica. A client that stayed there could
    /// only read, and its subscriptions would not count at the new master.
    pub(crate) fn needs_master(&self) -> bool {
        self.refused.load(Ordering::Relaxed) || self.get().role == "master"
    }

    /// Records that a replica has refused a write.
    pub(crate) fn refused_write(&self) {
        // `Relaxed`: links read the flag at their next connect or probe.
        self.refused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, info: ServerInfo) {
        // An error means that another connection of the same client has set them already, which is as good.
        let _ = self.read.set(info);
    }

    /// Checks the server of a new connection before any call can use it, if nothing has been read yet.
    pub(crate) async fn learn(&self, server: &str, live: &Live) -> Result<(), ConnectError> {
        if !self.later || self.read.get().is_some() {
            return Ok(());
        }
        let info = ServerInfo::of(server, plain(live, &INFO).await)?;
        match (self.assumed.placement, info.placement) {
            (Placement::Slots, _) => self.set(on_cluster(info)),
            (Placement::Anywhere, Placement::Anywhere) => self.set(info),
            // Names were made already, and channels subscribed to, by the rules of a single server.
            (Placement::Anywhere, Placement::Slots) => {
                let detail = "a client that connects later needs redis+cluster:// for it".into();
                return Err(ConnectError::Rejected {
                    server: server.into(),
                    rejection: ServerRejection::Cluster { detail },
                });
            }
        }
        Ok(())
    }
}

impl ServerInfo {
    /// Returns whether the server may evict locks when its memory is full.
    #[must_use]
    pub fn may_evict(&self) -> bool {
        // An unknown policy causes no warning: the missing permission for `INFO` has been logged (`ServerInfo::of`).
        !matches!(self.eviction_policy.as_str(), "noeviction" | "unknown" | "")
    }

    pub(crate) async fn ask(link: &Link) -> Result<Self, ConnectError> {
        Self::of(link.server(), link.command(&INFO).await)
    }

    /// Reads and checks the answer of `server` to [`INFO`].
    fn of(server: &str, answer: Result<Reply, Failure>) -> Result<Self, ConnectError> {
        let server = || server.to_owned();
        let text = match answer {
            Ok(reply) => reply.as_text().unwrap_or_default().to_owned(),
            Err(Failure::Rejected(rejection @ ServerRejection::Unauthenticated { .. })) => {
                return Err(ConnectError::Rejected {
                    server: server(),
                    rejection,
                });
            }
            // Not fatal: only checks and warnings depend on these facts, and no grant does. For a cluster `on_cluster` sets
            // the placement. Proxies do not know the command.
            Err(Failure::Rejected(rejection)) => {
                tracing::warn!(
                    %rejection,
                    "INFO is refused: version, placement and eviction policy are not checked"
                );
                return Ok(Self::default());
            }
            Err(Failure::NotNow(outage) | Failure::Unanswered(outage)) => {
                return Err(ConnectError::Unreachable {
                    server: server(),
                    detail: outage.to_string(),
                });
            }
        };
        let info = Self::read(&text);
        if let Some(version) = too_old(&text) {
            return Err(ConnectError::UnsupportedServer {
                server: server(),
                version,
            });
        }
        if info.may_evict() {
            tracing::warn!(
                policy = info.eviction_policy,
                "this server may evict locks when memory is full: set maxmemory-policy noeviction"
            );
        }
        Ok(info)
    }

    fn read(text: &str) -> Self {
        let field = |name| field(text, name);
        // Valkey first, because Valkey reports a `redis_version`, too.
        let version = match field("valkey_version") {
            Some(version) => format!("valkey {version}"),
            None => field("redis_version")
                .map_or_else(|| "unknown".into(), |version| format!("redis {version}")),
        };
        Self {
            version,
            placement: if field("cluster_enabled") == Some("1") {
                Placement::Slots
            } else {
                Placement::Anywhere
            },
            eviction_policy: field("maxmemory_policy").unwrap_or("unknown").into(),
            role: field("role").unwrap_or("unknown").into(),
            run_id: field("run_id").unwrap_or_default().into(),
        }
    }
}

/// Returns the identity of the server's process in a reply to `INFO`.
pub(crate) fn run_id(text: &str) -> Option<String> {
    field(text, "run_id").map(str::to_owned)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        // The colon is part of the match. Otherwise `role` would match the first field with that prefix.
        .find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

/// Returns the version if it is below 7, which has no `PEXPIRE … GT`. Valkey reports the Redis version with which it is
/// compatible.
fn too_old(text: &str) -> Option<String> {
    // A server without a version, or with a version that is not a number, is accepted. Only a version that is known to be
    // too old is refused.
    let version = field(text, "redis_version")?;
    let major: u32 = version.split('.').next()?.parse().ok()?;
    // The option came with 7.0, so the major number decides.
    (major < 7).then(|| format!("redis {version}"))
}

/// Returns `info` with placement by slot. A user without permission for `INFO` cannot read the placement.
pub(crate) fn on_cluster(info: ServerInfo) -> ServerInfo {
    ServerInfo {
        placement: Placement::Slots,
        ..info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_info() {
        let info = ServerInfo::read(
            "# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.1.0\r\nrole:master\r\nmaxmemory_policy:volatile-lru\r\ncluster_enabled:1\r\n",
        );
        assert_eq!(
            (info.version.as_str(), info.placement, info.may_evict()),
            ("valkey 8.1.0", Placement::Slots, true)
        );
        assert_eq!(
            too_old("redis_version:6.2.14\r\n").as_deref(),
            Some("redis 6.2.14")
        );
        assert_eq!(too_old("redis_version:7.0.0\r\n"), None);
    }

    #[test]
    fn a_server_that_refuses_info_is_not_checked() {
        let answer = |code: &str, text: &str| {
            ServerInfo::of("server", Err(crate::failure::by_code(code, text)))
        };
        // A proxy that does not know the command; a user without the right.
        for (code, text) in [("ERR", "unknown command 'INFO'"), ("NOPERM", "no right")] {
            assert_eq!(answer(code, text), Ok(ServerInfo::default()));
        }
        assert!(answer("NOAUTH", "Authentication required.").is_err());
        assert!(answer("LOADING", "loading").is_err());
    }
}
