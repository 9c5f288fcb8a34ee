//! The servers of a client: one server, the master that sentinels name, or the nodes of a cluster.
//!
//! A [`Node`] is one server with up to three links, so that one blocked runtime or a flood of messages does not delay the
//! rest:
//!
//! | link | runs on | carries |
//! |---|---|---|
//! | `direct` | the caller's runtime | acquires and other calls of the user's tasks |
//! | `background` | the client's own thread | renewals, heartbeats of waiters, releases of dropped guards |
//! | `subscriber` | the client's own thread | subscriptions, over RESP3 |
//!
//! With `Background::CurrentRuntime` all run on the caller's runtime, and `direct` and `background` are the same link. A call
//! uses the other of the two when its own is down.

use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::sync::futures::Notified;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::cluster::Cluster;
use super::health::Health;
use super::link::{Link, OnPush, Peer, Plan, Stir};
use super::sentinel::Sentinels;
use super::server_clock::ServerClock;
use super::stream::Routes;
use super::{Call, Connector, Failure, Reply};
use crate::client::Path;
use crate::clock::Clock;
use crate::config::{Background, ClientConfig, Wake};
use crate::endpoint::{Endpoint, Login, Target};
use crate::error::{ConfigError, ConnectError};
use crate::name::Placement;
use crate::owner::Realm;
use crate::runner::Runner;
use crate::server::ServerInfo;

/// The parts that all connections of a client share.
pub(crate) struct Dialer {
    pub(crate) config: ClientConfig,
    pub(crate) routes: Arc<Routes>,
    pub(crate) login: Login,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runner: Arc<Runner>,
    /// The runtime of the caller's own connections.
    pub(crate) user: Handle,
    pub(crate) on_push: OnPush,
    /// Cancelled when the client is closed or dropped. Ends all links.
    pub(crate) closed: CancellationToken,
    pub(crate) stir: Arc<Stir>,
}

impl Dialer {
    /// Returns a link and starts its supervisor; it ends with `closed`.
    pub(super) fn link(&self, plan: Plan, home: &Handle, closed: &CancellationToken) -> Link {
        let link = Link::new(&self.config, plan);
        let supervision = link.clone().supervise(home.clone(), closed.clone());
        self.runner.serve(supervision);
        link
    }
}

/// The way to reach one server.
pub(super) struct Address {
    /// The server without credentials, for messages.
    pub(super) server: String,
    pub(super) peer: Peer,
    pub(super) connector: Arc<dyn Connector>,
}

/// One server and the links to it. Dropping it closes them.
pub(crate) struct Node {
    dialer: Arc<Dialer>,
    address: Address,
    direct: Link,
    background: Link,
    /// Created for the first subscription, or at the connect to a single server if waiters are woken by messages.
    subscriber: OnceLock<Link>,
    /// Written by the supervisors of all three links.
    clock: Arc<ServerClock>,
    health: Arc<Health>,
    /// Ends this node's links. A child of [`Dialer::closed`].
    closed: CancellationToken,
}

impl Node {
    pub(super) fn new(dialer: &Arc<Dialer>, address: Address) -> Self {
        let clock = Arc::new(ServerClock::default());
        let closed = dialer.closed.child_token();
        let health = Arc::default();
        let plan = || plan(dialer, &address, &clock, &health, None);
        let background = dialer.link(plan(), dialer.runner.handle(), &closed);
        let direct = match dialer.config.background {
            Background::OwnThread => dialer.link(plan(), &dialer.user, &closed),
            Background::CurrentRuntime => background.clone(),
        };
        Self {
            dialer: Arc::clone(dialer),
            direct,
            background,
            subscriber: OnceLock::new(),
            clock,
            health,
            closed,
            address,
        }
    }

    /// Returns the link for `path`, or the other one if only that is up.
    pub(super) fn link(&self, path: Path) -> &Link {
        let (first, second) = match path {
            Path::Direct => (&self.direct, &self.background),
            Path::Background => (&self.background, &self.direct),
        };
        if !first.is_up() && second.is_up() {
            second
        } else {
            first
        }
    }

    /// Returns the link for messages; creates it at the first use.
    pub(super) fn subscriber(&self) -> &Link {
        self.subscriber.get_or_init(|| {
            let on_push = Arc::clone(&self.dialer.on_push);
            let dialer = &self.dialer;
            let plan = plan(
                dialer,
                &self.address,
                &self.clock,
                &self.health,
                Some(on_push),
            );
            dialer.link(plan, dialer.runner.handle(), &self.closed)
        })
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        let both = [&self.direct, &self.background];
        both.into_iter().chain(self.subscriber.get())
    }

    pub(super) const fn clock(&self) -> &Arc<ServerClock> {
        &self.clock
    }

    pub(super) fn is_up(&self) -> bool {
        self.direct.is_up() || self.background.is_up()
    }

