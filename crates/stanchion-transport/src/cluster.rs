//! A cluster: the map from slots to masters, and calls that follow slots when they move.
//!
//! # Life of the map
//! 1. **Connect**: the client queries all seeds at once. The first answer with slots becomes the map, and the client connects to
//!    each master in it.
//! 2. **Correct**: `MOVED` changes one slot at once, and the call is retried at the new node. `ASK` changes nothing: only this
//!    call goes to the other node.
//! 3. **Doubt**: `MOVED`, an outage or an unanswered call puts the map in doubt. No timer reloads the map, except while there is no map.
//! 4. **Reload**: one task ([`Cluster::serve`]) waits for doubt, queries a few masters in parallel, and adopts the best answer.
//!    If the answers bring nothing new, the next reload also queries nodes without a connection: masters that are down, replicas,
//!    and seeds. Reloads are at least 50 ms apart, and up to 250 ms while they bring nothing new.
//! 5. **Adopt**: the map with the higher epoch wins. Every failover raises the epoch, so a master that was cut off and
//!    replaced cannot bring its old map back. After 20 rejected maps in a row the client adopts an older map after all: the
//!    cluster was created again.
//! 6. **Retire**: a master without slots keeps its connections for one response timeout, for the calls in flight there. Its
//!    connection for messages is closed at once: the node may be a replica now, and would forward its new master's messages.
//!
//! Long: the slot map and the redirects that change it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::Notify;

use crate::error::more_telling;
use crate::error::{ConnectError, Outage, ServerRejection};
use crate::link::{Link, Peer, Plan, Stir};
use crate::node::Path;
use crate::node::{Address, Dialer, Node};
use crate::server_clock::ServerClock;
use crate::server_info::ServerInfo;
use crate::server_info::on_cluster;
use crate::slot::SLOTS;
use crate::url::{ClusterTarget, Place, Target};
use crate::{Call, Failure, Reply};

/// The number of times that one call is sent, including the first time, before the client stops following redirects.
// A migrating slot needs three: with an old map, then after `MOVED`, then after `ASK`. More redirects mean that the nodes
// disagree. Only time helps then, not another redirect.
const REDIRECTS: u32 = 5;

/// The number of nodes that are queried for the map at once.
const ASKED: usize = 4;

/// The pause between two reloads of the map: `SHORT`, doubled up to `LONG` after each reload that brought nothing new.
const SHORT: Duration = Duration::from_millis(50);
// An unplanned failover takes seconds (`cluster-node-timeout`), so more reloads would only return the same map from the same
// nodes.
const LONG: Duration = Duration::from_millis(250);

/// The longest time that a call waits for a change before it fails because its node is unreachable.
// As long as the longest pause between reloads, so that one new map may arrive during the wait.
const OUT_OF_REACH: Duration = Duration::from_millis(250);

/// The number of older maps that are rejected in a row. The next older map is adopted: the cluster was created again.
// About 5 s of reloads that all bring older maps. A partition in which only replaced masters can be reached must last that
// long before their map is adopted.
const STUBBORN: u32 = 20;

/// The nodes of a cluster. See the module.
pub(crate) struct Cluster {
    dialer: Arc<Dialer>,
    /// The URL without credentials.
    name: String,
    seeds: Vec<Place>,
    tls: bool,
    /// The current map. Every call reads it. Redirects and [`Cluster::adopt`] write it. The lock is held only to look up or
    /// change the map, which may create nodes, but never while a call waits for a reply.
    view: RwLock<View>,
    /// Wakes the task that reloads the map. Set by calls and subscriptions.
    doubt: Notify,
    /// The number of older maps that were rejected in a row. Changed under the write lock of `view`.
    outdated: AtomicU32,
}

/// A master and its address.
pub(crate) struct Member {
    place: Place,
    /// Unique among the members of all maps, even among members with the same address.
    number: u64,
    pub(crate) node: Node,
}

