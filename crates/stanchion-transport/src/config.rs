//! The configuration of a client: the servers, the timeouts, and the seams for tests.
//!
//! Long: every setting with its meaning, in one struct.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Connector;
use crate::clock::Clock;
use crate::error::ConfigError;
use crate::observer::{Observer, Observing};
use crate::secret::{CredentialsProvider, MASKED, Provider, Secret, ServerUrl};
use crate::url::{Endpoint, Target};

/// The thread or runtime that handles renewals, releases of dropped guards, and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Background {
    /// A thread that belongs to the client. Renewal continues while the caller's executor is blocked, and guards that are
    /// dropped with a runtime are still released. Costs a thread and, for each server, a second connection.
    #[default]
    OwnThread,
    /// The runtime that connects. For virtual time and simulation. When that runtime is blocked, leases are not renewed. When the runtime shuts down,
    /// the client ends: calls fail as after a shutdown, and its locks stay held until their leases end.
    CurrentRuntime,
}

/// The way in which waiters learn of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wake {
    /// By message, with a poll at [`ClientConfig::poll_interval`](ClientConfig#structfield.poll_interval) as a fallback.
    #[default]
    Messages,
    /// By polling: after 1 ms, then twice as long each time, up to 128 ms, like Redisson's spin lock. For servers or proxies
    /// without pub/sub, and for users without permission for it. Costs requests as long as any call waits. Releases still
    /// publish, for other clients.
    Poll,
}

/// The information about a client that other processes can read from the server: see `Client::survey`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Presence {
    /// The client's holds and waits that last for seconds, with the name of the application, the host and the process id.
    #[default]
    On,
    /// The same without names: 8 hex digits replace each name. The digits of a name are the same in all processes, so
    /// deadlocks are found. If a reader guesses a name, the digits confirm the guess.
    WithoutNames,
    /// Nothing is written to the server.
    Off,
}

