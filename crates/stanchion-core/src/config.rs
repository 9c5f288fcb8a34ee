//! How to reach the server and how to behave towards it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::clock::Clock;
use crate::error::ConfigError;
use crate::transport::Connector;

const SCHEMES: &str = "redis://, rediss://, unix://, memory://";

/// A text that `Debug` does not print.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A URL that may carry a password: `Display` and `Debug` mask it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerUrl(String);

impl From<&str> for ServerUrl {
    fn from(url: &str) -> Self {
        Self(url.into())
    }
}

impl From<String> for ServerUrl {
    fn from(url: String) -> Self {
        Self(url)
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask(&self.0))
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&mask(&self.0), f)
    }
}

/// Where renewals, releases of dropped guards and messages are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Background {
    /// A thread of the client's own: renewal goes on while the caller's executor is blocked, and guards dropped with a
    /// runtime are still released.
    #[default]
    OwnThread,
    /// The runtime that connects. For virtual time and simulation; a runtime that shuts down leaves its holds to their leases.
    CurrentRuntime,
}

/// How waiters learn of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wake {
    /// By message, with a poll behind it.
    #[default]
    Messages,
    /// By asking again and again: after 1 ms, then twice as long each time, up to 128 ms, as Redisson's spin lock. For
    /// servers or proxies without pub/sub, and for users without the right to it. Releases still publish, for others.
    Poll,
}

/// The configuration of a [`crate::Client`]: a URL and what the URL does not say. `serde` reads and writes all but the
/// seams for tests; durations are texts such as `"750ms"`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ClientConfig {
    /// `redis://[user[:password]@]host[:port][/database]`, `rediss://…` (TLS), `unix:///path?db=n`, `memory://[namespace]`.
    pub url: ServerUrl,
    /// Overrides the URL's user.
    pub username: Option<String>,
    /// Overrides the URL's password.
    pub password: Option<Secret>,
    /// Overrides the URL's database.
    pub database: Option<u32>,
    /// Put in front of every name, as Redisson's `NameMapper` does.
    pub key_prefix: String,
    /// How this client calls itself to the server (`CLIENT SETNAME` is not sent; the embedded engine aims faults by it).
    pub name: String,
    /// A PEM file with the certificate authorities to trust instead of the platform's (TLS only).
    pub tls_ca_file: Option<PathBuf>,
    /// Bound on one try to connect, handshake included. Default 2 s.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// A connection that owes an answer for this long is dropped and made anew. Default 1 s.
    #[serde(with = "humantime_serde")]
    pub response_timeout: Duration,
    /// Bound on every call that has no deadline of its own: try, release, renew, re-enter, status. Default 5 s.
    #[serde(with = "humantime_serde")]
    pub operation_timeout: Duration,
    /// An acquire without a deadline gives up when the server has been out of reach for this long. Default 30 s.
    #[serde(with = "humantime_serde")]
    pub outage_tolerance: Duration,
    /// A waiter that was told nothing asks again after this long. Default 5 s.
    #[serde(with = "humantime_serde")]
    pub poll_interval: Duration,
    /// A subscription stays this long after its last waiter. Default 3 s.
    #[serde(with = "humantime_serde")]
    pub subscription_linger: Duration,
    /// Where background work runs.
    pub background: Background,
    /// How waiters learn of a release.
    pub wake: Wake,
    #[serde(skip)]
    pub(crate) seams: Seams,
}

/// What tests and simulations replace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seams {
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) connector: Option<Arc<dyn Connector>>,
    pub(crate) seed: Option<u64>,
    #[cfg(feature = "embedded")]
    pub(crate) engine: Option<stanchion_embedded::Engine>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379/".into(),
            username: None,
            password: None,
            database: None,
            key_prefix: String::new(),
            name: "stanchion".into(),
            tls_ca_file: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(1),
            operation_timeout: Duration::from_secs(5),
            outage_tolerance: Duration::from_secs(30),
            poll_interval: Duration::from_secs(5),
            subscription_linger: Duration::from_secs(3),
            background: Background::default(),
            wake: Wake::default(),
            seams: Seams::default(),
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, value: impl Into<$type>) -> Self { self.$name = value.into(); self })*
    };
}

impl ClientConfig {
    /// The defaults for `url`. Nothing is checked before [`crate::Client::connect_with`].
    pub fn new(url: impl Into<ServerUrl>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }

