//! Secrets and their sources: passwords, URLs that carry them, providers of credentials.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize, Serializer};

use crate::error::ConfigError;
use crate::mask::mask;

/// The text shown in place of a secret.
pub(crate) const MASKED: &str = "***";

/// A text that is never shown: `Debug` and `serde` write `***` in its place.
///
/// `serde` reads it in clear. A configuration that was written out needs its secrets again: `Client::connect_with` refuses
/// `***` as a password, with a [`ConfigError`].
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns `text`, a message of the server, with this secret masked.
    pub(crate) fn hidden_in(&self, text: &str) -> String {
        // An empty pattern matches everywhere, so `replace` would put the mask between all characters.
        if self.0.is_empty() {
            text.to_owned()
        } else {
            text.replace(&self.0, MASKED)
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASKED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASKED)
    }
}

/// A URL that may carry a password: `Display`, `Debug` and `serde` mask it. `serde` reads it in clear, see [`Secret`].
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Reads the URL from the first line of a file, without the white space around it. A URL with a password can thus stay
    /// out of command lines and the environment.
    ///
    /// # Errors
    /// [`ConfigError::InvalidSetting`] when the file cannot be read or its first line is empty. The file is read once, now.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let invalid = |rule: String| ConfigError::InvalidSetting {
            setting: "url_file",
            value: format!("{:?}", path.display().to_string()),
            rule,
        };
        // The errors name the file and never quote it, because a part of the file may be the password.
        let text = std::fs::read_to_string(path).map_err(|e| invalid(e.to_string()))?;
        match text.lines().next().map(str::trim) {
            None | Some("") => Err(invalid(
                "its first line is to be the URL, and is empty".into(),
            )),
            Some(url) => Ok(url.into()),
        }
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

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

impl Serialize for ServerUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The credentials that a connection logs in with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Credentials {
    /// The user. `None` for the configured user or, if there is none, the server's default user.
    pub username: Option<String>,
    /// The password, or a token used as one.
    pub password: Secret,
    /// The time for which a login with them is valid, as the provider reports it. `None` if the login does not expire.
    pub valid_for: Option<Duration>,
}

impl Credentials {
    /// Returns credentials with a password, or with a token used as a password.
    #[must_use]
    pub fn new(password: Secret) -> Self {
        Self {
            username: None,
            password,
            valid_for: None,
        }
    }

    /// See [`Credentials::username`](#structfield.username).
    #[must_use]
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// See [`Credentials::valid_for`](#structfield.valid_for).
    #[must_use]
    pub fn valid_for(mut self, valid_for: Duration) -> Self {
        self.valid_for = Some(valid_for);
        self
    }
}

/// A source of credentials for passwords that change: tokens that expire, secrets that are rotated. Pass it to
/// [`ClientConfig::credentials`](crate::ClientConfig::credentials).
///
/// # When it is called
/// The client calls the provider for each connection: at every connect, and again when four fifths of
/// [`Credentials::valid_for`] have passed. The connection then logs in again without reconnecting (`AUTH`). Requests in flight,
/// subscriptions and holds are not affected. A client has up to three connections to each server, so a provider with a remote
/// service should cache the answer. Sentinels have [a password of their own](crate::ClientConfig#structfield.sentinel_password).
///
/// # When it fails
/// At a connect: [`ConnectError::Credentials`](crate::ConnectError::Credentials), and another attempt after the usual pause.
/// At a renewal: the connection is kept, a warning is logged, and the provider is called again, until the server ends the
/// connection. The same applies when the server refuses the credentials.
///
/// # What it may do
/// The provider runs on the runtime of the connection. This may be the client's own thread, which renews leases, so the
/// provider must not block. Its future is dropped if it has not finished within
/// [`ClientConfig::connect_timeout`](crate::ClientConfig#structfield.connect_timeout). Its credentials are never shown; the
/// text of its errors is shown.
#[async_trait]
pub trait CredentialsProvider: Send + Sync + 'static {
    /// Returns the current credentials for a login.
    ///
    /// # Errors
    /// Any error. Its text appears in errors and logs, so it must not contain a secret.
    async fn credentials(
        &self,
    ) -> Result<Credentials, Box<dyn std::error::Error + Send + Sync + 'static>>;
}

/// A provider with masked `Debug` output.
#[derive(Clone)]
pub(crate) struct Provider(pub(crate) Arc<dyn CredentialsProvider>);

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A provider's own `Debug`, if it has one, may show the secrets that it holds.
        f.write_str(MASKED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_written() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
        assert_eq!(
            serde_json::from_str::<Secret>("\"hunter2\"").unwrap(),
            secret,
            "but it is read"
        );
        let url = ServerUrl::from("redis://app:hunter2@h/1");
        assert_eq!(
            serde_json::to_string(&url).unwrap(),
            "\"redis://app:***@h/1\""
        );
        assert_eq!(
            serde_json::from_str::<ServerUrl>("\"redis://h\"").unwrap(),
            "redis://h".into()
        );
    }

    #[test]
    fn a_url_is_read_from_the_first_line_of_a_file() {
        let path = std::env::temp_dir().join(format!("stanchion-url-{}", std::process::id()));
        std::fs::write(&path, "  redis://:hunter2@h \nanother\n").unwrap();
        let url = ServerUrl::from_file(&path).unwrap();
        assert_eq!(url, "redis://:hunter2@h".into());
        std::fs::write(&path, "\nredis://:hunter2@h").unwrap();
        let error = ServerUrl::from_file(&path).unwrap_err().to_string();
        assert!(
            error.contains("url_file") && !error.contains("hunter2"),
            "{error}"
        );
        std::fs::remove_file(&path).unwrap();
        let error = ServerUrl::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("stanchion-url-"), "{error}");
    }
}
