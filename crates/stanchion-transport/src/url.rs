//! Parsing of URLs into the servers they name, the transport to them, and the login.
//!
//! Long: the forms of URLs share their parts, and a table of tests covers all of them.

use std::fmt;
use std::path::PathBuf;

use url::Url;

use crate::error::ConfigError;
use crate::mask::mask;
use crate::secret::{Provider, Secret};

const SCHEMES: &str = "redis://, rediss://, redis+sentinel://, rediss+sentinel://, redis+cluster://, rediss+cluster://, unix://, memory://";

/// The URL itself is not shown: it may be a login.
const NO_SCHEME: &str =
    "it has no scheme: write redis:// in front of the host, as in redis://host:port/";
const NO_PARAMETERS: &str = "parameters are not known here: write user, password and database as redis://user:password@host:port/3; in a password ? is written as %3F";
const NO_FRAGMENT: &str = "a # has no meaning here: in a user or password write it as %23";

/// A parsed URL.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) target: Target,
    pub(crate) login: Login,
}

/// The login and the database of a new connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
    /// The provider of credentials, used instead of `password` if there is one.
    pub(crate) provider: Option<Provider>,
    pub(crate) database: u32,
}

/// The transport to one server, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16 },
    Unix { path: PathBuf },
    Memory { namespace: String },
}

/// The servers that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Server(Route),
    Sentinel(SentinelTarget),
    Cluster(ClusterTarget),
}

/// The sentinels, and the name under which they know the master.
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
    /// Reads the address in a redirect of a cluster's node.
    pub(crate) fn of_node(text: &str) -> Option<Self> {
        // Splits at the last colon, because IPv6 addresses come without brackets.
        let (host, port) = text.rsplit_once(':')?;
        Some(Self {
            host: host.to_owned(),
            port: port.parse().ok()?,
        })
    }

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
        HostPort(&self.host, self.port).fmt(f)
    }
}

/// Displays a host and its port.
struct HostPort<'a>(&'a str, u16);

impl fmt::Display for HostPort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(host, port) = self;
        // Without brackets the port would look like one more group of an IPv6 address.
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// Displays several places with commas between them.
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
            Self::Tcp { host, port } => write!(f, "redis://{}", HostPort(host, *port)),
            Self::Tls { host, port } => write!(f, "rediss://{}", HostPort(host, *port)),
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

/// The kinds of URLs with several hosts in the authority. No URL library parses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Several {
    Sentinel,
    Cluster,
}

impl Several {
    /// Returns the kind of a URL with several hosts, whether it requires TLS, and the rest after `://`.
    pub(crate) fn of(text: &str) -> Option<(Self, bool, &str)> {
        let (scheme, rest) = text.split_once("://")?;
        let (server, kind) = scheme.split_once('+')?;
        let tls = match server {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return None,
        };
        let kind = match kind {
            "sentinel" => Self::Sentinel,
            "cluster" => Self::Cluster,
            _ => return None,
        };
        Some((kind, tls, rest))
    }

    fn port(self) -> u16 {
        match self {
            Self::Sentinel => 26_379,
            Self::Cluster => 6379,
        }
    }

    /// Returns the part of such a URL before the number of the database.
    const fn database_path(self) -> &'static str {
        match self {
            Self::Sentinel => "redis+sentinel://host:port/service/",
            Self::Cluster => "redis+cluster://host:port/",
        }
    }

    /// Parses `[user[:password]@]host[:port][,…][/path]`. An error quotes no part of the URL, because any part may belong to a password.
    pub(crate) fn parse(self, tls: bool, rest: &str) -> Result<Endpoint, String> {
        if let Some((_, parameters)) = rest.split_once('?') {
            return Err(unknown_parameter(parameters, self.database_path()));
        }
        // The first `/` ends the authority: `has_stray_at` has already refused a login that contains a `/`.
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // Splits at the last `@`: a host has no `@`, but a password may have one.
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let mut login = Login {
            username: decoded(user),
            password: decoded(password).map(Secret::new),
            ..Login::default()
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
                Target::Sentinel(SentinelTarget {
                    sentinels: places,
                    service,
                    tls,
                })
            }
            Self::Cluster => Target::Cluster(ClusterTarget { seeds: places, tls }),
        };
        if let Some(database) = next() {
            login.database = database.parse().map_err(|_| match self {
                Self::Sentinel => "what follows the service is not a database number",
                Self::Cluster => "the path is not a database number",
            })?;
        }
        match next() {
            Some(_) => Err("nothing may follow the database number".into()),
            None => Ok(Endpoint { target, login }),
        }
    }

    fn place(self, host: &str) -> Result<Place, String> {
        // Each single host can be passed to the URL library, which knows IPv6 and checks the port.
        let url = Url::parse(&format!("redis://{host}"))
            .map_err(|e| format!("{e} (in the list of hosts)"))?;
        let name = url
            .host_str()
            .filter(|h| !h.is_empty())
            .ok_or("its list names no host in one place")?;
        if url.fragment().is_some() {
            return Err(NO_FRAGMENT.into());
        }
        Ok(Place {
            host: name
                // The resolver needs an IPv6 address without brackets.
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port: url.port().unwrap_or_else(|| self.port()),
        })
    }
}

