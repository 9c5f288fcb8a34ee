//! One server, and the connections to it.
//!
//! A [`Node`] is one server with up to three links, so that one blocked runtime or a flood of messages does not delay the
//! other links:
//!
//! | link | runs on | carries |
//! |---|---|---|
//! | `direct` | the caller's runtime | acquires and other calls of the user's tasks |
//! | `background` | the client's own thread | renewals, releases of dropped guards |
//! | `subscriber` | the client's own thread | subscriptions, over RESP3 |
//!
//! With `Background::CurrentRuntime` all links run on the caller's runtime, and `direct` and `background` are the same link.
//! A call uses the other of the two if its own link is down. A call on a different runtime than the one that connected uses
//! only `background`, because the runtime of `direct` may not be running.

use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::Connector;
use crate::clock::Clock;
use crate::config::{Background, ClientConfig, Wake};
use crate::error::Outage;
use crate::link::health::Health;
use crate::link::{Link, OnPush, Peer, Plan, Stir};
use crate::runner::Runner;
use crate::server_clock::ServerClock;
use crate::server_info::Facts;
use crate::stream::Routes;
use crate::url::Login;

/// The connection that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The link on the runtime that connected, which is the fastest from there. On any other runtime the same as `Background`.
    Direct,
    /// The link on the background thread. A stalled or ended runtime of the caller cannot stop it.
    Background,
}

/// The parts that all connections of a client share.
pub(crate) struct Dialer {
    pub(crate) config: ClientConfig,
    /// The name of the caller's own connections. The other connections add a suffix.
    pub(crate) name: String,
    pub(crate) routes: Arc<Routes>,
    pub(crate) login: Login,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runner: Arc<Runner>,
    /// The runtime of the caller's own connections.
    pub(crate) user: Handle,
    pub(crate) on_push: OnPush,
    /// Cancelled when the client is closed or dropped. Ends all links.
    pub(crate) closed: CancellationToken,
    /// Notified by the supervisors of all links and by the cluster. Calls that retry wait for it.
    pub(crate) stir: Arc<Stir>,
    /// Read when the client connects, or by the first link that comes up.
    pub(crate) facts: Arc<Facts>,
}

impl Dialer {
    /// Returns a link and starts its supervisor; it ends with `closed`.
    pub(crate) fn link(&self, plan: Plan, home: &Handle, closed: &CancellationToken) -> Link {
        let link = Link::of_node(&self.config, plan, Arc::clone(&self.facts));
        let supervision = link.clone().supervise(home.clone(), closed.clone());
        self.runner.serve(supervision);
        link
    }
}

/// The address of one server, and the connector to it.
pub(crate) struct Address {
    /// The server without credentials, for messages.
    pub(crate) server: String,
    pub(crate) peer: Peer,
    pub(crate) connector: Arc<dyn Connector>,
}

/// One server and the links to it. Dropping the node closes the links.
pub(crate) struct Node {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) address: Address,
    pub(crate) direct: Link,
    background: Link,
    /// Created for the first subscription, or at the connect to a single server if waiters are woken by messages.
    subscriber: OnceLock<Link>,
    /// Written by the supervisors of all three links.
    clock: Arc<ServerClock>,
    /// Written by the supervisors of all three links.
    health: Arc<Health>,
    /// Ends this node's links. A child of [`Dialer::closed`].
    closed: CancellationToken,
    /// Ends `subscriber` alone. A child of `closed`.
    deaf: CancellationToken,
}

impl Node {
    pub(crate) fn new(dialer: &Arc<Dialer>, address: Address) -> Self {
        let clock = Arc::new(ServerClock::default());
        // A child token, so that a master that leaves the cluster can be closed alone.
        let closed = dialer.closed.child_token();
        // One clock and one record of outages for all links, because they lead to one server.
        let health = Arc::default();
        let plan = |role| plan(dialer, &address, &clock, &health, None, role);
        let (direct, background) = match dialer.config.background {
            Background::OwnThread => {
                let background = dialer.link(plan(":bg"), dialer.runner.handle(), &closed);
                (dialer.link(plan(""), &dialer.user, &closed), background)
            }
            // With one runtime no link can stall alone, so a second connection would be useless.
            Background::CurrentRuntime => {
                let only = dialer.link(plan(""), dialer.runner.handle(), &closed);
                (only.clone(), only)
            }
        };
        Self {
            dialer: Arc::clone(dialer),
            direct,
            background,
            subscriber: OnceLock::new(),
            clock,
            health,
            deaf: closed.child_token(),
            closed,
            address,
        }
    }