/// The current map of the cluster, and the connections that belong to it.
#[derive(Default)]
struct View {
    /// The epoch of the map adopted last. `MOVED` does not change it.
    epoch: u64,
    members: Vec<Arc<Member>>,
    /// The index into `members` of each slot's owner.
    owners: Vec<Option<u16>>,
    /// Nodes to query for the map when the masters do not answer.
    replicas: Vec<Place>,
}

/// The map as one node reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Layout {
    epoch: u64,
    /// The first slot, the last slot and the master of each range.
    ranges: Vec<(u16, u16, Place)>,
    replicas: Vec<Place>,
}

impl Cluster {
    /// Reads the map from the first seed that answers and connects to the masters. The first master to answer provides the
    /// [`ServerInfo`].
    pub(crate) async fn connect(
        dialer: Arc<Dialer>,
        to: &ClusterTarget,
    ) -> Result<(Arc<Self>, ServerInfo), ConnectError> {
        let cluster = Arc::new(Self::new(dialer, to));
        // Any first answer suffices: where it is old, its nodes redirect.
        cluster.adopt(cluster.visit_any(&cluster.seeds).await?);
        let members = cluster.view().members.clone();
        let mut connecting: FuturesUnordered<_> = members
            .iter()
            .map(|member| async {
                let link = member.node.link(Path::Direct);
                link.settled().await?;
                ServerInfo::ask(link).await
            })
            .collect();
        let mut failure = None;
        while let Some(answer) = connecting.next().await {
            match answer {
                Ok(info) => {
                    let dialer = &cluster.dialer;
                    // Started only now: the task holds the cluster, and a failed connect must not leave the cluster behind.
                    dialer.runner.serve(Arc::clone(&cluster).serve());
                    return Ok((Arc::clone(&cluster), on_cluster(info)));
                }
                Err(error) => failure = Some(more_telling(failure, error)),
            }
        }
        Err(failure.unwrap_or_else(|| cluster.unreachable("it has no master")))
    }

    /// Returns a cluster that reads its map in the background.
    pub(crate) fn open(dialer: Arc<Dialer>, to: &ClusterTarget) -> Arc<Self> {
        let cluster = Arc::new(Self::new(dialer, to));
        cluster.doubt();
        let runner = Arc::clone(&cluster.dialer.runner);
        runner.serve(Arc::clone(&cluster).serve());
        cluster
    }

    /// Returns a cluster without a map.
    fn new(dialer: Arc<Dialer>, to: &ClusterTarget) -> Self {
        Self {
            dialer,
            name: Target::Cluster(to.clone()).to_string(),
            seeds: to.seeds.clone(),
            tls: to.tls,
            view: RwLock::new(View {
                owners: vec![None; SLOTS.into()],
                ..View::default()
            }),
            doubt: Notify::new(),
            outdated: AtomicU32::new(0),
        }
    }

    /// Returns whether the clock of any node has been read.
    pub(crate) fn is_time_known(&self) -> bool {
        self.view().clocks().next().is_some()
    }

    fn unreachable(&self, detail: &str) -> ConnectError {
        ConnectError::Unreachable {
            server: self.name.clone(),
            detail: detail.into(),
        }
    }

    fn view(&self) -> std::sync::RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn stir(&self) -> &Stir {
        &self.dialer.stir
    }

    pub(crate) fn member(&self, slot: u16) -> Option<Arc<Member>> {
        let view = self.view();
        let number = view.owners.get(usize::from(slot)).copied()??;
        view.members.get(usize::from(number)).cloned()
    }

    /// Returns the node that owns `slot`, by the current map.
    pub(crate) fn owner(&self, slot: u16) -> Option<impl std::ops::Deref<Target = Node> + use<>> {
        self.member(slot).map(Owner)
    }

    /// Returns the number of the node that owns `slot`, or 0 if no owner is known.
    pub(crate) fn master(&self, slot: u16) -> u64 {
        self.member(slot).map_or(0, |member| member.number)
    }

    /// Returns whether a connection to the node that owns `slot` is up.
    pub(crate) fn reaches(&self, slot: u16) -> bool {
        self.member(slot).is_some_and(|member| member.node.is_up())
    }

