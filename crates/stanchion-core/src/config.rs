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

const SCHEMES: &str = "redis://, rediss://, redis+sentinel://, rediss+sentinel://, redis+cluster://, rediss+cluster://, unix://, memory://";

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

impl From<&String> for ServerUrl {
    fn from(url: &String) -> Self {
        Self(url.clone())
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
    /// How to reach the server, or the servers:
    ///
    /// | URL | what it names |
    /// |---|---|
    /// | `redis://[user[:password]@]host[:port][/database]` | one server, port 6379 if none is given |
    /// | `redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/service[/database]` | the master that these sentinels (port 26379) call `service`, whoever that is at the time |
    /// | `redis+cluster://[user[:password]@]host[:port][,host[:port]…]` | the cluster that these nodes belong to; some are enough |
    /// | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…` | the same over TLS, to sentinels too |
    /// | `unix:///path[?db=n&user=…&pass=…]` | one server, by its socket |
    /// | `memory://[namespace]` | the engine in this process |
    ///
    /// `valkey` may be written for `redis`. User, password and database are those of the servers; sentinels have
    /// [their own](#structfield.sentinel_password).
    pub url: ServerUrl,
    /// Overrides the URL's user.
    pub username: Option<String>,
    /// Overrides the URL's password.
    pub password: Option<Secret>,
    /// Overrides the URL's database.
    pub database: Option<u32>,
    /// The user for the sentinels, if they want one.
    pub sentinel_username: Option<String>,
    /// The password for the sentinels, if they want one.
    pub sentinel_password: Option<Secret>,
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
    /// An acquire without a deadline gives up when the server has been out of reach for this long, since the first request of
    /// a waiter of this name in this process that was not answered, or since the call if that came later. Default 30 s.
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
            sentinel_username: None,
            sentinel_password: None,
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
        /// See [`ClientConfig::sentinel_username`](#structfield.sentinel_username).
        sentinel_username: Option<String>,
        /// See [`ClientConfig::sentinel_password`](#structfield.sentinel_password).
        sentinel_password: Option<Secret>,
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
            endpoint.login.username = Some(user.clone());
        }
        if let Some(password) = &self.password {
            endpoint.login.password = Some(password.clone());
        }
        if let Some(database) = self.database {
            endpoint.login.database = database;
        }
        let several = !matches!(endpoint.target, Target::Server(_));
        if several && self.seams.connector.is_some() {
            return Err(ConfigError::InvalidSetting {
                setting: "connector",
                value: endpoint.target.to_string(),
                rule: "a connector of your own leads to one server; use it with redis://".into(),
            });
        }
        if matches!(endpoint.target, Target::Cluster(_)) && endpoint.login.database != 0 {
            return Err(ConfigError::InvalidSetting {
                setting: "database",
                value: endpoint.login.database.to_string(),
                rule: "a cluster has database 0 only".into(),
            });
        }
        Ok(endpoint)
    }
}

/// A URL taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) target: Target,
    pub(crate) login: Login,
}

/// What a server is told by a new connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
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

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Server(Route),
    Sentinel(SentinelTarget),
    Cluster(ClusterTarget),
}

/// The master that these sentinels call `service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentinelTarget {
    pub(crate) sentinels: Vec<Place>,
    pub(crate) service: String,
    pub(crate) tls: bool,
}

/// The cluster that these nodes belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterTarget {
    pub(crate) seeds: Vec<Place>,
    pub(crate) tls: bool,
}

