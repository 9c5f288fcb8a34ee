//! TLS servers and their certificates.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use stanchion_testkit::{Certificate, Proxy, RedisServer};

/// Sends PING over TLS to a server that must prove to be 127.0.0.1.
fn ping(addr: SocketAddr, ca_pem: &str) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::from(addr.ip());
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(addr)?);
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).trim_end().to_owned())
}

#[test]
fn a_good_certificate_is_accepted_also_through_a_proxy() {
    if !RedisServer::available() {
        return;
    }
    let server = RedisServer::builder().tls().start();
    assert_eq!(server.url(), format!("rediss://{}/", server.addr()));
    assert_eq!(ping(server.addr(), server.ca_pem()).unwrap(), "+PONG");
    let proxy = Proxy::start(server.addr());
    assert_eq!(ping(proxy.addr(), server.ca_pem()).unwrap(), "+PONG");
    assert!(proxy.commands_seen().is_empty(), "it cannot look inside");
}

#[test]
fn bad_certificates_are_refused_for_their_reason() {
    if !RedisServer::available() {
        return;
    }
    for (certificate, reason) in [
        (Certificate::Expired, "expired"),
        (Certificate::WrongHost, "not valid for name"),
        (Certificate::OtherCa, "UnknownIssuer"),
    ] {
        let server = RedisServer::builder().tls_with(certificate).start();
        let error = ping(server.addr(), server.ca_pem()).unwrap_err();
        assert!(
            error.to_string().contains(reason),
            "{certificate:?}: {error}"
        );
        assert_eq!(
            server.cli(&["PING"]).as_text(),
            "PONG",
            "the tools still can"
        );
    }
}
