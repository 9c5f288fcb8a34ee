//! The servers of a client: one server, the master that sentinels name, or the nodes of a cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::{ClientConfig, Presence};
use crate::console::Console;
use crate::error::{ConfigError, ConnectError, Outage};
use crate::host::host;
use crate::link::login::name_of;
use crate::link::{Link, OnPush, Peer, Stir};
use crate::node::{Address, Dialer, Node, Path};
use crate::runner::Runner;
use crate::script::Call;
use crate::sentinel::Sentinels;
use crate::server_clock::ServerClock;
use crate::server_info::{Facts, Placement, ServerInfo};
use crate::stream::Routes;
use crate::url::{Endpoint, Route, Target};
use crate::{Connector, Failure, Reply};

/// A set of keys: a server (or a set of servers with one content) and a database. Clients with equal realms share the keys,
/// as far as they could detect at the connect. Only the server's replies decide.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Realm(Arc<str>);

impl Realm {
    pub(crate) fn new(text: String) -> Self {
        Self(text.into())
    }
}

/// A checked configuration: a destination that the client can connect to.
#[derive(Debug)]
pub struct Destination {
    endpoint: Endpoint,
    routes: Arc<Routes>,
    /// True if [`Destination::connect`] does not wait for a server.
    later: bool,
}

impl Destination {
    /// Checks the configuration before any request is sent: features, addresses and certificate files.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting and the rule.
    pub async fn of(config: &ClientConfig) -> Result<Self, ConfigError> {
        let endpoint = config.endpoint()?;
        let routes = Arc::new(Routes::new(config));
        let (places, tls) = match &endpoint.target {
            Target::Server(route) => {
                routes.check(route).await?;
                return Ok(Self {
                    endpoint,
                    routes,
                    later: false,
                });
            }
            Target::Sentinel(to) => (&to.sentinels, to.tls),
            Target::Cluster(to) => (&to.seeds, to.tls),
        };
        // All places are checked. Otherwise an unusable place would be found only when the others are down.
        for place in places {
            routes.check(&place.route(tls)).await?;
        }
        Ok(Self {
            endpoint,
            routes,
            later: false,
        })
    }

    /// Makes [`Destination::connect`] return without waiting: the links connect in the background, as after an outage.
    #[must_use]
    pub const fn later(mut self) -> Self {
        self.later = true;
        self
    }

    /// The number of the database.
    #[must_use]
    pub const fn database(&self) -> u32 {
        self.endpoint.login.database
    }

    /// Returns the error of a connection that failed before a server could give a reason.
    #[must_use]
    pub fn unreachable(&self, detail: String) -> ConnectError {
        ConnectError::Unreachable {
            server: self.endpoint.target.to_string(),
            detail,
        }
    }

    /// Returns the error of a connection without an answer when the timer of `limit` fired, `waited` after its start by the
    /// machine's clock.
    #[must_use]
    pub fn silent(&self, limit: Duration, waited: Duration) -> ConnectError {
        let within = humantime::format_duration(limit);
        let is_tls = match &self.endpoint.target {
            Target::Server(route) => matches!(route, Route::Tls { .. }),
            Target::Sentinel(to) => to.tls,
            Target::Cluster(to) => to.tls,
        };
        // A timer of tokio fires early if tokio's time is paused: the paused time jumps ahead whenever all tasks wait.
        let detail = if waited < limit / 2 {
            format!(
                "no answer within {within} of tokio's paused time; for memory:// set ClientConfig::virtual_time(), a real server \
                 needs time that runs"
            )
        } else if is_tls {
            format!(
                "no answer within {within}: does this port speak TLS? redis:// connects without it"
            )
        } else {
            format!("no answer within {within}")
        };
        self.unreachable(detail)
    }