    /// Closes `direct` and `background` at once: the client's thread may end before their supervisors see `closed`.
    pub(super) fn end(&self) {
        self.closed.cancel();
        self.direct.end();
        self.background.end();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

fn plan(
    dialer: &Dialer,
    address: &Address,
    clock: &Arc<ServerClock>,
    health: &Arc<Health>,
    on_push: Option<OnPush>,
) -> Plan {
    Plan {
        server: address.server.clone(),
        peer: address.peer,
        connector: Arc::clone(&address.connector),
        login: dialer.login.clone(),
        clock: Arc::clone(&dialer.clock),
        server_clock: Arc::clone(clock),
        stir: Arc::clone(&dialer.stir),
        health: Arc::clone(health),
        on_push,
    }
}

/// The servers that a client's calls reach. See the module.
pub(crate) enum Servers {
    One(Node),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// Checks the configuration before anything is sent: features, addresses and certificate files.
    pub(crate) async fn check(routes: &Routes, endpoint: &Endpoint) -> Result<(), ConfigError> {
        let (places, tls) = match &endpoint.target {
            Target::Server(route) => return routes.check(route).await,
            Target::Sentinel(to) => (&to.sentinels, to.tls),
            Target::Cluster(to) => (&to.seeds, to.tls),
        };
        for place in places {
            routes.check(&place.route(tls)).await?;
        }
        Ok(())
    }

    /// Connects, without a time limit of its own.
    pub(crate) async fn connect(
        dialer: Arc<Dialer>,
        target: &Target,
    ) -> Result<(Self, ServerInfo), ConnectError> {
        let one = |peer, connector| {
            let server = target.to_string();
            Node::new(
                &dialer,
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
                let sentinels = Sentinels::new(&dialer, to)?;
                let node = one(Peer::Master, Arc::clone(&sentinels) as Arc<dyn Connector>);
                sentinels.watch(&dialer);
                node
            }
            Target::Cluster(to) => {
                let (cluster, info) = Cluster::connect(Arc::clone(&dialer), to).await?;
                return Ok((Self::Cluster(cluster), info));
            }
        };
        node.subscriber_if_wanted();
        for link in node.links() {
            link.settled().await?;
        }
        let info = ServerInfo::ask(&node.direct).await?;
        Ok((Self::One(node), info))
    }

    /// Runs a script: EVALSHA, then EVAL if the server does not know it.
    ///
    /// Dropping the future does not cancel the script: the server may still run it.
    pub(crate) async fn call(&self, path: Path, call: &Call) -> Result<Reply, Failure> {
        match self {
            Self::One(node) => node.link(path).call(call).await,
            // Boxed: its future is larger, and calls to a single server should not carry the size.
            Self::Cluster(cluster) => Box::pin(cluster.call(path, call)).await,
        }
    }

    /// Reads the clock of the server of `slot`, after it refused a request as late.
    pub(crate) async fn synchronise(&self, path: Path, slot: u16) {
        match self {
            Self::One(node) => node.link(path).synchronise().await,
            Self::Cluster(cluster) => {
                if let Some(node) = cluster.owner(slot) {
                    node.link(path).synchronise().await;
                }
            }
        }
    }

    /// Returns the clock of the server of `slot`.
    pub(crate) fn clock(&self, slot: u16) -> Arc<ServerClock> {
        match self {
            Self::One(node) => Arc::clone(node.clock()),
            Self::Cluster(cluster) => cluster.clock(slot),
        }
    }

    /// Returns the earliest of the servers' times, in µs, when the client's clock reads `client_micros`, as far as the
    /// servers' clocks are known.
    pub(crate) fn earliest(&self, client_micros: u64) -> u64 {
        match self {
            Self::One(node) => node.clock().at(client_micros),
            Self::Cluster(cluster) => cluster.earliest(client_micros),
        }
    }

    /// Returns whether a connection to any of the servers is up.
    pub(crate) fn is_up(&self) -> bool {
        match self {
            Self::One(node) => node.is_up(),
            Self::Cluster(cluster) => cluster.is_up(),
        }
    }

    /// Returns the link for subscriptions to the channels of `slot`; `None` if no node is known to own it.
    pub(crate) fn subscriber(&self, slot: u16) -> Option<Link> {
        match self {
            Self::One(node) => Some(node.subscriber().clone()),
            Self::Cluster(cluster) => Some(cluster.owner(slot)?.subscriber().clone()),
        }
    }

    /// Reports that a subscription was refused: in a cluster the slot may have another owner now.
    pub(crate) fn doubt(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.doubt();
        }
    }

    fn stir(&self) -> &Stir {
        match self {
            Self::One(node) => &node.dialer.stir,
            Self::Cluster(cluster) => cluster.stir(),
        }
    }

    /// Resolves the next time that a connection comes up or the cluster map changes.
    pub(crate) fn comes_up(&self) -> Notified<'_> {
        self.stir().comes_up()
    }

    /// Returns a receiver that fires on every change of a connection and of the cluster map.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.stir().changes()
    }

    /// Closes the connections at once.
    pub(crate) fn end(&self) {
        match self {
            Self::One(node) => node.end(),
            Self::Cluster(cluster) => cluster.end(),
        }
    }

    /// Returns the realm, which tells the keys of these servers from those of others. Two clients share a realm if they use
    /// the same seeds (a cluster), or have found the same server process and use the same database. If the process is not
    /// known, the realm is this client's alone.
    pub(crate) fn realm(&self, info: &ServerInfo, database: u32, client: &Uuid) -> Realm {
        Realm::new(match self {
            Self::Cluster(cluster) => cluster.name().to_owned(),
            Self::One(_) if info.run_id.is_empty() => client.to_string(),
            Self::One(_) => format!("{}/{database}", info.run_id),
        })
    }

    /// Returns the URL of the servers without credentials, for messages.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::One(node) => &node.address.server,
            Self::Cluster(cluster) => cluster.name(),
        }
    }
}

impl Node {
    fn subscriber_if_wanted(&self) {
        if self.dialer.config.wake == Wake::Messages {
            self.subscriber();
        }
    }
}

/// Returns `info` with placement by slot, which a user without permission for `INFO` cannot see.
pub(super) fn on_cluster(info: ServerInfo) -> ServerInfo {
    ServerInfo {
        placement: Placement::Slots,
        ..info
    }
}
