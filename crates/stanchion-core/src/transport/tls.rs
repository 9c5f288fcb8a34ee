//! TLS by rustls. The provider is chosen here and never looked up in the process, where its absence would panic.

use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::stream::Tcp;
use super::{ByteStream, Connector};
use crate::error::ConfigError;

pub(super) struct Tls {
    tcp: Tcp,
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("tcp", &self.tcp)
            .finish_non_exhaustive()
    }
}

impl Tls {
    pub(super) fn new(tcp: Tcp, host: &str, ca_file: Option<&Path>) -> Result<Self, ConfigError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|e| invalid("url", host, &e.to_string()))?;
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|e| invalid("tls", host, &e.to_string()))?
                .with_root_certificates(roots(ca_file)?)
                .with_no_client_auth();
        Ok(Self {
            tcp,
            name,
            connector: TlsConnector::from(Arc::new(config)),
        })
    }
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let shown = path.display().to_string();
        let fail = |rule: String| invalid("tls_ca_file", &shown, &rule);
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| fail(e.to_string()))? {
            let certificate = certificate.map_err(|e| fail(e.to_string()))?;
            roots.add(certificate).map_err(|e| fail(e.to_string()))?;
        }
        if roots.is_empty() {
            return Err(fail("it holds no certificate in PEM form".into()));
        }
    } else {
        // One unreadable platform certificate must not shut out the others.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    Ok(roots)
}

fn invalid(setting: &'static str, value: &str, rule: &str) -> ConfigError {
    ConfigError::InvalidSetting {
        setting,
        value: format!("{value:?}"),
        rule: rule.into(),
    }
}

#[async_trait]
impl Connector for Tls {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let stream = self.tcp.open().await?;
        Ok(Box::new(
            self.connector.connect(self.name.clone(), stream).await?,
        ))
    }
}

/// Whether an error of a connect came from TLS.
pub(super) fn is_tls(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>())
}