    /// Connects and reads the facts about the server, unless this is for [later](Destination::later). The caller sets the
    /// time limit.
    ///
    /// The connections run on `runner` and on the runtime of the caller, and end with `closed`. `on_push` receives every
    /// message. `client` is the identity that servers show with the connections.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        &self,
        config: &ClientConfig,
        client: &Uuid,
        clock: Arc<dyn Clock>,
        runner: Arc<Runner>,
        on_push: OnPush,
        closed: CancellationToken,
    ) -> Result<(Servers, Arc<Facts>), ConnectError> {
        let target = &self.endpoint.target;
        let placement = match target {
            Target::Cluster(_) => Placement::Slots,
            Target::Server(_) | Target::Sentinel(_) => Placement::Anywhere,
        };
        let facts = Arc::new(Facts::new(placement, self.later));
        let dialer = Dialer {
            config: config.clone(),
            name: name_of(client, &config.app(), place_of(config, target).as_deref()),
            routes: Arc::clone(&self.routes),
            login: self.endpoint.login.clone(),
            clock,
            runner,
            // The direct links run on the runtime that connects, because calls from that runtime use them.
            user: Handle::current(),
            on_push,
            closed,
            stir: Arc::default(),
            facts: Arc::clone(&facts),
        };
        let dialer = Arc::new(dialer);
        let kind = if self.later {
            Kind::open(&dialer, target)?
        } else {
            let (kind, info) = Kind::connect(dialer, target).await?;
            facts.set(info);
            kind
        };
        Ok((Servers { kind }, facts))
    }
}

/// The servers that a client's calls reach. See the module.
#[derive(Debug)]
pub struct Servers {
    kind: Kind,
}

enum Kind {
    One(Node),
    Cluster(Arc<Cluster>),
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(node) => f.debug_tuple("One").field(&node.address.server).finish(),
            Self::Cluster(cluster) => f.debug_tuple("Cluster").field(&cluster.name()).finish(),
        }
    }
}

impl Kind {
    async fn connect(
        dialer: Arc<Dialer>,
        target: &Target,
    ) -> Result<(Self, ServerInfo), ConnectError> {
        let node = match target {
            Target::Cluster(to) => {
                let (cluster, info) = Cluster::connect(dialer, to).await?;
                return Ok((Self::Cluster(cluster), info));
            }
            Target::Server(_) | Target::Sentinel(_) => Self::node(&dialer, target)?,
        };
        // The links connect at the same time, so this takes as long as the slowest link. All of them must succeed: a client
        // that can acquire but not renew would lose its grants.
        for link in node.links() {
            link.settled().await?;
        }
        let info = ServerInfo::ask(&node.direct).await?;
        Ok((Self::One(node), info))
    }

    /// Starts the links, which connect in the background.
    fn open(dialer: &Arc<Dialer>, target: &Target) -> Result<Self, ConnectError> {
        Ok(match target {
            Target::Cluster(to) => Self::Cluster(Cluster::open(Arc::clone(dialer), to)),
            Target::Server(_) | Target::Sentinel(_) => Self::One(Self::node(dialer, target)?),
        })
    }

    /// Starts the links to the only server.
    fn node(dialer: &Arc<Dialer>, target: &Target) -> Result<Node, ConnectError> {
        let one = |peer, connector| {
            // The service name for a Sentinel set, because the address of its master changes.
            let server = target.to_string();
            Node::new(
                dialer,
                Address {
                    server,
                    peer,
                    connector,
                },
            )
        };
        let node = match target {
            Target::Server(route) => one(Peer::Server, dialer.routes.connector(route)?),
            Target::Sentinel(to) => {
                let sentinels = Sentinels::new(dialer, to)?;
                let node = one(Peer::Master, Arc::clone(&sentinels) as Arc<dyn Connector>);
                sentinels.watch(dialer);
                node
            }
            Target::Cluster(_) => {
                return Err(ConnectError::Unreachable {
                    server: target.to_string(),
                    detail: "it is a cluster, which has several nodes".into(),
                });
            }
        };
        // Started now and not for the first waiter, so that a server or user without `HELLO` (RESP3) fails at the connect.
        node.subscriber_if_wanted();
        Ok(node)
    }
}