/// The configuration of a `Client`: a URL and the settings that the URL does not carry.
///
/// `serde` reads and writes everything but the seams for tests, the observer and the provider of credentials; durations are texts such as
/// `"750ms"`. Durations from 10 ms to 1 h are accepted, except for
/// [`subscription_linger`](#structfield.subscription_linger), which has no bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
// An unknown field is an error: a misspelt setting must not silently have its default.
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The server, or the servers:
    ///
    /// | URL | names |
    /// |---|---|
    /// | `redis://[user[:password]@]host[:port][/database]` | one server, port 6379 if none is given |
    /// | `redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/service[/database]` | the current master of `service`, by these sentinels (port 26379) |
    /// | `redis+cluster://[user[:password]@]host[:port][,host[:port]…][/database]` | the cluster that these nodes belong to; a few nodes suffice |
    /// | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…` | the same over TLS, to sentinels too |
    /// | `unix:///path[?db=n&user=…&pass=…]` | one server, by its socket |
    /// | `memory://[namespace]` | the engine in this process |
    ///
    /// `valkey` may be written for `redis`. User, password and database are those of the servers; sentinels have
    /// [their own](#structfield.sentinel_password).
    pub url: ServerUrl,
    /// The user; overrides the URL's.
    pub username: Option<String>,
    /// The password; overrides the URL's. Not written by `serde` or `Debug`, which show `***`.
    pub password: Option<Secret>,
    /// The number of the database; overrides the URL's. Most clusters have database 0 only, and then refuse another at connect; since
    /// Valkey 9 a cluster may have more (`cluster-databases`).
    pub database: Option<u32>,
    /// The user for the sentinels, if they require one.
    pub sentinel_username: Option<String>,
    /// The password for the sentinels, if they require one.
    pub sentinel_password: Option<Secret>,
    /// The prefix of every name, as with Redisson's `NameMapper`. At most 256 bytes, no braces. Clients with different
    /// prefixes share no locks; longer prefixes are sent with every key. Default empty.
    pub key_prefix: String,
    /// The name of the application, for operators: `CLIENT LIST` shows the connections as `stanchion:<client's
    /// uuid>:<name>:<pid>@<host>`, without process id and machine if [`presence`](#structfield.presence) is off. Cut to 32 bytes; a character outside `[A-Za-z0-9._-]` becomes `_`. Default `stanchion`.
    ///
    /// Tests also use the name as the label under which they inject faults into connections to the embedded engine.
    pub name: String,
    /// A PEM file with the certificate authorities to trust instead of the platform's (TLS only).
    ///
    /// This file and the next two are read at every connect, so renewed files take effect without a restart. If one of them
    /// cannot be read or used at that time, the client uses the last usable contents and logs a warning.
    pub tls_ca_file: Option<PathBuf>,
    /// A PEM file with the client's own certificate and the intermediate certificates up to its authority, for servers that
    /// require one (TLS only). Requires [`tls_key_file`](#structfield.tls_key_file).
    pub tls_cert_file: Option<PathBuf>,
    /// A PEM file with the private key of that certificate: PKCS #8, PKCS #1 or SEC 1, not encrypted. Requires
    /// [`tls_cert_file`](#structfield.tls_cert_file).
    pub tls_key_file: Option<PathBuf>,
    /// The longest time that one attempt to connect may take, including credentials, TLS and login. Default 2 s.
    ///
    /// Half of this time applies to sentinels, and to cluster nodes that are only queried for the map. With a short timeout, a slow handshake or a
    /// slow provider of credentials never succeeds. With a long one, an unreachable server is noticed late.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// The longest time that a connection may owe a reply while no reply arrives. After that the connection is dropped and
    /// reopened. An idle connection is probed after the same time. Default 1 s.
    ///
    /// Short: a dead server is noticed early. Long: a server that stalls, on a slow script or command of another client,
    /// keeps its connections. Every call on a dropped connection is ambiguous: it may have been executed.
    #[serde(with = "humantime_serde")]
    pub response_timeout: Duration,
    /// The longest time that a call without its own deadline may take: try, release, renew, re-enter, status. Default 5 s.
    ///
    /// Until then the client repeats the call through outages, where that is safe. Long: calls survive a failover. Short:
    /// callers learn of an outage early.
    #[serde(with = "humantime_serde")]
    pub operation_timeout: Duration,
    /// The length of an outage after which an acquire without a deadline fails. Default 30 s.
    ///
    /// The outage begins with the first unanswered request of any waiter for the same name in this process, or with the call
    /// if that came later. Long: waiters survive long outages. Short: callers learn of an outage early.
    #[serde(with = "humantime_serde")]
    pub outage_tolerance: Duration,
    /// The longest time without a message before a waiter sends a request; up to a tenth less, at random. Default 5 s.
    ///
    /// Where the server keeps one queue of processes (locks, read-write locks, multi-locks, semaphores), this is the interval of the
    /// process at the head, 5 s at most. Each other process sends a request at a random moment within 1.5 times this interval for each
    /// process in the queue, two minutes at most, so that the queue as a whole polls at a constant rate.
    ///
    /// Short: less delay after a lost message. Long: fewer requests while nothing changes. A waiter that knows the end of a lease sends a request
    /// then, even before this time.
    #[serde(with = "humantime_serde")]
    pub poll_interval: Duration,
    /// The time for which a subscription is kept after its last waiter. Default 3 s.
    ///
    /// Long: the next waiter for the name saves a subscribe and its round trip. Short: names that are used once leave fewer
    /// subscriptions behind.
    #[serde(with = "humantime_serde")]
    pub subscription_linger: Duration,
    /// The place where background work runs. The default costs a thread and keeps renewal independent of the caller's runtime.
    pub background: Background,
    /// The way in which waiters learn of a release. Messages cost a connection for each server, polls cost requests.
    pub wake: Wake,
    /// The record that shows other processes the holds and waits of this client. A background task writes it every 10 s, and only while a hold lasts
    /// 5 s or longer or a wait lasts 1 s or longer. At most 64 KiB. Never a password, a URL or a value.
    pub presence: Presence,
    #[serde(skip)]
    pub(crate) provider: Option<Provider>,
    #[serde(skip)]
    pub(crate) observing: Option<Observing>,
    #[serde(skip)]
    pub(crate) seams: Seams,
}

/// The parts that tests and simulations replace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Seams {
    /// Measures leases.
    pub clock: Option<Arc<dyn Clock>>,
    /// Opens the byte streams.
    pub connector: Option<Arc<dyn Connector>>,
    /// Seeds all jitter.
    pub seed: Option<u64>,
    /// The first part of every wire owner.
    pub identity: Option<u128>,
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
            tls_cert_file: None,
            tls_key_file: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(1),
            operation_timeout: Duration::from_secs(5),
            outage_tolerance: Duration::from_secs(30),
            poll_interval: Duration::from_secs(5),
            subscription_linger: Duration::from_secs(3),
            background: Background::default(),
            wake: Wake::default(),
            presence: Presence::default(),
            provider: None,
            observing: None,
            seams: Seams::default(),
        }
    }
}

macro_rules! setters {
    // `Into` lets the caller pass the bare value of an optional setting.
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, value: impl Into<$type>) -> Self { self.$name = value.into(); self })*
    };
}

