//! The data for deadlock detection: records, and the holders of names.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use stanchion_core::client_of;
use stanchion_core::primitive::{ActorId, Handle, Holders, whole_millis};
use stanchion_transport::{Failure, Moment, Reply, ServerRejection};

use crate::announcer::{Keys, LASTS, list_micros, send};
use crate::deadlocks::Deadlock;
use crate::holders::{self, Held, Seen, tells};
use crate::tangle::{Graph, is_foreign};
use crate::{Site, Survey, SurveyedClient, record};

/// The number of names or records that are requested together.
const TOGETHER: usize = 128;

/// The most names and records that are read for one wait. An actor whose record was not read counts as one that makes progress.
const MOST_NAMES: usize = 1024;
const MOST_RECORDS: usize = 256;

/// The time for which a result is shared with other waits of this client.
const FRESH: Duration = Duration::from_secs(1);

/// Records, and the holders of the names that were read.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    pub(crate) clients: Vec<SurveyedClient>,
    pub(crate) held: Held,
}

impl Scene {
    /// Returns the scene of a survey: the holders of all awaited names, and the queues of held fair locks, where Redisson's clients may wait.
    pub(crate) async fn of_all(core: &Handle, survey: Survey) -> Self {
        let mut names: HashMap<&[u8], &Holders> = HashMap::new();
        for client in &survey.clients {
            let waits = client.waits.iter().map(|it| (&it.name, &it.holders));
            let queues = client.holds.iter().map(|it| (&it.name, &it.holders));
            let queues = queues.filter(|(_, holders)| matches!(holders, Holders::Queue(_)));
            for (name, holders) in waits.chain(queues) {
                // A description with a queue is preferred: a plain lock and a fair one may have one name.
                let known = names.get(name.as_bytes());
                if tells(name, holders) && !matches!(known, Some(Holders::Queue(_))) {
                    names.insert(name.as_bytes(), holders);
                }
            }
        }
        let mut held = Held::default();
        let names: Vec<(&[u8], &Holders)> = names.into_iter().collect();
        for some in names.chunks(TOGETHER) {
            let each = some
                .iter()
                .map(|(name, holders)| holders::read(core, name, holders));
            for ((name, _), seen) in some.iter().zip(join_all(each).await) {
                match seen {
                    Ok(Some(seen)) => drop(held.insert(name.to_vec(), seen)),
                    Ok(None) => {}
                    // The records of the processes are used for this name.
                    Err(failure) => {
                        tracing::debug!(?failure, "the holders of a name were not read");
                    }
                }
            }
        }
        Self {
            clients: survey.clients,
            held,
        }
    }

    pub(crate) fn deadlocks(&self) -> Vec<Deadlock> {
        Graph::of(&self.clients, &self.held).deadlocks()
    }

    /// Reads everything that the waits of `actor` lead to: holders, their waits, and so on. `None` if this client's own record is missing.
    ///
    /// # Errors
    /// The server did not reply, or refused.
    pub(crate) async fn around(core: &Site, actor: &str) -> Result<Option<Self>, Failure> {
        // Locked during all requests, by background tasks only, so that concurrent searches share their requests.
        let mut read = core.surveys.looks.read.lock().await;
        let now = core.now();
        read.records.retain(|_, (at, _)| now.since(*at) < FRESH);
        read.names.retain(|_, (at, _)| now.since(*at) < FRESH);
        let mut seeking = Seeking {
            core,
            read: &mut read,
            now,
            scene: Self::default(),
            records: HashSet::new(),
            names: HashSet::new(),
        };
        seeking.record(core.id()).await?;
        if seeking.scene.clients.is_empty() {
            return Ok(None);
        }
        seeking.follow(actor).await?;
        Ok(Some(seeking.scene))
    }
}

/// The recent reads of this client's searches for deadlocks.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    read: tokio::sync::Mutex<Read>,
    refused: AtomicBool,
}