impl Servers {
    /// Runs a script: EVALSHA, then EVAL if the server does not know it.
    ///
    /// Dropping the future does not cancel the script: the server may still run it.
    ///
    /// # Errors
    /// [`Failure`] states whether the script may have run.
    pub async fn call(&self, path: Path, call: &Call) -> Result<Reply, Failure> {
        match &self.kind {
            Kind::One(node) => {
                let answer = node.link(path).call(call).await;
                answer.map_err(Failure::of_one_server)
            }
            // Boxed: the future of the cluster is larger, and calls to a single server should not carry that size.
            Kind::Cluster(cluster) => Box::pin(cluster.call(path, call)).await,
        }
    }

    /// Reads the clock of the server of `slot`, after that server refused a request as late.
    pub async fn synchronise(&self, path: Path, slot: u16) {
        match &self.kind {
            Kind::One(node) => node.link(path).synchronise().await,
            Kind::Cluster(cluster) => {
                // Without an owner no clock can be read, and calls to the slot are not sent either.
                if let Some(node) = cluster.owner(slot) {
                    node.link(path).synchronise().await;
                }
            }
        }
    }

    /// Returns the clock of the server of `slot`.
    pub fn clock(&self, slot: u16) -> Arc<ServerClock> {
        match &self.kind {
            Kind::One(node) => Arc::clone(node.clock()),
            Kind::Cluster(cluster) => cluster.clock(slot),
        }
    }

    /// Returns the earliest of the servers' times, in µs, when the client's clock reads `client_micros`. Only servers with a
    /// known clock count.
    pub fn earliest(&self, client_micros: u64) -> u64 {
        match &self.kind {
            Kind::One(node) => node.clock().at(client_micros),
            Kind::Cluster(cluster) => cluster.earliest(client_micros),
        }
    }

    /// Returns whether the clock of any server is known. Without a known clock, requests cannot carry their end time.
    pub fn is_time_known(&self) -> bool {
        match &self.kind {
            Kind::One(node) => node.clock().is_known(),
            Kind::Cluster(cluster) => cluster.is_time_known(),
        }
    }

    /// Returns whether a connection to any of the servers is up.
    pub fn is_up(&self) -> bool {
        match &self.kind {
            Kind::One(node) => node.is_up(),
            Kind::Cluster(cluster) => cluster.is_up(),
        }
    }