impl ClientConfig {
    /// Returns the name of the application in the form that servers get: see [`name`](#structfield.name).
    #[must_use]
    pub fn app(&self) -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let tame = |c: char| if fits(c) { c } else { '_' };
        // Every character is one byte now, so 32 characters are 32 bytes.
        self.name.chars().map(tame).take(32).collect()
    }

    /// For `stanchion-core`: the time after which a connection without replies has been dropped, so that no call waits for a
    /// request on it any longer.
    #[doc(hidden)]
    #[must_use]
    pub fn silence_limit(&self) -> Duration {
        // The supervisor drops a connection that owes a reply after 1 to 1.25 response timeouts of silence (it checks four
        // times in each). The rest is for a supervisor that runs late.
        self.response_timeout * 2
    }

    /// For `stanchion-core`.
    #[doc(hidden)]
    #[must_use]
    pub const fn seams(&self) -> &Seams {
        &self.seams
    }

    /// Returns the defaults for `url`. `Client::connect_with` checks the settings.
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
        /// See [`ClientConfig::tls_cert_file`](#structfield.tls_cert_file).
        tls_cert_file: Option<PathBuf>,
        /// See [`ClientConfig::tls_key_file`](#structfield.tls_key_file).
        tls_key_file: Option<PathBuf>,
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
        /// See [`ClientConfig::presence`](#structfield.presence).
        presence: Presence,
    }

    /// Uses `provider` for the credentials instead of a password. The client calls it at every connect and before a login expires.
    #[must_use]
    pub fn credentials(mut self, provider: impl CredentialsProvider) -> Self {
        self.provider = Some(Provider(Arc::new(provider)));
        self
    }

    /// Sends the client's events to `observer`, for programs that do not use the `metrics` facade. A second call replaces the first.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observing = Some(Observing(observer));
        self
    }

    /// For `stanchion-core`, which replaces the given observer by its own.
    #[doc(hidden)]
    #[must_use]
    pub fn observed_by(&self) -> Option<Arc<dyn Observer>> {
        Some(Arc::clone(&self.observing.as_ref()?.0))
    }

    /// Returns the configuration of a client of `engine`. Tests inject faults by the client's [`name`](#structfield.name).
    #[cfg(feature = "embedded")]
    #[must_use]
    pub fn embedded(engine: &stanchion_embedded::Engine) -> Self {
        let mut config = Self::new("memory://");
        config.seams.engine = Some(engine.clone());
        config
    }

    /// Uses tokio's clock, which `tokio::time::pause` makes virtual, and no separate thread.
    #[must_use]
    pub fn virtual_time(self) -> Self {
        // A separate thread would have its own runtime, and `tokio::time::pause` does not stop the time of that runtime.
        self.clock(crate::clock::TokioClock::start())
            .background(Background::CurrentRuntime)
    }

    /// Measures time with `clock` instead of the boot clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.seams.clock = Some(Arc::new(clock));
        self
    }

    /// Connects through `connector` instead of the URL's transport. The URL still provides user, password and database.
    #[must_use]
    pub fn connector(mut self, connector: impl Connector) -> Self {
        self.seams.connector = Some(Arc::new(connector));
        self
    }

    /// Makes jitter reproducible.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seams.seed = Some(seed);
        self
    }

    /// Makes the client's identity reproducible. **WARNING: no two clients may ever have the same identity**: each would
    /// hold the other's locks.
    #[must_use]
    pub fn identity(mut self, identity: u128) -> Self {
        self.seams.identity = Some(identity);
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        // `subscription_linger` is not in the list: 0 makes sense, and no length does harm.
        let bounds = [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("operation_timeout", self.operation_timeout),
            ("outage_tolerance", self.outage_tolerance),
            ("poll_interval", self.poll_interval),
        ];
        for (setting, value) in bounds {
            // The supervisor checks four times in a response timeout, and timers count whole milliseconds. Below 10 ms the
            // timers would mostly measure their own rounding.
            if value < Duration::from_millis(10) || value > Duration::from_secs(3600) {
                return Err(ConfigError::InvalidSetting {
                    setting,
                    value: humantime::format_duration(value).to_string(),
                    rule: "10ms to 1h".into(),
                });
            }
        }
        // A name has at most 512 bytes with its prefix, so at least half of them remain for the name. A brace would be the
        // hash tag of every name: all names in one slot, and derived keys without their own braces (Redisson's rule).
        if self.key_prefix.len() > 256 || self.key_prefix.contains(['{', '}']) {
            return Err(ConfigError::InvalidSetting {
                setting: "key_prefix",
                value: format!("{:?}", self.key_prefix),
                rule: "at most 256 bytes and no braces".into(),
            });
        }
        // With only one of the two the client would connect without a certificate (`Trust::new`), and the server's refusal
        // would name neither file.
        if self.tls_cert_file.is_some() != self.tls_key_file.is_some() {
            let (setting, value, missing) = match (&self.tls_cert_file, &self.tls_key_file) {
                (Some(file), _) => ("tls_cert_file", file, "tls_key_file"),
                (None, Some(file)) => ("tls_key_file", file, "tls_cert_file"),
                (None, None) => return Ok(()),
            };
            return Err(ConfigError::InvalidSetting {
                setting,
                value: format!("{:?}", value.display().to_string()),
                rule: format!("a certificate and its key go together: {missing} is missing"),
            });
        }
        Ok(())
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, ConfigError> {
        self.check()?;
        // The URL is parsed first, because the settings override it.
        let mut endpoint = Endpoint::parse(self.url.reveal())?;
        if let Some(user) = &self.username {
            endpoint.login.username = Some(user.clone());
        }
        if let Some(password) = &self.password {
            endpoint.login.password = Some(password.clone());
        }
        // The server would refuse a masked password as wrong, and the user would look for the mistake there. The URL's own
        // password is checked, too, because `ServerUrl` is also written masked.
        let passwords = [
            ("password", &endpoint.login.password),
            ("sentinel_password", &self.sentinel_password),
        ];
        for (setting, password) in passwords {
            if password.as_ref().is_some_and(|p| p.reveal() == MASKED) {
                return Err(ConfigError::InvalidSetting {
                    setting,
                    value: MASKED.into(),
                    rule: "it was masked when this configuration was written: give it again".into(),
                });
            }
        }
        // A provider replaces the password (`Login::now`), so a password given next to a provider would never be used.
        if let Some(provider) = &self.provider {
            if endpoint.login.password.is_some() {
                return Err(ConfigError::InvalidSetting {
                    setting: "password",
                    value: MASKED.into(),
                    rule: "there is a provider of credentials: leave the password out".into(),
                });
            }
            endpoint.login.provider = Some(provider.clone());
        }
        if let Some(database) = self.database {
            endpoint.login.database = database;
        }
        let several = !matches!(endpoint.target, Target::Server(_));
        // A connector gets no address, so it cannot connect to several nodes.
        if several && self.seams.connector.is_some() {
            return Err(ConfigError::InvalidSetting {
                setting: "connector",
                value: endpoint.target.to_string(),
                rule: "a connector of your own leads to one server; use it with redis://".into(),
            });
        }
        Ok(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_and_no_debug_output_shows_a_password() {
        for url in [
            "redis://u:hunter2@h/abc",
            "ftp://u:hunter2@h",
            "u:hunter2@h:1",
            "redis://:hunter2@h:notaport",
            "redis+cluster://:hunter2@h,i/x",
            "redis+sentinel://:hunter2@h:1,i:2",
            // Passwords with characters that end the authority of a URL.
            "redis://app:12/hunter2@h",
            "redis://app:12?hunter2@h",
            "redis://app:12#hunter2@h",
            "redis://:12/hunter2@h/1",
            "rediss://app:hunter2/x@h",
            "redis+sentinel://app:12/hunter2@h:1/main",
            "redis+cluster://app:12?hunter2@h",
            "unix:///run/s?pass=x&hunter2",
            "unix:///run/s?pass=x&hunter2=y",
            "unix:///run/s?db=1&pass=hunter2&db=x",
        ] {
            let text = Endpoint::parse(url).unwrap_err().to_string();
            assert!(!text.contains("hunter2"), "{text}");
        }
        let config = ClientConfig::new("redis://:hunter2@h")
            .password(Secret::new("hunter2"))
            .sentinel_password(Secret::new("hunter2"));
        assert!(!format!("{config:?}").contains("hunter2"));
        let written = serde_json::to_string(&config).unwrap();
        assert!(!written.contains("hunter2"), "{written}");
        let read: ClientConfig = serde_json::from_str(&written).unwrap();
        let error = read.endpoint().unwrap_err().to_string();
        assert!(
            error.contains("masked when this configuration was written"),
            "{error}"
        );
    }

    #[test]
    fn the_name_of_the_application_is_one_that_servers_take() {
        let app = |name: &str| ClientConfig::new("redis://h").name(name).app();
        assert_eq!(app("orders-api.v2_x"), "orders-api.v2_x");
        assert_eq!(app("or ders:\n{ä}"), "or_ders_____");
        assert_eq!(app(&"ä".repeat(40)), "_".repeat(32));
        assert_eq!(app(""), "");
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
