//! What the warden needs to free the lock after `run` was killed.
//!
//! P12: the warden frees the lock only when nothing that the command has started runs any more. It ends the hold of one owner, which no
//! other hold ever has, so it cannot end another one.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stanchion::semaphore::PermitId;
use stanchion::{Client, ClientConfig, FairLock, LeasedSemaphore, Lock, RwLock};
use stanchion_client::primitive::Lockable as _;

use super::RunArgs;
use super::target::Held;

/// The longest time of the release. If it fails, the lease ends the hold.
const MOST: Duration = Duration::from_secs(5);

/// A hold, and where it is. Written to the warden through a pipe, because the URL may have a password.
#[derive(Deserialize, Serialize)]
pub(super) struct Estate {
    url: String,
    prefix: String,
    tls_ca: Option<PathBuf>,
    name: String,
    hold: Kind,
}

/// The hold: its owner, or the id of its permit.
#[derive(Deserialize, Serialize)]
enum Kind {
    Lock(String),
    Fair(String),
    Read(String),
    Write(String),
    Permit(String),
}

impl Estate {
    /// Returns `None` if the lease is to end the hold: a job and `--at-least` keep the name for a time; a leader's term ends in more than
    /// one step.
    pub(super) fn new(args: &RunArgs, held: &Held) -> Option<Self> {
        let owner = held.owner();
        let hold = match held {
            _ if args.at_least.is_some() => return None,
            Held::Lock(_) => Kind::Lock(owner),
            Held::Fair(_) => Kind::Fair(owner),
            Held::Read(_) => Kind::Read(owner),
            Held::Write(_) => Kind::Write(owner),
            Held::Permit(permit) => Kind::Permit(permit.ids().first()?.to_string()),
            Held::Job(_) | Held::Leader(_) => return None,
        };
        let server = &args.work.server;
        Some(Self {
            // OK: it was read before, or there would be no hold.
            url: server.address().ok()?,
            prefix: server.prefix().to_owned(),
            tls_ca: server.tls_ca().map(PathBuf::from),
            name: args.name.clone(),
            hold,
        })
    }

    /// Frees the lock, if its owner still holds it.
    pub(super) async fn give_back(self) {
        // OK to ignore a failure: the lease ends the hold.
        let _ = tokio::time::timeout(MOST, self.release()).await;
    }

    async fn release(self) -> Option<()> {
        let config = ClientConfig::new(self.url)
            .key_prefix(self.prefix)
            .name("stanchion-cli")
            .tls_ca_file(self.tls_ca);
        let client = Client::connect_with(config).await.ok()?;
        let name = self.name.as_str();
        let (part, owner) = match &self.hold {
            Kind::Lock(owner) => (Lock::new(&client, name).ok()?.part(), owner),
            Kind::Fair(owner) => (FairLock::new(&client, name).ok()?.part(), owner),
            Kind::Read(owner) => {
                let side = RwLock::new(&client, name).ok()?.read_side();
                (side.part(), owner)
            }
            Kind::Write(owner) => {
                let side = RwLock::new(&client, name).ok()?.write_side();
                (side.part(), owner)
            }
            Kind::Permit(id) => {
                let id: PermitId = id.parse().ok()?;
                let permits = LeasedSemaphore::new(&client, name).ok()?;
                permits.danger().reclaim(&id).await.ok()?;
                client.shutdown(Duration::from_secs(1)).await;
                return Some(());
            }
        };
        let freed = part.handle.abandon(&*part.sync, owner, part.lease);
        freed.await.ok()?;
        client.shutdown(Duration::from_secs(1)).await;
        Some(())
    }
}
