//! The options that say which server and which names.

use std::path::PathBuf;

use clap::Args;
use stanchion::{Client, ClientConfig};

use crate::exit::{self, Failure, Library};

/// Where locks live. Shared by the commands that work on a user's locks.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), unix:///path?db=n.
    ///
    /// Other users of the machine can read a command line: put a password into STANCHION_URL.
    #[arg(
        long,
        env = "STANCHION_URL",
        default_value = "redis://127.0.0.1:6379/",
        hide_env_values = true
    )]
    url: String,
    /// Put in front of the name, as Redisson's NameMapper does.
    #[arg(
        long,
        value_name = "P",
        env = "STANCHION_PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,
    /// A PEM file with the certificate authorities to trust instead of the system's (rediss:// only).
    #[arg(long, value_name = "FILE", env = "STANCHION_TLS_CA")]
    tls_ca: Option<PathBuf>,
}

impl ServerArgs {
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        if self.url.trim_start().starts_with("memory:") {
            let rule = "a memory:// lock lives inside one process, so no other process could see it; \
                        name a server with --url or STANCHION_URL";
            return Err(Failure::new(exit::CONFIG, rule));
        }
        let config = ClientConfig::new(self.url.as_str())
            .key_prefix(self.prefix.as_str())
            .name("stanchion-cli")
            .tls_ca_file(self.tls_ca.clone());
        Ok(Client::connect_with(config).await.map_err(Library)?)
    }
}
