//! The certificates of TLS servers. `certificates/make` makes them again.

use std::fs;
use std::path::Path;

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("../certificates/", $name))
    };
}

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
    let trusted = file!("trusted.crt");
    let server = match kind {
        Certificate::Valid => file!("valid.crt"),
        Certificate::Expired => file!("expired.crt"),
        Certificate::WrongHost => file!("wrong-host.crt"),
        Certificate::OtherCa => file!("other-ca.crt"),
    };
    let (authority, client) = match kind {
        Certificate::OtherCa => (file!("other.crt"), file!("client-of-other.crt")),
        _ => (trusted, file!("client.crt")),
    };
    for (name, text) in [
        ("ca.crt", authority),
        ("server.crt", server),
        ("client.crt", client),
        ("stranger.crt", file!("stranger.crt")),
        ("server.key", file!("server.key")),
        ("client.key", file!("client.key")),
        ("stranger.key", file!("stranger.key")),
    ] {
        fs::write(dir.join(name), text).expect("the data dir");
    }
    trusted.to_owned()
}
