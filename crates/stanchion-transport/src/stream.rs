//! Byte streams for URLs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;

use crate::config::ClientConfig;
use crate::error::ConfigError;
use crate::url::Route;
use crate::{ByteStream, Connector};

/// Creates the connectors for URLs. Certificate files are read at the connect, not before.
#[derive(Debug)]
pub(crate) struct Routes {
    config: ClientConfig,
    #[cfg(feature = "tls")]
    trust: Arc<crate::tls::Trust>,
}

impl Routes {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        Self {
            config: config.clone(),
            #[cfg(feature = "tls")]
            trust: Arc::new(crate::tls::Trust::new(config)),
        }
    }

    /// Checks that `route` is supported and, if it uses TLS, that the certificates can be read.
    pub(crate) async fn check(&self, route: &Route) -> Result<(), ConfigError> {
        // Only the errors matter here: a missing feature, or a host name that TLS cannot verify.
        drop(self.connector(route)?);
        #[cfg(feature = "tls")]
        if matches!(route, Route::Tls { .. }) && self.config.seams.connector.is_none() {
            self.trust.now().await?;
        }
        Ok(())
    }

    /// Returns the connector for `route`, or the one that the configuration injects.
    pub(crate) fn connector(&self, route: &Route) -> Result<Arc<dyn Connector>, ConfigError> {
        // Checked before the route, because a simulated network replaces every transport.
        if let Some(connector) = &self.config.seams.connector {
            return Ok(Arc::clone(connector));
        }
        let tcp = |host: &str, port| Tcp {
            host: host.to_owned(),
            port,
            silence_limit: self.config.silence_limit(),
        };
        Ok(match route {
            Route::Tcp { host, port } => Arc::new(tcp(host, *port)),
            #[cfg(feature = "tls")]
            Route::Tls { host, port } => {
                let trust = Arc::clone(&self.trust);
                Arc::new(crate::tls::Tls::new(tcp(host, *port), host, trust)?)
            }
            Route::Unix { path } => Arc::new(Unix { path: path.clone() }),
            #[cfg(feature = "embedded")]
            Route::Memory { namespace } => {
                let engine = self.config.seams.engine.clone();
                Arc::new(Memory {
                    // The engine is found by name, so clients with the same namespace share one engine.
                    engine: engine.unwrap_or_else(|| stanchion_embedded::Engine::named(namespace)),
                    label: self.config.name.clone(),
                })
            }
            #[cfg(not(feature = "tls"))]
            Route::Tls { .. } => {
                return Err(ConfigError::missing_feature(route.to_string(), "tls"));
            }
            #[cfg(not(feature = "embedded"))]
            Route::Memory { .. } => {
                return Err(ConfigError::missing_feature(route.to_string(), "embedded"));
            }
        })
    }
}

/// Plain TCP without Nagle's delay, like the redis crate's own connections, and with keepalive to detect dead peers.
#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    host: String,
    port: u16,
    silence_limit: Duration,
}

impl Tcp {
    pub(crate) async fn open(&self) -> io::Result<TcpStream> {
        // Names are resolved again for every connection, because addresses change.
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        // The redis crate already joins the requests that are ready. Nagle's algorithm would delay a request until the
        // previous one is acknowledged.
        stream.set_nodelay(true)?;
        // The probe of the supervisor usually detects a dead peer first. Keepalive does not depend on the probe, nor on a
        // response timeout, which may be an hour. No number of probes is set: on Linux the user timeout below overrides it.
        let socket = socket2::SockRef::from(&stream);
        socket.set_tcp_keepalive(
            &socket2::TcpKeepalive::new()
                .with_time(Duration::from_secs(15))
                .with_interval(Duration::from_secs(5)),
        )?;
        // Data that stays unacknowledged for this long ends the connection, even if no RST arrives.
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(self.silence_limit))?;
        Ok(stream)
    }
}

#[async_trait]
impl Connector for Tcp {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(self.open().await?))
    }
}

#[derive(Debug)]
struct Unix {
    path: PathBuf,
}

#[async_trait]
impl Connector for Unix {
    #[cfg(unix)]
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(tokio::net::UnixStream::connect(&self.path).await?))
    }

    #[cfg(not(unix))]
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("no unix sockets here: {}", self.path.display()),
        ))
    }
}

#[cfg(feature = "embedded")]
#[derive(Debug)]
struct Memory {
    engine: stanchion_embedded::Engine,
    label: String,
}

#[cfg(feature = "embedded")]
#[async_trait]
impl Connector for Memory {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(self.engine.connect_as(&self.label)?))
    }
}
