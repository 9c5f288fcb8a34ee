//! Certificates, generated for each TLS server.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

/// The kind of certificate of a TLS server: a valid one, or a specific defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certificate {
    /// A valid certificate for `localhost` and `127.0.0.1`.
    Valid,
    /// A certificate that expired years ago.
    Expired,
    /// A certificate whose only name is `wrong.example`.
    WrongHost,
    /// A certificate signed by an authority other than the one that clients get.
    OtherCa,
}

/// Writes `ca.crt`, `server.crt` and `server.key` into `dir`, and the same for a `client` of the server's authority and for
/// a `stranger`; returns the PEM of the authority that clients get.
pub(crate) fn write_certificates(kind: Certificate, dir: &Path) -> String {
    let trusted = authority("stanchion test authority");
    let other;
    let issuer = if kind == Certificate::OtherCa {
        other = authority("another authority");
        &other
    } else {
        &trusted
    };
    let names: &[&str] = match kind {
        Certificate::WrongHost => &["wrong.example"],
        _ => &["localhost", "127.0.0.1"],
    };
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("valid names");
    params
        .distinguished_name
        .push(DnType::CommonName, "stanchion test server");
    if kind == Certificate::Expired {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).expect("the data dir");
    write("ca.crt", &issuer.pem());
    write("server.crt", &certificate.pem());
    write("server.key", &key.serialize_pem());
    for (name, issuer) in [
        ("client", issuer),
        ("stranger", &authority("a third authority")),
    ] {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(Vec::new()).expect("no names");
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        write(&format!("{name}.crt"), &certificate.pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
    trusted.pem()
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}