    /// Returns the number of open connections, by use.
    pub fn connected(&self) -> Vec<(&'static str, u64)> {
        let mut open: Vec<(&'static str, u64)> = Vec::with_capacity(3);
        let mut see = |node: &Node| {
            for (link, up) in node.connected() {
                match open.iter_mut().find(|(other, _)| *other == link) {
                    Some((_, count)) => *count += u64::from(up),
                    None => open.push((link, u64::from(up))),
                }
            }
        };
        match &self.kind {
            Kind::One(node) => see(node),
            Kind::Cluster(cluster) => cluster.each_node(see),
        }
        open
    }

    /// Returns the link for subscriptions to the channels of `slot`; `None` if no node is known to own it.
    pub fn subscriber(&self, slot: u16) -> Option<Link> {
        match &self.kind {
            Kind::One(node) => Some(node.subscriber().clone()),
            // Creates the link: in a cluster only nodes with waiters, or with holds that are renewed, get one.
            Kind::Cluster(cluster) => Some(cluster.owner(slot)?.subscriber().clone()),
        }
    }

    /// Reports that a subscription was refused or has ended, or that a master cannot be reached. In a cluster the slot may
    /// have another owner now.
    pub fn doubt(&self) {
        // Only a cluster remembers a map that can be wrong. Sentinels are queried at every connect.
        if let Kind::Cluster(cluster) = &self.kind {
            cluster.doubt();
        }
    }

    /// Returns whether a connection to the master of `slot` is up.
    pub fn reaches(&self, slot: u16) -> bool {
        match &self.kind {
            Kind::One(node) => node.is_up(),
            Kind::Cluster(cluster) => cluster.reaches(slot),
        }
    }

    /// Returns the reason why a call for `slot` would find no connection: it was lost, or the last attempt to open one failed. `None` while the first
    /// attempt has not ended. A cluster then reloads its map: the slot may have another owner.
    pub fn outage(&self, slot: u16) -> Option<Outage> {
        let outage = match &self.kind {
            Kind::One(node) => node.outage(),
            Kind::Cluster(cluster) => cluster.member(slot)?.node.outage(),
        };
        if outage.is_some() {
            self.doubt();
        }
        outage
    }

    /// Returns a number that identifies the master of `slot`. The number changes when another server serves the slot.
    pub fn master(&self, slot: u16) -> u64 {
        match &self.kind {
            Kind::One(node) => node.dialer.stir.replaced(),
            Kind::Cluster(cluster) => cluster.master(slot),
        }
    }

    /// Returns the number of times that a server came back as another process. Its data may be older than its last replies.
    pub fn restarts(&self) -> u64 {
        self.stir().restarts()
    }

    /// Returns each server that owns keys, for plain commands.
    pub fn consoles(self: &Arc<Self>) -> Vec<Console> {
        match &self.kind {
            Kind::One(_) => vec![Console::only(Arc::clone(self))],
            Kind::Cluster(cluster) => {
                let masters = cluster.masters().into_iter();
                masters.map(Console::member).collect()
            }
        }
    }

    /// Returns the server of `slot`, for plain commands; `None` if no node is known to own it.
    pub fn console(self: &Arc<Self>, slot: u16) -> Option<Console> {
        match &self.kind {
            Kind::One(_) => Some(Console::only(Arc::clone(self))),
            Kind::Cluster(cluster) => cluster.member(slot).map(Console::member),
        }
    }

    /// Returns the only server, or `None` for a cluster.
    pub(crate) const fn only(&self) -> Option<&Node> {
        match &self.kind {
            Kind::One(node) => Some(node),
            Kind::Cluster(_) => None,
        }
    }

    fn stir(&self) -> &Stir {
        match &self.kind {
            Kind::One(node) => &node.dialer.stir,
            Kind::Cluster(cluster) => cluster.stir(),
        }
    }

    /// Resolves the next time that a connection comes up or the cluster map changes.
    pub fn comes_up(&self) -> Notified<'_> {
        self.stir().comes_up()
    }

    /// Returns a receiver that fires on every change of a connection and of the cluster map.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.stir().changes()
    }

    /// Returns the notification of each change, for one task.
    pub fn each_change(&self) -> Arc<Notify> {
        self.stir().each_change()
    }

    /// Closes the connections at once.
    pub fn end(&self) {
        match &self.kind {
            Kind::One(node) => node.end(),
            Kind::Cluster(cluster) => cluster.end(),
        }
    }

    /// Returns the realm, which distinguishes the keys of these servers from those of others. Two clients share a realm if
    /// they use the same database, and the same seeds (a cluster) or the same server process. If the process is
    /// unknown, the realm belongs to this client alone.
    pub fn realm(&self, info: &ServerInfo, database: u32, client: &Uuid) -> Realm {
        Realm::new(match &self.kind {
            // The seeds as the user wrote them, because masters and their run ids change. With too many realms an owner
            // waits for itself; with too few, one request is wasted, and the server's reply is still correct.
            Kind::Cluster(cluster) => format!("{}/{database}", cluster.name()),
            // Two servers without a run id must not count as the same server.
            Kind::One(_) if info.run_id.is_empty() => client.to_string(),
            Kind::One(_) => format!("{}/{database}", info.run_id),
        })
    }

    /// Returns the URL of the servers without credentials, for messages.
    pub fn name(&self) -> &str {
        match &self.kind {
            Kind::One(node) => &node.address.server,
            Kind::Cluster(cluster) => cluster.name(),
        }
    }
}

/// Returns `<pid>@<host>` for the names of connections, unless [`Presence`] is off. The clients of an engine in this process need no place.
fn place_of(config: &ClientConfig, target: &Target) -> Option<String> {
    let is_here = matches!(target, Target::Server(Route::Memory { .. }));
    let publishes = config.presence != Presence::Off && !is_here;
    publishes.then(|| format!("{}@{}", std::process::id(), host().unwrap_or_default()))
}