/// An address on the network, or a name with a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Place {
    pub(crate) fn route(&self, tls: bool) -> Route {
        let (host, port) = (self.host.clone(), self.port);
        if tls {
            Route::Tls { host, port }
        } else {
            Route::Tcp { host, port }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Several, with commas between them.
struct List<'a>(&'a [Place]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, place) in self.0.iter().enumerate() {
            write!(f, "{}{place}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
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

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |tls| if tls { "s" } else { "" };
        match self {
            Self::Server(route) => route.fmt(f),
            Self::Sentinel(to) => {
                let (s, list) = (s(to.tls), List(&to.sentinels));
                write!(f, "redis{s}+sentinel://{list}/{}", to.service)
            }
            Self::Cluster(to) => {
                write!(f, "redis{}+cluster://{}", s(to.tls), List(&to.seeds))
            }
        }
    }
}

/// The schemes whose authority lists several hosts, which no URL library reads.
fn several(text: &str) -> Option<(Several, bool, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let (server, kind) = scheme.split_once('+')?;
    let tls = match server {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => return None,
    };
    let kind = match kind {
        "sentinel" => Several::Sentinel,
        "cluster" => Several::Cluster,
        _ => return None,
    };
    Some((kind, tls, rest))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Several {
    Sentinel,
    Cluster,
}

impl Several {
    fn port(self) -> u16 {
        match self {
            Self::Sentinel => 26_379,
            Self::Cluster => 6379,
        }
    }

    /// Takes `[user[:password]@]host[:port][,…][/path]` apart.
    fn parse(self, tls: bool, rest: &str) -> Result<Endpoint, String> {
        if rest.contains('?') {
            return Err("parameters are not known here".into());
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let mut login = Login {
            username: decoded(user),
            password: decoded(password).map(Secret),
            database: 0,
        };
        let places = hosts
            .split(',')
            .map(|host| self.place(host))
            .collect::<Result<Vec<_>, _>>()?;
        let mut path = path.trim_end_matches('/').split('/');
        let mut next = || path.next().and_then(decoded);
        let target = match self {
            Self::Sentinel => {
                let service = next()
                    .ok_or("it names no service; write it as redis+sentinel://host:port/service")?;
                if let Some(database) = next() {
                    let number = database.parse();
                    login.database =
                        number.map_err(|_| format!("{database:?} is not a database number"))?;
                }
                Target::Sentinel(SentinelTarget {
                    sentinels: places,
                    service,
                    tls,
                })
            }
            Self::Cluster => Target::Cluster(ClusterTarget { seeds: places, tls }),
        };
        match next() {
            Some(_) if self == Self::Cluster => {
                Err("a cluster has database 0 only: leave the path out".into())
            }
            Some(more) => Err(format!("{more:?} after the database is not known")),
            None => Ok(Endpoint { target, login }),
        }
    }

    fn place(self, host: &str) -> Result<Place, String> {
        let url = Url::parse(&format!("redis://{host}")).map_err(|e| format!("{host:?}: {e}"))?;
        let name = url
            .host_str()
            .filter(|h| !h.is_empty())
            .ok_or_else(|| format!("{host:?} names no host"))?;
        Ok(Place {
            host: name
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port: url.port().unwrap_or_else(|| self.port()),
        })
    }
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let invalid = |rule: String| ConfigError::InvalidUrl {
            url: mask(text),
            rule,
        };
        if let Some((kind, tls, rest)) = several(text) {
            return kind.parse(tls, rest).map_err(invalid)?.supported(text);
        }
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
            target: Target::Server(route),
            login: Login {
                username,
                password: password.map(Secret),
                database,
            },
        };
        endpoint.supported(text)
    }

    fn supported(self, text: &str) -> Result<Self, ConfigError> {
        let missing = match self.target {
            Target::Server(Route::Tls { .. })
            | Target::Sentinel(SentinelTarget { tls: true, .. })
            | Target::Cluster(ClusterTarget { tls: true, .. })
                if cfg!(not(feature = "tls")) =>
            {
                Some("tls")
            }
            Target::Server(Route::Memory { .. }) if cfg!(not(feature = "embedded")) => {
                Some("embedded")
            }
            Target::Server(Route::Unix { .. }) if cfg!(not(unix)) => {
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

    fn target(url: &str) -> Target {
        Endpoint::parse(url).unwrap().target
    }

    fn route(url: &str) -> Route {
        match target(url) {
            Target::Server(route) => route,
            several => panic!("{several:?}"),
        }
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
                e.login.username.as_deref(),
                e.login.password.unwrap().reveal(),
                e.login.database
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
    fn urls_of_several_servers_are_taken_apart() {
        let place = |host: &str, port| Place {
            host: host.into(),
            port,
        };
        let e = Endpoint::parse("redis+sentinel://app:p%2Fw@a,b:7,[::1]:8/main%20one/3").unwrap();
        assert_eq!(
            e.target,
            Target::Sentinel(SentinelTarget {
                sentinels: vec![place("a", 26_379), place("b", 7), place("::1", 8)],
                service: "main one".into(),
                tls: false
            })
        );
        assert_eq!(
            e.target.to_string(),
            "redis+sentinel://a:26379,b:7,[::1]:8/main one"
        );
        assert_eq!(
            (
                e.login.username.as_deref(),
                e.login.password.unwrap().reveal(),
                e.login.database
            ),
            (Some("app"), "p/w", 3)
        );
        assert_eq!(
            target("valkey+cluster://:pw@a,b:7/"),
            Target::Cluster(ClusterTarget {
                seeds: vec![place("a", 6379), place("b", 7)],
                tls: false
            })
        );
    }

    #[cfg(feature = "tls")]
    #[test]
    fn urls_of_several_servers_may_ask_for_tls() {
        for url in ["rediss+cluster://a", "valkeys+sentinel://a/x"] {
            let target = target(url);
            assert!(target.to_string().starts_with("rediss+"), "{target}");
        }
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
            ("redis+sentinel://h:1", "names no service"),
            ("redis+sentinel://h:1/", "names no service"),
            ("redis+sentinel://h:1/s/x", "\"x\" is not a database number"),
            ("redis+sentinel://h:1/s/0/x", "\"x\" after the database"),
            ("redis+sentinel://h:1,,b/s", "names no host"),
            ("redis+sentinel:///s", "names no host"),
            ("redis+cluster://h:x", "invalid port number"),
            ("redis+cluster://h/1", "database 0 only"),
            ("redis+cluster://h?x=1", "parameters are not known"),
            ("redis+ring://h", "unknown scheme \"redis+ring\""),
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
            "redis+cluster://:hunter2@h,i/1",
            "redis+sentinel://:hunter2@h:1,i:2",
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