    setters! {
        /// See [`ClientConfig::username`](#structfield.username).
        username: Option<String>,
        /// See [`ClientConfig::password`](#structfield.password).
        password: Option<Secret>,
        /// See [`ClientConfig::database`](#structfield.database).
        database: Option<u32>,
        /// See [`ClientConfig::key_prefix`](#structfield.key_prefix).
        key_prefix: String,
        /// See [`ClientConfig::name`](#structfield.name).
        name: String,
        /// See [`ClientConfig::tls_ca_file`](#structfield.tls_ca_file).
        tls_ca_file: Option<PathBuf>,
        /// See [`ClientConfig::connect_timeout`](#structfield.connect_timeout).
        connect_timeout: Duration,
        /// See [`ClientConfig::response_timeout`](#structfield.response_timeout).
        response_timeout: Duration,
        /// See [`ClientConfig::operation_timeout`](#structfield.operation_timeout).
        operation_timeout: Duration,
        /// See [`ClientConfig::outage_tolerance`](#structfield.outage_tolerance).
        outage_tolerance: Duration,
        /// See [`ClientConfig::poll_interval`](#structfield.poll_interval).
        poll_interval: Duration,
        /// See [`ClientConfig::subscription_linger`](#structfield.subscription_linger).
        subscription_linger: Duration,
        /// See [`ClientConfig::background`](#structfield.background).
        background: Background,
        /// See [`ClientConfig::wake`](#structfield.wake).
        wake: Wake,
    }

    /// A client of `engine`, which the engine's faults call by [`name`](#structfield.name).
    #[cfg(feature = "embedded")]
    #[must_use]
    pub fn embedded(engine: &stanchion_embedded::Engine) -> Self {
        let mut config = Self::new("memory://");
        config.seams.engine = Some(engine.clone());
        config
    }

    /// Lives in tokio's time, which `tokio::time::pause` makes virtual: tokio's clock, and no thread of its own.
    #[must_use]
    pub fn virtual_time(self) -> Self {
        self.clock(crate::clock::TokioClock::start())
            .background(Background::CurrentRuntime)
    }

    /// Measure with `clock` instead of the boot clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.seams.clock = Some(Arc::new(clock));
        self
    }

    /// Connect through `connector` instead of the URL's transport (the URL still gives user, password, database).
    #[must_use]
    pub fn connector(mut self, connector: impl Connector) -> Self {
        self.seams.connector = Some(Arc::new(connector));
        self
    }

    /// Make jitter reproducible.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seams.seed = Some(seed);
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let bounds = [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("operation_timeout", self.operation_timeout),
            ("outage_tolerance", self.outage_tolerance),
            ("poll_interval", self.poll_interval),
        ];
        for (setting, value) in bounds {
            if value < Duration::from_millis(10) || value > Duration::from_secs(3600) {
                return Err(ConfigError::InvalidSetting {
                    setting,
                    value: humantime::format_duration(value).to_string(),
                    rule: "10ms to 1h".into(),
                });
            }
        }
        if self.key_prefix.len() > 256 || self.key_prefix.contains(['{', '}']) {
            return Err(ConfigError::InvalidSetting {
                setting: "key_prefix",
                value: format!("{:?}", self.key_prefix),
                rule: "at most 256 bytes and no braces".into(),
            });
        }
        Ok(())
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, ConfigError> {
        self.check()?;
        let mut endpoint = Endpoint::parse(&self.url.0)?;
        if let Some(user) = &self.username {
            endpoint.username = Some(user.clone());
        }
        if let Some(password) = &self.password {
            endpoint.password = Some(password.clone());
        }
        if let Some(database) = self.database {
            endpoint.database = database;
        }
        Ok(endpoint)
    }
}

/// A URL taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) route: Route,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: u32,
}

/// How bytes get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16 },
    Unix { path: PathBuf },
    Memory { namespace: String },
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "redis://{host}:{port}"),
            Self::Tls { host, port } => write!(f, "rediss://{host}:{port}"),
            Self::Unix { path } => write!(f, "unix://{}", path.display()),
            Self::Memory { namespace } => write!(f, "memory://{namespace}"),
        }
    }
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let invalid = |rule: String| ConfigError::InvalidUrl {
            url: mask(text),
            rule,
        };
        let url = Url::parse(text)
            .map_err(|e| invalid(format!("{e}; write it as redis://host:port/")))?;
        let mut username = decoded(url.username());
        let mut password = url.password().and_then(decoded);
        let mut database = 0;
        let route = match url.scheme() {
            "redis" | "valkey" | "rediss" | "valkeys" => {
                let host = url
                    .host_str()
                    .filter(|h| !h.is_empty())
                    .ok_or_else(|| invalid("it names no host".into()))?;
                let host = host
                    .trim_start_matches('[')
                    .trim_end_matches(']')
                    .to_owned();
                let port = url.port().unwrap_or(6379);
                let path = url.path().trim_matches('/');
                if !path.is_empty() {
                    database = path
                        .parse()
                        .map_err(|_| invalid(format!("{path:?} is not a database number")))?;
                }
                if url.scheme().ends_with('s') && url.scheme() != "redis" {
                    Route::Tls { host, port }
                } else {
                    Route::Tcp { host, port }
                }
            }
            "unix" | "redis+unix" | "valkey+unix" => {
                for (key, value) in url.query_pairs() {
                    match &*key {
                        "db" => {
                            database = value.parse().map_err(|_| {
                                invalid(format!("db={value:?} is not a database number"))
                            })?;
                        }
                        "user" => username = Some(value.into_owned()),
                        "pass" | "password" => password = Some(value.into_owned()),
                        other => {
                            return Err(invalid(format!(
                                "unknown parameter {other:?}; db, user and pass are known"
                            )));
                        }
                    }
                }
                let path = decoded(url.path()).unwrap_or_default();
                if path.len() < 2 {
                    return Err(invalid(
                        "it names no socket path; write it as unix:///run/redis.sock".into(),
                    ));
                }
                Route::Unix { path: path.into() }
            }
            "memory" => {
                let namespace = format!(
                    "{}{}",
                    url.host_str().unwrap_or(""),
                    url.path().trim_end_matches('/')
                );
                Route::Memory { namespace }
            }
            scheme => {
                return Err(ConfigError::UnknownScheme {
                    scheme: scheme.into(),
                    url: mask(text),
                    known: SCHEMES,
                });
            }
        };
        if !matches!(route, Route::Unix { .. }) && url.query().is_some() {
            return Err(invalid("parameters are not known here".into()));
        }
        let endpoint = Self {
            route,
            username,
            password: password.map(Secret),
            database,
        };
        endpoint.supported(text)
    }

    fn supported(self, text: &str) -> Result<Self, ConfigError> {
        let missing = match self.route {
            Route::Tls { .. } if cfg!(not(feature = "tls")) => Some("tls"),
            Route::Memory { .. } if cfg!(not(feature = "embedded")) => Some("embedded"),
            Route::Unix { .. } if cfg!(not(unix)) => {
                return Err(ConfigError::InvalidUrl {
                    url: mask(text),
                    rule: "this platform has no unix sockets".into(),
                });
            }
            _ => None,
        };
        match missing {
            Some(feature) => Err(ConfigError::MissingFeature {
                url: mask(text),
                feature,
            }),
            None => Ok(self),
        }
    }
}

