//! The options that select the server and the names.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use stanchion::{Client, ClientConfig};

use crate::exit::{self, Failure, Library};
use crate::serve;

/// The largest size of a URL file in bytes, more than any URL has.
const LONGEST: u64 = 64 * 1024;

/// The time for clean-up before the program ends.
pub(crate) const SHUTDOWN: Duration = Duration::from_secs(2);

/// The place of these options in `--help`.
const HEADING: &str = "Server";

/// The location of locks. Shared by the commands that work on a user's locks.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), unix:///path?db=n
    /// [env: STANCHION_URL] [default: this user's own on this machine, see `stanchion serve`]
    ///
    /// Other users of the machine can read a command line: put a password into STANCHION_URL or a file.
    #[arg(long, conflicts_with = "url_file", help_heading = HEADING)]
    url: Option<String>,
    /// A file with the URL, for a URL with a password. Only its owner should be able to read it
    /// [env: STANCHION_URL_FILE]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    url_file: Option<PathBuf>,
    /// Text to put in front of every name, for a server that several applications share. The same as Redisson's NameMapper.
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "P",
        env = "STANCHION_PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,
    /// A PEM file with the certificate authorities to trust instead of the system's (rediss:// only).
    #[arg(long, help_heading = HEADING, value_name = "FILE", env = "STANCHION_TLS_CA")]
    tls_ca: Option<PathBuf>,
}

impl ServerArgs {
    /// Text in front of every name.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The configuration of the client. Reads the file with the URL, if there is one.
    pub(crate) fn config(&self) -> Result<ClientConfig, Failure> {
        let url = self.address()?;
        if url.trim_start().starts_with("memory:") {
            let rule = "a memory:// lock lives inside one process, so no other process could see it; \
                        name a server with --url or STANCHION_URL, or none";
            return Err(Failure::new(exit::CONFIG, rule));
        }
        Ok(ClientConfig::new(url)
            .key_prefix(self.prefix.as_str())
            .name("stanchion-cli")
            .tls_ca_file(self.tls_ca.clone()))
    }

    /// The URL that the user has given, in one of four ways.
    fn url(&self) -> Result<Option<String>, Failure> {
        match (&self.url, &self.url_file) {
            (Some(url), _) => Ok(Some(url.clone())),
            (None, Some(file)) => read_url(file).map(Some),
            (None, None) => url_of_environment(),
        }
    }

    /// The URL of the server. It may have a password.
    pub(crate) fn address(&self) -> Result<String, Failure> {
        match self.url()? {
            Some(url) => Ok(url),
            None => serve::url(&serve::trusted_socket()?),
        }
    }

    pub(crate) fn tls_ca(&self) -> Option<&Path> {
        self.tls_ca.as_deref()
    }

    /// Returns whether the user has given a URL. Without one the server is the user's own on this machine.
    pub(crate) fn has_url(&self) -> Result<bool, Failure> {
        Ok(self.url()?.is_some())
    }

    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let config = self.config()?;
        // Checked with a plain connection first: an error about a socket would not show that the server is missing.
        if !self.has_url()? && !serve::start::is_running(&serve::trusted_socket()?)? {
            return Err(serve::start::no_server());
        }
        Ok(Client::connect_with(config).await.map_err(Library)?)
    }
}

fn url_of_environment() -> Result<Option<String>, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (set("STANCHION_URL"), set("STANCHION_URL_FILE")) {
        (Some(_), Some(_)) => {
            let rule = "STANCHION_URL and STANCHION_URL_FILE are both set: unset one of them";
            Err(Failure::new(exit::CONFIG, rule))
        }
        (Some(url), None) => url
            .into_string()
            .map(Some)
            .map_err(|_: OsString| Failure::new(exit::CONFIG, "STANCHION_URL is no text")),
        (None, Some(file)) => read_url(Path::new(&file)).map(Some),
        (None, None) => Ok(None),
    }
}

/// Reads the URL in `file`. No message shows the file's content.
fn read_url(file: &Path) -> Result<String, Failure> {
    let name = file.display();
    let refuse = |rule: &dyn std::fmt::Display| {
        Failure::new(exit::CONFIG, format_args!("the URL file {name} {rule}"))
    };
    let read = || -> io::Result<(Vec<u8>, u32)> {
        let file = File::open(file)?;
        let mode = file.metadata()?.permissions().mode();
        let mut content = Vec::new();
        file.take(LONGEST).read_to_end(&mut content)?;
        Ok((content, mode))
    };
    let (content, mode) =
        read().map_err(|error| refuse(&format_args!("cannot be read: {error}")))?;
    if mode & 0o004 != 0 {
        let mode = mode & 0o777;
        eprintln!(
            "stanchion: every user of this machine can read {name} (mode {mode:o}): chmod 600 {name}"
        );
    }
    let url = String::from_utf8(content).map_err(|_| refuse(&"is no text"))?;
    let url = url.trim();
    if url.is_empty() {
        return Err(refuse(&"is empty"));
    }
    // The file may hold only the password, and an error of the library shows its input.
    if url.contains(char::is_whitespace) || !url.contains("://") {
        return Err(refuse(
            &"does not hold one URL, such as redis://user:password@host/",
        ));
    }
    Ok(url.to_owned())
}