    /// Returns the clock of the node that owns `slot`, or another node's clock while the owner's has not been read.
    pub(crate) fn clock(&self, slot: u16) -> Arc<ServerClock> {
        let owner = self.member(slot);
        let clock = owner.as_ref().map(|member| member.node.clock());
        // An unread clock counts from this machine's boot. With such a clock every request would be refused as late.
        if let Some(clock) = clock.filter(|clock| clock.is_known()) {
            return Arc::clone(clock);
        }
        let view = self.view();
        let other = view.clocks().next().or(clock);
        other.cloned().unwrap_or_default()
    }

    /// Returns the earliest of the nodes' times when the client's clock reads `client_micros`. Clocks that were never read are ignored.
    pub(crate) fn earliest(&self, client_micros: u64) -> u64 {
        let view = self.view();
        let read = view.clocks().map(|clock| clock.at(client_micros));
        read.min().unwrap_or(0)
    }

    /// Returns the masters of the current map that own slots.
    pub(crate) fn masters(&self) -> Vec<Arc<Member>> {
        let view = self.view();
        let mut owning = vec![false; view.members.len()];
        for number in view.owners.iter().flatten() {
            owning[usize::from(*number)] = true;
        }
        let masters = view.members.iter().zip(owning);
        masters
            .filter(|(_, owns)| *owns)
            .map(|(member, _)| Arc::clone(member))
            .collect()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.view().members.iter().any(|member| member.node.is_up())
    }

    /// Calls `see` with each master.
    pub(crate) fn each_node(&self, mut see: impl FnMut(&Node)) {
        for member in &self.view().members {
            see(&member.node);
        }
    }

    pub(crate) fn end(&self) {
        for member in &self.view().members {
            member.node.end();
        }
    }

    /// Reports that the map may be wrong. The background task reloads the map soon.
    pub(crate) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Runs a script on the node that owns the slot of its keys, and follows redirects. A node that redirects has not run
    /// the script.
    pub(crate) async fn call(&self, path: Path, call: &Call) -> Result<Reply, Failure> {
        let slot = call.slot();
        let Some(mut member) = self.member(slot) else {
            return self.out_of_reach(unserved(slot)).await;
        };
        let mut asking = false;
        for _ in 0..REDIRECTS {
            // The link may be new: wait until it is up, or has failed within the connect timeout.
            if member.node.link(path).settled().await.is_err() {
                self.doubt();
            }
            // Chosen again, because the other link may have come up first.
            let link = member.node.link(path);
            if !link.is_up() {
                return self.out_of_reach(link.outage()).await;
            }
            let answer = if asking {
                link.call_asking(call).await
            } else {
                link.call(call).await
            };
            let Err(failure) = answer else { return answer };
            match Redirect::read(&failure, &member.place.host) {
                Some(Redirect::Moved(place)) => {
                    asking = false;
                    match self.moved(slot, &place) {
                        Some(next) => member = next,
                        // The node cannot be used; `address` has logged the reason. The caller gets the redirect as the failure.
                        None => return Err(failure),
                    }
                }
                Some(Redirect::Ask(place)) => {
                    // The map does not change: the old node serves the keys that have not moved yet.
                    asking = true;
                    match self.member_at(&place) {
                        Some(next) => member = next,
                        None => return Err(failure),
                    }
                }
                None => {
                    if is_doubtful(&failure) {
                        self.doubt();
                    }
                    return Err(failure);
                }
            }
        }
        self.doubt();
        Err(Failure::NotNow(Outage::Refused {
            code: "MOVED".into(),
            detail: format!("slot {slot} was referred on {REDIRECTS} times"),
        }))
    }

    /// Fails a call that was not sent. Waits first, at most [`OUT_OF_REACH`], so that a caller that retries does not spin.
    async fn out_of_reach<T>(&self, outage: Outage) -> Result<T, Failure> {
        // Created before the doubt, so that no reload caused by it is missed: `notify_waiters` wakes only futures that exist already.
        let changes = self.stir().comes_up();
        self.doubt();
        tokio::select! {
            biased;
            () = changes => {}
            () = self.dialer.runner.sleep(OUT_OF_REACH) => {}
        }
        Err(Failure::NotNow(outage))
    }

