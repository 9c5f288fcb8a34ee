//! The processes of owners: from the server's list of connections, and from the records that processes publish.

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::client::Process;
use stanchion::semaphore::PermitId;
use stanchion::survey::{Survey, SurveyedClient};
use stanchion::{Client, QueryError};

use crate::gaps::Gaps;
use crate::holder::HolderSeen;
use crate::wording::{Origin, Owner, process};

/// Facts known of the processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct People {
    /// The connected processes, by the uuid of their client.
    connected: BTreeMap<String, Process>,
    /// `app@host pid N` by client, for the clients that publish it.
    labels: BTreeMap<String, String>,
    /// The age of published holds, by owner.
    held: BTreeMap<String, Duration>,
    /// Records of the processes. `None`: this user may not read them.
    pub(crate) survey: Option<Survey>,
    /// The servers that did not answer.
    pub(crate) gaps: Gaps,
}

impl People {
    /// Reads the connections of each server, and the published records. Without the rights, the result is empty. Fails only if no server
    /// answers.
    pub(crate) async fn ask(client: &Client) -> Result<Self, QueryError> {
        let processes = client.processes().await?;
        let mut people = Self::default();
        people.gaps.add_all(&processes.unreached);
        let connected = processes.list.unwrap_or_default().into_iter();
        people.connected = connected
            .map(|process| (process.client.to_string(), process))
            .collect();
        match client.survey().await {
            Ok(survey) => people.told(survey),
            Err(QueryError::Rejected { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(people)
    }

    fn told(&mut self, survey: Survey) {
        self.gaps.add_all(&survey.unreached);
        for it in &survey.clients {
            let label = process(&it.app, it.host.as_deref(), it.pid);
            self.labels.insert(it.client.to_string(), label);
            let holds = it.holds.iter();
            self.held
                .extend(holds.map(|hold| (hold.owner.clone(), hold.held)));
        }
        self.survey = Some(survey);
    }

    /// A short text for the process of an owner: `billing@web-2 pid 4711`, or `billing@10.0.0.7:51324` of a client without a known
    /// process; `billing@local` over a socket.
    pub(crate) fn of(&self, owner: &Owner<'_>) -> Option<String> {
        if let Some(label) = self.labels.get(owner.client) {
            return Some(label.clone());
        }
        let its = self.connected.get(owner.client)?;
        if let Some(pid) = its.pid {
            return Some(process(&its.app, its.host.as_deref(), pid));
        }
        let app = if its.app.is_empty() { "?" } else { &its.app };
        // A socket of this machine: the server sees its path.
        let place = match its.address.starts_with('/') {
            true => "local",
            false => &its.address,
        };
        Some(format!("{app}@{place}"))
    }

    /// The process that holds a permit, if it has published that.
    pub(crate) fn of_permit(&self, id: &PermitId) -> Option<String> {
        let mut clients = self.survey.iter().flat_map(|told| &told.clients);
        let holds = |it: &&SurveyedClient| {
            it.holds
                .iter()
                .any(|hold| id.is_of(&hold.owner, hold.count))
        };
        let its = clients.find(holds)?;
        Some(process(&its.app, its.host.as_deref(), its.pid))
    }

    /// An owner for people: its process, or the short form of the owner if the process is not known.
    pub(crate) fn who(&self, owner: &str) -> String {
        HolderSeen::new(owner, 1, self).brief()
    }

    /// The age of an owner's hold, if its process has published it.
    pub(crate) fn held(&self, owner: &str) -> Option<Duration> {
        self.held.get(owner).copied()
    }

    /// Returns whether an owner's client is connected. `None` if that is unknown: no connection has a name, the client belongs to
    /// Redisson, which does not name its connections, or the client may be connected to a server that does not answer.
    pub(crate) fn is_connected(&self, owner: &Owner<'_>) -> Option<bool> {
        let told = !self.connected.is_empty() && owner.origin == Origin::Stanchion;
        let here = told.then(|| self.connected.contains_key(owner.client));
        here.filter(|here| *here || self.gaps.is_empty())
    }
}
