//! Errors on the way to a server: configuration, connection, and the server's own error replies.

use crate::printable::Printable;

/// The reason why the server could not be reached, or could not answer, for now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Outage {
    /// There is no connection, and reconnecting has not succeeded yet.
    #[error(
        "no connection to {}: {}",
        Printable::new(server),
        Printable::new(detail)
    )]
    Disconnected {
        /// The server, without credentials.
        server: String,
        /// The failure of the last attempt.
        detail: String,
    },
    /// The request was sent, and no answer arrived.
    #[error("no answer: {}", Printable::new(detail))]
    Unanswered {
        /// The failure of the connection.
        detail: String,
    },
    /// The server refused for now (`LOADING`, `READONLY`, `CLUSTERDOWN`, …). The request was not executed.
    #[error(
        "the server refuses for now: {} {}",
        Printable::new(code),
        Printable::new(detail)
    )]
    Refused {
        /// The error code.
        code: String,
        /// The rest of the server's message.
        detail: String,
    },
}

/// A refusal by the server. A retry will not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerRejection {
    /// The key exists and holds another kind of value. The key was not touched.
    #[error(
        "the key holds another kind of value and was left untouched: {}",
        Printable::new(detail)
    )]
    WrongType {
        /// The server's message.
        detail: String,
    },
    /// `NOAUTH`, `WRONGPASS`: credentials are missing or wrong.
    #[error("not authenticated: {}", Printable::new(detail))]
    Unauthenticated {
        /// The server's message.
        detail: String,
    },
    /// `NOPERM`: the user lacks a permission. `docs/running/rights.md` lists the permissions that are needed.
    #[error("not permitted: {}", Printable::new(detail))]
    NotPermitted {
        /// The server's message.
        detail: String,
    },
    /// `maxmemory` is reached. Nothing was written; releases and renewals still work.
    #[error("the server is out of memory: {}", Printable::new(detail))]
    OutOfMemory {
        /// The server's message.
        detail: String,
    },
    /// The server belongs to a cluster, but the client is configured for one server; or the keys are in different slots.
    #[error("the server is part of a cluster: {}", Printable::new(detail))]
    Cluster {
        /// The server's message.
        detail: String,
    },
    /// Another error of the server.
    #[error("the server answered: {}", Printable::new(detail))]
    Other {
        /// The server's message, or the fault in its answer.
        detail: String,
    },
}

/// A configuration that cannot be used. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The URL cannot be understood.
    #[error("invalid URL {url:?}: {rule}")]
    InvalidUrl {
        /// The URL, its password masked.
        url: String,
        /// The fault in the URL.
        rule: String,
    },
    /// The URL's scheme is unknown.
    #[error("unknown scheme {scheme:?} in {url:?}: use one of {known}")]
    UnknownScheme {
        /// The scheme.
        scheme: String,
        /// The URL, its password masked.
        url: String,
        /// The schemes of this build.
        known: &'static str,
    },
    /// The scheme is known, but this build does not support it.
    #[error(
        "{url:?} needs the crate feature `{feature}`: in Cargo.toml add {line} to the line of stanchion, or of the primitive's crate"
    )]
    MissingFeature {
        /// The URL, its password masked.
        url: String,
        /// The feature.
        feature: &'static str,
        /// The text that enables it in `Cargo.toml`.
        line: String,
    },
    /// The call was made outside a tokio runtime, which the connections need.
    #[error(
        "no tokio runtime: connect inside one, with its timer and I/O enabled (`enable_all`), or use the blocking client"
    )]
    NoRuntime,
    /// A setting is out of its range.
    #[error("invalid {setting} {value}: {rule}")]
    InvalidSetting {
        /// The setting's name in [`crate::ClientConfig`].
        setting: &'static str,
        /// The value as given.
        value: String,
        /// The rule.
        rule: String,
    },
}

impl ConfigError {
    pub(crate) fn missing_feature(url: String, feature: &'static str) -> Self {
        Self::MissingFeature {
            url,
            feature,
            line: format!("features = [\"{feature}\"]"),
        }
    }
}

/// A client could not be connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The configuration is wrong; nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server cannot be reached, or does not answer as a Redis server.
    #[error("cannot reach {}: {}", Printable::new(server), Printable::new(detail))]
    Unreachable {
        /// The server, without credentials.
        server: String,
        /// The failure.
        detail: String,
    },
    /// TLS failed: the certificate, its name or its issuer is not accepted, or the port does not speak TLS.
    #[error(
        "TLS with {} failed: {}",
        Printable::new(server),
        Printable::new(detail)
    )]
    Tls {
        /// The server.
        server: String,
        /// The failure.
        detail: String,
    },
    /// The server refused this client.
    #[error("{} rejected this client: {rejection}", Printable::new(server))]
    Rejected {
        /// The server, without credentials.
        server: String,
        /// The reason.
        rejection: ServerRejection,
    },
    /// The provider of credentials has none. The next attempt to connect calls the provider again.
    #[error(
        "no credentials for {}: {}",
        Printable::new(server),
        Printable::new(detail)
    )]
    Credentials {
        /// The server, without credentials.
        server: String,
        /// The provider's message.
        detail: String,
    },
    /// The server is too old: `PEXPIRE … GT` needs Redis ≥ 7.0 or Valkey ≥ 7.2.
    #[error(
        "{} runs {}; Redis 7.0 or Valkey 7.2 is the oldest that works",
        Printable::new(server),
        Printable::new(version)
    )]
    UnsupportedServer {
        /// The server.
        server: String,
        /// Its version.
        version: String,
    },
}

impl ConnectError {
    /// Returns the reason alone, for a message that names `server` already.
    pub(crate) fn reason_at(&self, server: &str) -> String {
        match self {
            Self::Unreachable { server: at, detail } if at == server => detail.clone(),
            Self::Tls { server: at, detail } if at == server => format!("TLS failed: {detail}"),
            Self::Rejected {
                server: at,
                rejection,
            } if at == server => rejection.to_string(),
            Self::Credentials { server: at, detail } if at == server => {
                format!("no credentials: {detail}")
            }
            other => other.to_string(),
        }
    }
}

/// Returns the more helpful of two reasons for a failed connection: a refusal is more helpful than a missing answer.
pub(crate) fn more_telling(earlier: Option<ConnectError>, later: ConnectError) -> ConnectError {
    // A missing answer may come from one dead seed or sentinel. The user must fix a refusal (a password, a certificate, an
    // unknown service), so a missing answer must not hide it.
    match earlier {
        Some(earlier) if !matches!(earlier, ConnectError::Unreachable { .. }) => earlier,
        _ => later,
    }
}