    /// Changes the owner of `slot` to `place`, as a node reported by `MOVED`. Returns the new owner.
    fn moved(&self, slot: u16, place: &Place) -> Option<Arc<Member>> {
        let member = {
            let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
            let (number, member) = self.enter(&mut view, place)?;
            if let Some(owner) = view.owners.get_mut(usize::from(slot)) {
                // There is no epoch to compare. If the redirect was wrong, the next reload or the new node's own redirect
                // corrects the map.
                *owner = Some(number);
            }
            member
        };
        tracing::debug!(slot, %place, "a slot has moved");
        self.stir().changed();
        self.doubt();
        Some(member)
    }

    fn member_at(&self, place: &Place) -> Option<Arc<Member>> {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        self.enter(&mut view, place).map(|(_, member)| member)
    }

    /// Returns the member at `place` and its index; adds it if it is new.
    fn enter(&self, view: &mut View, place: &Place) -> Option<(u16, Arc<Member>)> {
        let known = view.members.iter().position(|m| m.place == *place);
        let number = known.unwrap_or(view.members.len());
        if known.is_none() {
            let address = self.address(place)?;
            let node = Node::new(&self.dialer, address);
            // A guess until the node's own clock is read: when all masters are replaced at once, no clock would be known.
            if let Some(other) = view.clocks().next() {
                node.clock().assume(other);
            }
            static NEXT: AtomicU64 = AtomicU64::new(1);
            view.members.push(Arc::new(Member {
                place: place.clone(),
                number: NEXT.fetch_add(1, Ordering::Relaxed),
                node,
            }));
        }
        Some((
            u16::try_from(number).ok()?,
            Arc::clone(&view.members[number]),
        ))
    }

    fn address(&self, place: &Place) -> Option<Address> {
        match self.dialer.routes.connector(&place.route(self.tls)) {
            Ok(connector) => Some(Address {
                server: place.to_string(),
                // The probe is the only way in which an idle client learns that its master was demoted.
                peer: Peer::Master,
                connector,
            }),
            Err(error) => {
                tracing::warn!(%place, %error, "a node of the cluster cannot be used");
                None
            }
        }
    }