impl Looks {
    /// Returns whether this is the first refusal by the server.
    pub(crate) fn first_refusal(&self) -> bool {
        !self.refused.swap(true, Ordering::Relaxed)
    }
}

/// The text of a record, and its remaining TTL.
type Lasting = (Vec<u8>, Duration);

#[derive(Debug, Default)]
struct Read {
    records: HashMap<Uuid, (Moment, Option<Lasting>)>,
    names: HashMap<Vec<u8>, (Moment, Option<Seen>)>,
}

struct Seeking<'a> {
    core: &'a Handle,
    read: &'a mut Read,
    now: Moment,
    scene: Scene,
    /// The records and names that were requested.
    records: HashSet<Uuid>,
    names: HashSet<Vec<u8>>,
}

impl Seeking<'_> {
    /// Reads the names that `actor` waits for, the blockers, the names that the blockers wait for, and so on, until nothing is new.
    async fn follow(&mut self, actor: &str) -> Result<(), Failure> {
        let mut actors: HashSet<String> = HashSet::from([actor.to_owned()]);
        let mut all = false;
        loop {
            let names = self.names_of(&actors);
            for some in names.chunks(TOGETHER) {
                self.names(some).await?;
            }
            if !all && self.is_behind_writers(&actors) {
                // The keys of the name do not list the waiting writers, so all records are read.
                all = true;
                for client in self.everybody().await? {
                    self.record(client).await?;
                }
            }
            let owners: HashSet<String> = self.owners().map(str::to_owned).collect();
            let clients: HashSet<Uuid> = owners.iter().filter_map(|it| client_of(it)).collect();
            let mut news = !names.is_empty();
            for client in clients {
                if client.get_version_num() == 8 && !self.records.contains(&client) {
                    news = true;
                    self.record(client).await?;
                }
            }
            let before = actors.len();
            self.reached(&owners, &mut actors);
            if !news && actors.len() == before {
                return Ok(());
            }
        }
    }

    /// Returns the unread names that the actors wait for. If an owner of Redisson was found, also the fair locks that the actors hold.
    fn names_of(&self, actors: &HashSet<String>) -> Vec<(Vec<u8>, Holders)> {
        let is_reached =
            |actor: &Option<String>| actor.as_ref().is_some_and(|it| actors.contains(it));
        let foreign = self.owners().any(is_foreign);
        let mut names: HashMap<&[u8], &Holders> = HashMap::new();
        for client in &self.scene.clients {
            let waits = client.waits.iter().filter(|it| is_reached(&it.actor));
            let holds = client.holds.iter().filter(|it| {
                foreign && is_reached(&it.actor) && matches!(it.holders, Holders::Queue(_))
            });
            let waits = waits.map(|it| (&it.name, &it.holders));
            for (name, holders) in waits.chain(holds.map(|it| (&it.name, &it.holders))) {
                if tells(name, holders) && !self.names.contains(name.as_bytes()) {
                    names.insert(name.as_bytes(), holders);
                }
            }
        }
        let room = MOST_NAMES.saturating_sub(self.names.len());
        let names = names.into_iter().take(room);
        names
            .map(|(name, holders)| (name.to_vec(), holders.clone()))
            .collect()
    }

    /// Returns the holders and the queued owners of the names that were read.
    fn owners(&self) -> impl Iterator<Item = &str> {
        self.scene.held.values().flat_map(|seen| {
            let holders = seen.holders.iter().map(|it| it.owner.as_str());
            holders.chain(seen.queue.iter().map(String::as_str))
        })
    }

    /// Adds the actors of `owners`, and those of waiting writers.
    fn reached(&self, owners: &HashSet<String>, actors: &mut HashSet<String>) {
        for client in &self.scene.clients {
            let holds = client.holds.iter().filter(|it| owners.contains(&it.owner));
            let before = |name: &[u8], holders: &Holders| {
                *holders == Holders::Writer && self.names.contains(name)
            };
            let waits = client
                .waits
                .iter()
                .filter(|it| owners.contains(&it.owner) || before(it.name.as_bytes(), &it.holders));
            let holds = holds.filter_map(|it| it.actor.clone());
            let found = holds.chain(waits.filter_map(|it| it.actor.clone()));
            actors.extend(found.filter(|it| ActorId::is_certain_as(it)));
        }
    }

    /// Returns whether one of the actors waits to read a name that readers hold.
    fn is_behind_writers(&self, actors: &HashSet<String>) -> bool {
        let waits = self.scene.clients.iter().flat_map(|client| &client.waits);
        let reached = |actor: &Option<String>| actor.as_ref().is_some_and(|it| actors.contains(it));
        let mut reads = waits.filter(|it| it.holders == Holders::Readers && reached(&it.actor));
        reads.any(|it| {
            let seen = self.scene.held.get(it.name.as_bytes());
            seen.is_some_and(|seen| seen.holders.iter().all(|holder| holder.reads))
        })
    }

    async fn names(&mut self, names: &[(Vec<u8>, Holders)]) -> Result<(), Failure> {
        let unread = |it: &&(Vec<u8>, Holders)| !self.read.names.contains_key(&it.0);
        let unread: Vec<&(Vec<u8>, Holders)> = names.iter().filter(unread).collect();
        let each = unread
            .iter()
            .map(|(name, holders)| holders::read(self.core, name, holders));
        for ((name, _), seen) in unread.iter().zip(join_all(each).await) {
            let seen = match seen {
                // Another type of value: the record describes the name wrongly.
                Err(Failure::Rejected(ServerRejection::WrongType { .. })) => None,
                seen => seen?,
            };
            self.read.names.insert(name.clone(), (self.now, seen));
        }
        for (name, _) in names {
            self.names.insert(name.clone());
            if let Some((_, Some(seen))) = self.read.names.get(name) {
                self.scene.held.insert(name.clone(), seen.clone());
            }
        }
        Ok(())
    }

    /// Reads the record of a client.
    async fn record(&mut self, client: Uuid) -> Result<(), Failure> {
        if self.records.len() >= MOST_RECORDS || !self.records.insert(client) {
            return Ok(());
        }
        let key = Keys::new(self.core.config()).record(&client);
        if !self.read.records.contains_key(&client) {
            let get = [b"GET".as_slice(), &key];
            let lasts = [b"PTTL".as_slice(), &key];
            let (text, lasts) =
                tokio::join!(send(self.core, &key, &get), send(self.core, &key, &lasts));
            let record = match (text, lasts) {
                (Ok(Reply::Bulk(text)), Ok(lasts)) => lasts.as_int().map(|ms| {
                    let lasts = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
                    (text.to_vec(), lasts)
                }),
                (Err(failure @ Failure::Rejected(_)), _)
                | (_, Err(failure @ Failure::Rejected(_))) => {
                    return Err(failure);
                }
                // The record has expired or never existed; or its server does not answer. Its actors count as making progress.
                _ => None,
            };
            self.read.records.insert(client, (self.now, record));
        }
        if let Some((at, Some((text, lasts)))) = self.read.records.get(&client) {
            // Computed from one reading of the clock with which records are written, so that all readers agree on which wait is younger.
            let now = list_micros(self.core, self.now) / 1000;
            let told = LASTS.saturating_sub(*lasts) + self.now.since(*at);
            let told = now.saturating_sub(whole_millis(told));
            self.scene.clients.extend(record::read(text, now, told));
        }
        Ok(())
    }

    /// Returns the clients that have a record.
    async fn everybody(&self) -> Result<Vec<Uuid>, Failure> {
        let list = Keys::new(self.core.config()).list;
        let now = (list_micros(self.core, self.now) / 1000).to_string();
        let living = [b"ZRANGEBYSCORE".as_slice(), &list, now.as_bytes(), b"+inf"];
        let reply = send(self.core, &list, &living).await?;
        let ids = reply.as_array().unwrap_or_default().iter();
        Ok(ids.filter_map(|id| id.as_text()?.parse().ok()).collect())
    }
}