    /// Returns the link for `path`, or the other link if only that one is up. On a different runtime than the one that
    /// connected, returns `background`.
    pub(crate) fn link(&self, path: Path) -> &Link {
        // A connection makes progress only while its runtime runs. Another runtime cannot detect this, and the link counts
        // as up while its runtime is stopped: not even a closed connection is noticed.
        let at_home = Handle::try_current().is_ok_and(|here| here.id() == self.dialer.user.id());
        if !at_home {
            return &self.background;
        }
        let (first, second) = match path {
            Path::Direct => (&self.direct, &self.background),
            Path::Background => (&self.background, &self.direct),
        };
        // One link may be down alone, and reconnect later than the other. If both are down, the call returns the error of
        // the first link, and a cluster waits for the first attempt of that link.
        if !first.is_up() && second.is_up() {
            second
        } else {
            first
        }
    }

    /// Returns the link for messages, and creates it at the first use.
    pub(crate) fn subscriber(&self) -> &Link {
        self.subscriber.get_or_init(|| {
            // A connection without commands: the redis crate takes an unrequested `sunsubscribe` for the reply to the oldest
            // request, so a command would get the reply of another one (see `Stops`).
            let on_push = Arc::clone(&self.dialer.on_push);
            let dialer = &self.dialer;
            let plan = plan(
                dialer,
                &self.address,
                &self.clock,
                &self.health,
                Some(on_push),
                ":sub",
            );
            // Runs on the runner: messages wake the waiters of all runtimes, so none of these runtimes may delay them.
            dialer.link(plan, dialer.runner.handle(), &self.deaf)
        })
    }

    /// Closes the link for messages at once. The link does not reconnect.
    pub(crate) fn end_subscriber(&self) {
        self.deaf.cancel();
        if let Some(subscriber) = self.subscriber.get() {
            subscriber.end();
        }
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        let both = [&self.direct, &self.background];
        both.into_iter().chain(self.subscriber.get())
    }

    /// Returns the use of each link, and whether the link has a connection.
    pub(crate) fn connected(&self) -> [(&'static str, bool); 3] {
        let subscriber = self.subscriber.get();
        [
            ("direct", self.direct.is_up()),
            ("background", self.background.is_up()),
            ("subscriber", subscriber.is_some_and(Link::is_up)),
        ]
    }

    pub(crate) const fn clock(&self) -> &Arc<ServerClock> {
        &self.clock
    }

    /// Returns whether a call from the current runtime would find a connection now.
    pub(crate) fn is_up(&self) -> bool {
        self.link(Path::Direct).is_up()
    }

    /// Returns the reason why a call from the current runtime would find no connection.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let link = self.link(Path::Direct);
        (!link.is_up() && link.is_down()).then(|| link.outage())
    }

    /// Closes `direct` and `background` at once, because the client's thread may end before their supervisors see `closed`.
    pub(crate) fn end(&self) {
        self.closed.cancel();
        // `closed` ends `subscriber`: the runner drives that link, so the link ends with the runner at the latest.
        self.direct.end();
        self.background.end();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Supervisors hold links, not nodes. A node is therefore dropped after a failed connect, and after its last pause
        // (`Cluster::retire`).
        self.closed.cancel();
    }
}

fn plan(
    dialer: &Dialer,
    address: &Address,
    clock: &Arc<ServerClock>,
    health: &Arc<Health>,
    on_push: Option<OnPush>,
    role: &str,
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
        name: Some(format!("{}{role}", dialer.name)),
    }
}

impl Node {
    pub(crate) fn subscriber_if_wanted(&self) {
        if self.dialer.config.wake == Wake::Messages {
            self.subscriber();
        }
    }
}
