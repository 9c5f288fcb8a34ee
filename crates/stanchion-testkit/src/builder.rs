//! The configuration of a private server.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::servers::RedisServer;
use crate::tls::Certificate;

/// The role of a process in its set of servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Part {
    /// A standalone server.
    #[default]
    Alone,
    /// A cluster of one node.
    WholeCluster,
    /// A node of a cluster that is formed later.
    Node,
    /// A sentinel with this id.
    Sentinel(String),
}

/// Settings of a [`RedisServer`]; created by [`RedisServer::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before `start`"]
pub struct RedisServerBuilder {
    pub(crate) directives: Vec<(String, String)>,
    pub(crate) password: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) tls: Option<Certificate>,
    pub(crate) unix_socket: bool,
    pub(crate) part: Part,
    pub(crate) steppable_clock: bool,
}

impl RedisServerBuilder {
    /// Adds a line of `redis.conf`: `arg("maxmemory", "1mb")`. An empty value is written as `""`.
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.directives.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Keeps every write across a kill (`appendfsync always`).
    pub fn append_only(self) -> Self {
        self.arg("appendonly", "yes").arg("appendfsync", "always")
    }

    /// Requires this password of clients; [`RedisServer::url`] contains it.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Listens on a unix socket as well; see [`RedisServer::unix_url`].
    pub const fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Serves clients over TLS with a good certificate; see [`RedisServer::ca_pem`].
    pub const fn tls(self) -> Self {
        self.tls_with(Certificate::Valid)
    }

    /// Serves clients over TLS with the given kind of certificate.
    pub const fn tls_with(mut self, certificate: Certificate) -> Self {
        self.tls = Some(certificate);
        self
    }

    /// Requires of TLS clients a certificate of the server's authority; see [`RedisServer::client_certificate`].
    pub fn client_certificates(self) -> Self {
        self.arg("tls-auth-clients", "yes")
    }

    /// Makes the server a cluster of one node that owns every slot.
    pub fn cluster_enabled(mut self) -> Self {
        self.part = Part::WholeCluster;
        self
    }

    pub(crate) fn part(mut self, part: Part) -> Self {
        self.part = part;
        self
    }

    /// Listens on this port instead of a free one.
    pub const fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Lets [`RedisServer::step_clock`] move the server's wall clock. Needs `cc`.
    pub const fn steppable_clock(mut self) -> Self {
        self.steppable_clock = true;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// If the server does not start; the message contains its log.
    #[must_use]
    pub fn start(self) -> RedisServer {
        RedisServer::launch(self)
    }

    /// Returns the text of `redis.conf`. Later lines win, so the caller's directives come last.
    pub(crate) fn config(&self, dir: &Path, ports: &Ports) -> String {
        let path = |name: &str| dir.join(name).display().to_string();
        let mut lines = vec![
            ("bind", "127.0.0.1".to_owned()),
            ("port", ports.plain.to_string()),
            ("dir", dir.display().to_string()),
            ("logfile", path(LOG)),
            ("daemonize", "no".to_owned()),
        ];
        if !matches!(self.part, Part::Sentinel(_)) {
            lines.push(("save", String::new()));
            lines.push(("appendonly", "no".to_owned()));
        }
        if let Some(password) = &self.password {
            lines.push(("requirepass", password.clone()));
        }
        if self.unix_socket {
            lines.push(("unixsocket", path(SOCKET)));
        }
        if let Some(port) = ports.tls {
            lines.push(("tls-port", port.to_string()));
            lines.push(("tls-cert-file", path("server.crt")));
            lines.push(("tls-key-file", path("server.key")));
            lines.push(("tls-ca-cert-file", path("ca.crt")));
            lines.push(("tls-auth-clients", "no".to_owned()));
        }
        if let Some(port) = ports.bus {
            lines.push(("cluster-enabled", "yes".to_owned()));
            lines.push(("cluster-port", port.to_string()));
        }
        let mut text = String::new();
        for (key, value) in lines {
            writeln!(text, "{key} \"{value}\"").expect("writing to a string");
        }
        for (key, value) in &self.directives {
            let value = if value.is_empty() { "\"\"" } else { value };
            writeln!(text, "{key} {value}").expect("writing to a string");
        }
        text
    }

    pub(crate) fn ports(&self) -> Ports {
        let primary = self.port.unwrap_or_else(free_port);
        // The tools speak plain TCP on a second port when clients speak TLS on the first.
        let (plain, tls) = match self.tls {
            None => (primary, None),
            Some(_) => (free_port(), Some(primary)),
        };
        let bus = matches!(self.part, Part::Node | Part::WholeCluster).then(free_port);
        Ports { plain, tls, bus }
    }
}

/// The name of the log inside the server's directory.
pub(crate) const LOG: &str = "server.log";
/// The name of the unix socket inside the server's directory.
pub(crate) const SOCKET: &str = "redis.sock";

#[derive(Debug, Clone)]
pub(crate) struct Ports {
    pub(crate) plain: u16,
    pub(crate) tls: Option<u16>,
    pub(crate) bus: Option<u16>,
}

/// Returns a free port below the range that the system uses for outgoing connections.
///
/// A port within that range could be taken between the kill of a server and its restart, even by a client that retries and
/// connects to itself.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Test binaries that run in parallel begin at different ports.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(number < 100_000, "no free port");
        let offset = std::process::id().wrapping_mul(97).wrapping_add(number) % 15_000;
        let port = u16::try_from(15_000 + offset).expect("below 30000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