    /// Reloads the map whenever it is in doubt, until the client is closed.
    async fn serve(self: Arc<Self>) {
        let mut pause = SHORT;
        let mut thorough = false;
        loop {
            tokio::select! {
                biased;
                () = self.dialer.closed.cancelled() => return,
                // After 2 s without doubt the trouble is over, and the next one starts with the short pause again.
                doubted = tokio::time::timeout(LONG * 8, self.doubt.notified()) => {
                    if doubted.is_err() {
                        (pause, thorough) = (SHORT, false);
                        // A client without a map (`Cluster::open`) reloads also while no call is made.
                        if !self.view().members.is_empty() {
                            continue;
                        }
                    }
                }
            }
            let changed = tokio::select! {
                biased;
                () = self.dialer.closed.cancelled() => return,
                changed = self.refresh(thorough) => changed,
            };
            pause = if changed {
                SHORT
            } else {
                (pause * 2).min(LONG)
            };
            thorough = !changed;
            tokio::select! {
                biased;
                () = self.dialer.closed.cancelled() => return,
                // Doubts during the pause store one permit, so they cause one reload together.
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Reloads the map and returns whether it has changed. If `thorough`, also queries nodes without a connection.
    async fn refresh(&self, thorough: bool) -> bool {
        let (mut up, mut others) = {
            let view = self.view();
            let (up, down): (Vec<_>, Vec<_>) =
                view.members.iter().cloned().partition(|m| m.node.is_up());
            let mut others: Vec<Place> = down.iter().map(|m| m.place.clone()).collect();
            others.extend(view.replicas.iter().chain(&self.seeds).cloned());
            (up, others)
        };
        // Chosen at random, so that nodes with an old map are not queried each time.
        fastrand::shuffle(&mut up);
        up.truncate(ASKED);
        let asked = up.iter().map(|member| async {
            let asking = layout(member.node.link(Path::Background), &member.place.host);
            // The link limits the time without any reply, but not the wait behind a queue of calls that are answered slowly.
            let limit = self.dialer.config.silence_limit();
            tokio::time::timeout(limit, asking).await.ok()?.ok()
        });
        let mut answers: Vec<Layout> = join_all(asked).await.into_iter().flatten().collect();
        if answers.is_empty() || thorough {
            others.sort_unstable();
            others.dedup();
            fastrand::shuffle(&mut others);
            others.truncate(ASKED);
            let visits = others.iter().map(|place| self.visit(place));
            answers.extend(join_all(visits).await.into_iter().flatten());
        }
        let best = answers.into_iter().max_by_key(|layout| layout.epoch);
        best.is_some_and(|layout| self.adopt(layout))
    }

    /// Returns the map of the first node in `places` that answers.
    async fn visit_any(&self, places: &[Place]) -> Result<Layout, ConnectError> {
        let mut visits: FuturesUnordered<_> =
            places.iter().map(|place| self.visit(place)).collect();
        let mut failure = None;
        while let Some(answer) = visits.next().await {
            match answer {
                Ok(layout) if !layout.ranges.is_empty() => return Ok(layout),
                Ok(_) => {
                    let error = self.unreachable("the cluster serves no slots yet");
                    failure = Some(more_telling(failure, error));
                }
                Err(error) => failure = Some(more_telling(failure, error)),
            }
        }
        Err(failure.unwrap_or_else(|| self.unreachable("no node is known")))
    }

    /// Queries a node on a temporary connection, which is closed afterwards.
    async fn visit(&self, place: &Place) -> Result<Layout, ConnectError> {
        let config = &self.dialer.config;
        let plan = Plan {
            server: place.to_string(),
            peer: Peer::Server,
            connector: self.dialer.routes.connector(&place.route(self.tls))?,
            login: self.dialer.login.clone(),
            clock: Arc::clone(&self.dialer.clock),
            server_clock: Arc::default(),
            stir: Arc::default(),
            health: Arc::default(),
            on_push: None,
            name: None,
        };
        let link = Link::new(config, plan);
        // Half of the connect timeout, because the masters must be reached after the seeds within the same timeout.
        let limit = config.connect_timeout / 2;
        let asking = async {
            let _end = link.connect_once().await?;
            layout(&link, &place.host).await
        };
        tokio::time::timeout(limit, asking)
            .await
            .unwrap_or_else(|_| {
                let limit = humantime::format_duration(limit);
                Err(ConnectError::Unreachable {
                    server: place.to_string(),
                    detail: format!("no answer within {limit}"),
                })
            })
    }

    /// Makes `layout` the current map unless it is older. Returns whether the owner of any slot has changed.
    fn adopt(&self, layout: Layout) -> bool {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        // A node that was reset or has not joined yet reports no slots. An equal epoch is accepted, because an operator can
        // move slots without raising the epoch.
        if layout.ranges.is_empty()
            || (layout.epoch < view.epoch
                && self.outdated.fetch_add(1, Ordering::Relaxed) < STUBBORN)
        {
            return false;
        }
        self.outdated.store(0, Ordering::Relaxed);
        let before = view.places();
        let former = view.members.clone();
        let mut owners = vec![None; SLOTS.into()];
        for (from, to, place) in &layout.ranges {
            let Some((number, _)) = self.enter(&mut view, place) else {
                continue;
            };
            if let Some(range) = owners.get_mut(usize::from(*from)..=usize::from(*to)) {
                range.fill(Some(number));
            }
        }
        view.owners = owners;
        view.forget_unused();
        view.epoch = layout.epoch;
        view.replicas = layout.replicas;
        let changed = view.places() != before;
        let gone: Vec<_> = former
            .into_iter()
            .filter(|member| !view.members.iter().any(|m| Arc::ptr_eq(m, member)))
            .collect();
        // The lock is released before the wakes below, because the woken tasks read the map.
        drop(view);
        if changed {
            tracing::debug!(epoch = layout.epoch, "the cluster has changed");
            // `came_up` and not only `changed`: calls without a reachable node wait for `came_up`.
            self.stir().came_up();
        }
        self.retire(gone);
        changed
    }

    /// Closes the connections to former masters: for messages at once, for calls after the time that calls in flight may take.
    fn retire(&self, members: Vec<Arc<Member>>) {
        if members.is_empty() {
            return;
        }
        for member in &members {
            member.node.end_subscriber();
        }
        let pause = self.dialer.config.response_timeout;
        self.dialer.runner.serve(async move {
            tokio::time::sleep(pause).await;
            for member in members {
                member.node.end();
            }
        });
    }
}

impl View {
    /// Returns the clocks that have been read.
    fn clocks(&self) -> impl Iterator<Item = &Arc<ServerClock>> {
        let clocks = self.members.iter().map(|member| member.node.clock());
        clocks.filter(|clock| clock.is_known())
    }

    /// Returns the owner of each slot.
    fn places(&self) -> Vec<Option<Place>> {
        let place = |number: &Option<u16>| {
            let member = self.members.get(usize::from((*number)?))?;
            Some(member.place.clone())
        };
        self.owners.iter().map(place).collect()
    }

    /// Removes the members that own no slot.
    fn forget_unused(&mut self) {
        let mut used = vec![false; self.members.len()];
        for owner in self.owners.iter().flatten() {
            used[usize::from(*owner)] = true;
        }
        let mut next = 0_u16;
        let renumbered: Vec<u16> = used
            .iter()
            .map(|used| {
                let number = next;
                next += u16::from(*used);
                number
            })
            .collect();
        for owner in self.owners.iter_mut().flatten() {
            *owner = renumbered[usize::from(*owner)];
        }
        let mut used = used.into_iter();
        self.members.retain(|_| used.next().unwrap_or(false));
    }
}

/// A member as its node.
struct Owner(Arc<Member>);

impl std::ops::Deref for Owner {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0.node
    }
}

fn unserved(slot: u16) -> Outage {
    Outage::Refused {
        code: "CLUSTERDOWN".into(),
        detail: format!("no node is known to serve slot {slot}"),
    }
}

/// Returns whether a failure may mean that the map is wrong. `TRYAGAIN`, from a slot that is being moved, does not mean that.
fn is_doubtful(failure: &Failure) -> bool {
    match failure {
        // The connection ended or no reply arrived: perhaps a failover.
        Failure::Unanswered(_) => true,
        Failure::NotNow(Outage::Refused { code, .. }) => code != "TRYAGAIN",
        Failure::NotNow(_) => true,
        Failure::Rejected(_) => false,
    }
}

/// A redirect to another node. The node that sent it has not run the command.
#[derive(Debug, PartialEq, Eq)]
enum Redirect {
    /// For all later calls.
    Moved(Place),
    /// For this call only.
    Ask(Place),
}

impl Redirect {
    /// Reads `MOVED 12182 host:port` or `ASK …`. An empty host means the host that sent the redirect.
    fn read(failure: &Failure, asked: &str) -> Option<Self> {
        let Failure::Rejected(ServerRejection::Cluster { detail }) = failure else {
            return None;
        };
        let mut words = detail.split_ascii_whitespace();
        let (kind, _slot, to) = (words.next()?, words.next()?, words.next()?);
        let mut place = Place::of_node(to)?;
        if place.host.is_empty() {
            asked.clone_into(&mut place.host);
        }
        match kind {
            "MOVED" => Some(Self::Moved(place)),
            "ASK" => Some(Self::Ask(place)),
            _ => None,
        }
    }
}

/// Queries one node for its map of the cluster.
async fn layout(link: &Link, host: &str) -> Result<Layout, ConnectError> {
    let failed = |failure| match failure {
        Failure::Rejected(rejection) => ConnectError::Rejected {
            server: link.server().into(),
            rejection,
        },
        Failure::NotNow(outage) | Failure::Unanswered(outage) => ConnectError::Unreachable {
            server: link.server().into(),
            detail: outage.to_string(),
        },
    };
    let slots = link.command(&["CLUSTER", "SLOTS"]).await.map_err(failed)?;
    // Without permission for CLUSTER INFO no map has an epoch (0), so all count as equally new.
    let info = link.command(&["CLUSTER", "INFO"]).await.ok();
    let mut lines = info.iter().filter_map(Reply::as_text).flat_map(str::lines);
    let epoch = lines.find_map(|line| line.trim_end().strip_prefix("cluster_current_epoch:"));
    let mut layout = Layout {
        epoch: epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
        ..Layout::default()
    };
    for range in slots.as_array().unwrap_or_default() {
        layout.read(range, host);
    }
    Ok(layout)
}

impl Layout {
    /// Adds a range `[from, to, master, replica…]`, where a node is `[host, port, …]`. Skips nodes with an unknown host.
    fn read(&mut self, range: &Reply, asked: &str) {
        let place = |node: &Reply| {
            let node = node.as_array()?;
            let host = match node.first()? {
                // The node is configured to report no address (`cluster-preferred-endpoint-type unknown-endpoint`): the
                // client uses the address of the query.
                Reply::Nil => asked,
                host => match host.as_text()? {
                    // A node that has not learnt its own address yet.
                    "" => asked,
                    // The cluster announces host names, and this node has none.
                    "?" => return None,
                    host => host,
                },
            };
            Some(Place {
                host: host.to_owned(),
                port: u16::try_from(node.get(1)?.as_int()?).ok()?,
            })
        };
        let Some([from, to, master, replicas @ ..]) = range.as_array() else {
            return;
        };
        let slot = |n: &Reply| u16::try_from(n.as_int()?).ok();
        self.replicas.extend(replicas.iter().filter_map(place));
        if let (Some(from), Some(to), Some(master)) = (slot(from), slot(to), place(master)) {
            self.ranges.push((from, to, master));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, port: u16) -> Place {
        Place {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn references_are_read() {
        let read = |detail: &str| {
            let failure = Failure::Rejected(ServerRejection::Cluster {
                detail: detail.into(),
            });
            Redirect::read(&failure, "asked")
        };
        assert_eq!(
            read("MOVED 12182 10.0.0.1:7000"),
            Some(Redirect::Moved(place("10.0.0.1", 7000)))
        );
        assert_eq!(
            read("ASK 1 ::1:7000"),
            Some(Redirect::Ask(place("::1", 7000)))
        );
        assert_eq!(
            read("MOVED 1 :7000"),
            Some(Redirect::Moved(place("asked", 7000)))
        );
        for other in ["CROSSSLOT Keys in request", "MOVED 1 x", "MOVED", ""] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn maps_are_read() {
        let node = |host: Reply, port| Reply::Array(vec![host, Reply::Int(port), Reply::Nil]);
        let text = |text: &str| Reply::Bulk(text.into());
        let range = |from, to, nodes: Vec<Reply>| {
            Reply::Array([vec![Reply::Int(from), Reply::Int(to)], nodes].concat())
        };
        let mut layout = Layout::default();
        layout.read(
            &range(0, 99, vec![node(text("a"), 1), node(text("b"), 2)]),
            "x",
        );
        layout.read(&range(100, 16_383, vec![node(Reply::Nil, 3)]), "x");
        layout.read(&range(0, 1, vec![node(text("?"), 3)]), "x");
        layout.read(&range(-1, 70_000, vec![node(text("a"), 1)]), "x");
        layout.read(&Reply::Nil, "x");
        assert_eq!(
            layout.ranges,
            [(0, 99, place("a", 1)), (100, 16_383, place("x", 3))]
        );
        assert_eq!(layout.replicas, [place("b", 2)]);
    }
}