impl Endpoint {
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        let invalid = |rule: String| ConfigError::InvalidUrl {
            url: mask(text),
            rule,
        };
        if has_stray_at(text) {
            return Err(invalid(
                "there is an @ behind the host: in a user or password write / ? # @ as %2F %3F %23 %40".into(),
            ));
        }
        if let Some((kind, tls, rest)) = Several::of(text) {
            return kind.parse(tls, rest).map_err(invalid)?.supported(text);
        }
        let url = Url::parse(text).map_err(|error| match text.contains("://") {
            true => invalid(format!("{error}; write it as redis://host:port/")),
            false => invalid(NO_SCHEME.into()),
        })?;
        if url.fragment().is_some() {
            return Err(invalid(NO_FRAGMENT.into()));
        }
        let mut login = Login {
            username: decoded(url.username()),
            password: url.password().and_then(decoded).map(Secret::new),
            ..Login::default()
        };
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
                    login.database = path
                        .parse()
                        .map_err(|_| invalid("the path is not a database number".into()))?;
                }
                // The scheme `redis` also ends in an s.
                if url.scheme().ends_with('s') && url.scheme() != "redis" {
                    Route::Tls { host, port }
                } else {
                    Route::Tcp { host, port }
                }
            }
            "unix" | "redis+unix" | "valkey+unix" => {
                let route;
                (route, login) = Self::socket(&url).map_err(|rule| invalid(rule.into()))?;
                route
            }
            "memory" => {
                let namespace = format!(
                    "{}{}",
                    url.host_str().unwrap_or(""),
                    url.path().trim_end_matches('/')
                );
                Route::Memory { namespace }
            }
            // `localhost:6379` has the form of a scheme and a path; `app:secret` as well, so neither is shown.
            _ if !text.contains("://") => return Err(invalid(NO_SCHEME.into())),
            scheme => {
                return Err(ConfigError::UnknownScheme {
                    scheme: scheme.into(),
                    url: mask(text),
                    known: SCHEMES,
                });
            }
        };
        if !matches!(route, Route::Unix { .. })
            && let Some(parameters) = url.query()
        {
            let path = match route {
                Route::Memory { .. } => "",
                _ => "redis://host:port/",
            };
            return Err(invalid(unknown_parameter(parameters, path)));
        }
        let endpoint = Self {
            target: Target::Server(route),
            login,
        };
        endpoint.supported(text)
    }

    /// Parses the URL of a socket. An error quotes no part of the URL, because any part may belong to a password.
    fn socket(url: &Url) -> Result<(Route, Login), &'static str> {
        if url.host_str().is_some_and(|host| !host.is_empty()) {
            return Err(
                "a socket has no host: write it as unix:///run/redis.sock?user=name&pass=password",
            );
        }
        let mut login = Login::default();
        for (key, value) in url.query_pairs() {
            match &*key {
                "db" => {
                    let number = value.parse();
                    login.database = number.map_err(|_| "db is not a database number")?;
                }
                "user" => login.username = Some(value.into_owned()),
                "pass" | "password" => login.password = Some(Secret::new(value)),
                _ => {
                    return Err(
                        "it has an unknown parameter; db, user and pass are known, and an & in them is written as %26",
                    );
                }
            }
        }
        let path = decoded(url.path()).unwrap_or_default();
        // `/` is the root directory and not a socket.
        if path.len() < 2 {
            return Err("it names no socket path; write it as unix:///run/redis.sock");
        }
        Ok((Route::Unix { path: path.into() }, login))
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
            Some(feature) => Err(ConfigError::missing_feature(mask(text), feature)),
            None => Ok(self),
        }
    }
}

