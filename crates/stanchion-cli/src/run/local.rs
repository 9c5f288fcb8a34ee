//! The server of a `run` without a URL: one for this user on this machine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stanchion::Client;

use super::RunArgs;
use super::report::Report;
use crate::exit::{self, Failure};
use crate::messages;
use crate::serve::start::{self, Found};
use crate::serve::{trusted_socket, url};

/// The time between two checks of the connection. A server that restarts is back sooner.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Local {
    socket: PathBuf,
    may_start: bool,
    /// True once the user knows where the lock is.
    is_told: AtomicBool,
}

impl Local {
    /// Returns `None` if the user has given a URL.
    pub(super) fn new(args: &RunArgs) -> Result<Option<Self>, Failure> {
        if args.work.server.has_url()? {
            return Ok(None);
        }
        Ok(Some(Self {
            socket: trusted_socket()?,
            may_start: !args.work.no_server,
            is_told: AtomicBool::new(false),
        }))
    }

    pub(super) const fn may_start(&self) -> bool {
        self.may_start
    }

    /// Finds the server, or starts it, and says so.
    pub(super) async fn find(&self, report: &Report) -> Result<(), Failure> {
        let (socket, may_start) = (self.socket.clone(), self.may_start);
        let found = tokio::task::spawn_blocking(move || match may_start {
            true => start::find_or_start(&socket),
            false if start::is_running(&socket)? => Ok(Found::Running),
            false => Err(start::no_server()),
        });
        let found = found
            .await
            .map_err(|error| Failure::new(exit::IO, error))??;
        let url = url(&self.socket)?;
        match found {
            Found::Started if !self.is_told.swap(true, Ordering::Relaxed) => {
                report.say(format_args!("{}", messages::server_started(&url)));
            }
            Found::Started => report.detail(format_args!("started the server again")),
            Found::Running => report.detail(format_args!("{}", messages::server_found(&url))),
        }
        Ok(())
    }
}

/// Restarts the server while this process waits, whenever the server has ended. Returns only if that fails.
pub(super) async fn keep(local: Option<&Local>, client: &Client, report: &Report) -> Failure {
    let Some(local) = local.filter(|local| local.may_start) else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(LOOK).await;
        if client.is_connected() {
            continue;
        }
        match local.find(report).await {
            Err(failure) if failure.code() != exit::UNAVAILABLE => return failure,
            Err(failure) => tracing::debug!("{failure}"),
            Ok(()) => {}
        }
    }
}