/// The text behind percent escapes; `None` for an empty one.
fn decoded(text: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8_lossy();
    (!text.is_empty()).then(|| text.into_owned())
}

/// The URL without its password, for messages.
fn mask(text: &str) -> String {
    match Url::parse(text) {
        Ok(mut url) if url.password().is_some() => {
            // OK: a URL that has a password can have another one.
            let _ = url.set_password(Some("***"));
            url.into()
        }
        Ok(url) if url.query().is_some() => text.split('?').next().unwrap_or_default().to_owned(),
        Ok(url) if url.has_host() => text.into(),
        // No URL of ours: whatever stands before an @ may be a secret.
        _ => text
            .rsplit_once('@')
            .map_or_else(|| text.to_owned(), |(_, host)| format!("***@{host}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(url: &str) -> Route {
        Endpoint::parse(url).unwrap().route
    }

    #[test]
    fn urls_are_taken_apart() {
        assert_eq!(
            route("redis://db.example"),
            Route::Tcp {
                host: "db.example".into(),
                port: 6379
            }
        );
        assert_eq!(
            route("redis://[::1]:7000/3"),
            Route::Tcp {
                host: "::1".into(),
                port: 7000
            }
        );
        let e = Endpoint::parse("redis://u%40x:p%2Fw@h/5").unwrap();
        assert_eq!(
            (
                e.username.as_deref(),
                e.password.unwrap().reveal(),
                e.database
            ),
            (Some("u@x"), "p/w", 5)
        );
        assert_eq!(
            route("unix:///run/redis.sock?db=2"),
            Route::Unix {
                path: "/run/redis.sock".into()
            }
        );
    }

    #[test]
    fn bad_urls_name_the_value_and_the_rule() {
        for (url, expected) in [
            ("localhost:6379", "unknown scheme \"localhost\""),
            ("redis//nope", "invalid URL"),
            (
                "http://x",
                "unknown scheme \"http\" in \"http://x\": use one of redis://",
            ),
            ("redis://h/abc", "\"abc\" is not a database number"),
            ("redis://h/?x=1", "parameters are not known"),
            ("unix://", "names no socket path"),
            ("", "invalid URL"),
        ] {
            let text = Endpoint::parse(url).unwrap_err().to_string();
            assert!(text.contains(expected), "{url}: {text}");
        }
    }

    #[test]
    fn no_message_and_no_debug_output_shows_a_password() {
        for url in [
            "redis://u:hunter2@h/abc",
            "ftp://u:hunter2@h",
            "u:hunter2@h:1",
            "redis://:hunter2@h:notaport",
        ] {
            let text = Endpoint::parse(url).unwrap_err().to_string();
            assert!(!text.contains("hunter2"), "{text}");
        }
        let config = ClientConfig::new("redis://:hunter2@h").password(Secret::new("hunter2"));
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn the_configuration_reads_and_writes_as_text() {
        let config = ClientConfig::new("redis://h").response_timeout(Duration::from_millis(750));
        let json = serde_json::to_string(&config).unwrap();
        assert!(json.contains("\"750ms\""), "{json}");
        let back: ClientConfig = serde_json::from_str(&json).unwrap();
        assert_eq!(back.response_timeout, config.response_timeout);
        assert!(serde_json::from_str::<ClientConfig>("{\"ulr\": \"x\"}").is_err());
    }
}