/// Returns the rule that a URL with parameters breaks. The text names only parameters that other libraries use, because the
/// text after a question mark may be the rest of a password.
fn unknown_parameter(parameters: &str, database_path: &str) -> String {
    let first = parameters.split('&').next().unwrap_or_default();
    let (name, value) = first.split_once('=').unwrap_or((first, ""));
    let number = value.parse::<u32>().ok();
    match (name, number) {
        ("db" | "database", number) => {
            let number = number.map_or_else(|| "N".to_owned(), |number| number.to_string());
            format!(
                "the parameter {name} is not known here: write the database as {database_path}{number}"
            )
        }
        ("user" | "username" | "pass" | "password", _) => format!(
            "the parameter {name} is not known here: write the login as redis://user:password@host"
        ),
        ("protocol" | "timeout" | "ssl" | "tls" | "client_name" | "clientName", _) => {
            format!(
                "the parameter {name} is not known here: it is a setting of ClientConfig, or the scheme rediss://"
            )
        }
        _ => NO_PARAMETERS.into(),
    }
}

/// Returns whether an `@` comes after the authority, where no URL of a server has one. Then the login contains an unescaped
/// `/`, `?` or `#`, and the parser would split the login there.
pub(crate) fn has_stray_at(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // The path of a socket may contain an `@`.
    !scheme.contains("unix") && rest[end..].contains('@')
}

/// Decodes percent escapes; returns `None` for an empty text.
fn decoded(text: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8_lossy();
    (!text.is_empty()).then(|| text.into_owned())
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
    fn an_ipv6_address_is_displayed_in_brackets() {
        for url in ["redis://[::1]:7000", "rediss://[fe80::1]:6379"] {
            assert_eq!(target(url).to_string(), url);
        }
        let place = Place::of_node("fe80::1:7000").unwrap();
        assert_eq!(place.to_string(), "[fe80::1]:7000");
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
    fn urls_of_several_servers_may_require_tls() {
        for url in ["rediss+cluster://a", "valkeys+sentinel://a/x"] {
            let target = target(url);
            assert!(target.to_string().starts_with("rediss+"), "{target}");
        }
    }

    #[test]
    fn bad_urls_name_the_part_and_the_rule() {
        for (url, expected) in [
            ("localhost:6379", "it has no scheme"),
            ("127.0.0.1:6379", "it has no scheme"),
            ("app:secret", "it has no scheme"),
            ("redis//nope", "it has no scheme"),
            (
                "http://x",
                "unknown scheme \"http\" in \"http://x\": use one of redis://",
            ),
            ("redis://h/abc", "the path is not a database number"),
            ("redis://h/?x=1", "parameters are not known"),
            ("redis://h/#x", "a # has no meaning"),
            ("unix://", "names no socket path"),
            ("unix://run/redis.sock", "a socket has no host"),
            ("unix:///run/redis.sock#x", "a # has no meaning"),
            ("unix:///run/redis.sock?db=x", "db is not a database number"),
            ("redis+sentinel://h:1", "names no service"),
            ("redis+sentinel://h:1/", "names no service"),
            (
                "redis+sentinel://h:1/s/x",
                "follows the service is not a database number",
            ),
            (
                "redis+sentinel://h:1/s/0/x",
                "nothing may follow the database number",
            ),
            ("redis+sentinel://h:1,,b/s", "names no host"),
            ("redis+sentinel:///s", "names no host"),
            ("redis+cluster://h:x", "invalid port number"),
            ("redis+cluster://h/x", "the path is not a database number"),
            ("redis+cluster://h/1/x", "nothing may follow"),
            ("redis+cluster://h?x=1", "parameters are not known"),
            ("redis+ring://h", "unknown scheme \"redis+ring\""),
            ("", "invalid URL"),
        ] {
            let text = Endpoint::parse(url).unwrap_err().to_string();
            assert!(text.contains(expected), "{url}: {text}");
        }
    }
}
