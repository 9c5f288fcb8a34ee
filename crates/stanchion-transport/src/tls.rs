//! TLS by rustls. The crypto provider is chosen here: a missing process default would cause a panic.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::error::{ConfigError, ConnectError};
use crate::stream::Tcp;
use crate::{ByteStream, Connector};

/// The authorities that a client trusts, and the client's own certificate. The files are read at every connect, on a
/// blocking thread, so changed files take effect then.
pub(crate) struct Trust {
    authorities: Option<PathBuf>,
    /// The files of the client's own certificate and its key.
    own: Option<(PathBuf, PathBuf)>,
    /// The last usable files and the configuration made from them. Shared by all connects. Locked only to compare or replace.
    last: Mutex<Option<(Files, Arc<ClientConfig>)>>,
}

/// The contents of the files.
#[derive(PartialEq, Eq)]
struct Files {
    authorities: Option<Vec<u8>>,
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Trust {
    pub(crate) fn new(config: &crate::config::ClientConfig) -> Self {
        let own = config.tls_cert_file.clone();
        Self {
            authorities: config.tls_ca_file.clone(),
            own: own.zip(config.tls_key_file.clone()),
            last: Mutex::default(),
        }
    }

    /// Returns the configuration from the current files, or from the last usable files if the current ones cannot be used.
    pub(crate) async fn now(self: &Arc<Self>) -> Result<Arc<ClientConfig>, ConfigError> {
        let this = Arc::clone(self);
        // The client's own thread also connects. That thread renews leases at the same time, so it must not wait for a disk.
        let read = tokio::task::spawn_blocking(move || this.read()).await;
        let error = match read {
            Ok(Ok(config)) => return Ok(config),
            Ok(Err(error)) => error,
            Err(_) => invalid("tls", Path::new("-"), "the runtime is shutting down".into()),
        };
        let last = self.last().as_ref().map(|(_, last)| Arc::clone(last));
        match last {
            // A file that is being replaced may be incomplete. The certificates in use are probably still valid, and a
            // client without a connection loses its leases.
            Some(last) => {
                tracing::warn!(%error, "certificates cannot be read, the last ones are used");
                Ok(last)
            }
            None => Err(error),
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<(Files, Arc<ClientConfig>)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Result<Arc<ClientConfig>, ConfigError> {
        let bytes = |setting, path: &Path| {
            std::fs::read(path).map_err(|e| invalid(setting, path, e.to_string()))
        };
        let authorities = self.authorities.as_deref();
        let own = self.own.as_ref();
        let own = own.map(|(certificate, key)| {
            Ok((
                bytes("tls_cert_file", certificate)?,
                bytes("tls_key_file", key)?,
            ))
        });
        let files = Files {
            authorities: authorities
                .map(|path| bytes("tls_ca_file", path))
                .transpose()?,
            own: own.transpose()?,
        };
        // Compared by content: the time stamp of a mounted file is unreliable, and reading is cheaper than building a configuration.
        if let Some((last, config)) = &*self.last()
            && *last == files
        {
            return Ok(Arc::clone(config));
        }
        // Built without the lock, so that other connects do not wait. Two connects may build one each. The later one is
        // kept, and the next connect compares again.
        let config = Arc::new(self.config(&files)?);
        *self.last() = Some((files, Arc::clone(&config)));
        Ok(config)
    }

    fn config(&self, files: &Files) -> Result<ClientConfig, ConfigError> {
        // `read` sets the contents exactly if the path is set, so `_` means a client without its own file.
        let roots = match (&self.authorities, &files.authorities) {
            (Some(path), Some(pem)) => Arc::new(roots(path, pem)?),
            _ => platform_roots(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| invalid("tls", Path::new("-"), e.to_string()))?
            .with_root_certificates(roots);
        let (Some((cert_file, key_file)), Some((certificate, key))) = (&self.own, &files.own)
        else {
            return Ok(config.with_no_client_auth());
        };
        // rustls checks below that the key belongs to the first certificate of the chain, so files that do not match fail
        // here and not in the handshake.
        let chain = certificates("tls_cert_file", cert_file, certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| {
            // The message never contains the text of the file.
            let rule = format!("no private key that is not encrypted, in PEM form: {e}");
            invalid("tls_key_file", key_file, rule)
        })?;
        config
            .with_client_auth_cert(chain, key)
            .map_err(|e| invalid("tls_key_file", key_file, e.to_string()))
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust")
            .field("authorities", &self.authorities)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

fn roots(path: &Path, pem: &[u8]) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls_ca_file", path, pem)? {
        let added = roots.add(certificate);
        added.map_err(|e| invalid("tls_ca_file", path, e.to_string()))?;
    }
    Ok(roots)
}

fn certificates(
    setting: &'static str,
    path: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|e| invalid(setting, path, e.to_string()))?;
    // A PEM file without a certificate, such as a key, reads as an empty list. Then no server would be trusted, and no
    // message would name the file.
    if certificates.is_empty() {
        let rule = "it holds no certificate in PEM form";
        return Err(invalid(setting, path, rule.into()));
    }
    Ok(certificates)
}

/// Returns the platform's authorities. They are read once in a process, because there are many.
fn platform_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        // One unreadable certificate of the platform must not exclude the others.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    Arc::clone(ROOTS.get_or_init(read))
}

fn invalid(setting: &'static str, value: &Path, rule: String) -> ConfigError {
    ConfigError::InvalidSetting {
        setting,
        value: format!("{:?}", value.display().to_string()),
        rule,
    }
}

#[derive(Debug)]
pub(crate) struct Tls {
    tcp: Tcp,
    name: ServerName<'static>,
    trust: Arc<Trust>,
}

impl Tls {
    pub(crate) fn new(tcp: Tcp, host: &str, trust: Arc<Trust>) -> Result<Self, ConfigError> {
        // An IP address is a name, too, and must then be in the certificate.
        let name = ServerName::try_from(host.to_owned())
            .map_err(|e| invalid("url", Path::new(host), e.to_string()))?;
        Ok(Self { tcp, name, trust })
    }
}

#[async_trait]
impl Connector for Tls {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        // Done before the connection: unusable files cost the server nothing, and no handshake waits for a disk.
        let config = self.trust.now().await;
        // `Link::unreachable` extracts the typed error again.
        let config = config.map_err(|e| io::Error::other(ConnectError::from(e)))?;
        let stream = self.tcp.open().await?;
        let connector = TlsConnector::from(config);
        let stream = connector.connect(self.name.clone(), stream).await?;
        Ok(Box::new(stream))
    }
}

/// Returns whether an error of a connect came from TLS.
pub(crate) fn is_tls(error: &io::Error) -> bool {
    error
        .get_ref()
        // tokio-rustls wraps rustls's errors like this. After a network failure, a handshake error contains another error, or none.
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

/// Returns whether an error of a connection came from TLS: a server may refuse a client certificate after the handshake.
pub(crate) fn is_alert(error: &redis::RedisError) -> bool {
    // The redis crate stores an I/O error as a shared trait object. The `source` of its error is that `Arc`, not the error
    // inside. In TLS 1.3 the client's handshake has ended when the server refuses its certificate, so the first read finds
    // the alert.
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<Shared>())
        .and_then(|inner| inner.downcast_ref::<io::Error>())
        .is_some_and(is_tls)
}
