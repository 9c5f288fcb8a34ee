//! The lock.
//!
//! Long: the public verbs of one type, each with its contract and an example.

use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder as _;
use stanchion_client::primitive::{Hold, Part, ReadOptions as _, bounded, sleep};
use stanchion_client::{
    Acquire, AcquireOptions, Acquiring, Client, Guard, Lease, Moment, Name, Outage,
};

use crate::error::{NodeOutcome, NodeReport, RedLockError};
use crate::guard::RedGuard;
use crate::nodes::{InvalidNodes, parts, twins};
use crate::round::{Ask, Round, ask_all};

/// The default of [`RedLock::node_timeout`].
const NODE_TIMEOUT: Duration = Duration::from_millis(100);

/// The time that the one round of a call with a zero timeout may take.
const FIRST_ASK: Duration = Duration::from_millis(45);

/// The shortest and the longest pause between rounds. The pause doubles, with jitter, so that two clients that split the nodes do not
/// meet again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// A lock on a quorum of independent servers, shared by its name. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * P1 for a quorum: at most one owner holds a majority of the nodes, counting each hold up to its
///   [`valid_until`](RedGuard::valid_until), while no node loses data within a lease, and clocks run at the same rate within
///   max(2 ms, lease/100).
/// * It survives the loss of a minority of nodes, also of silent ones: they delay an acquire by as much time as the
///   others took, and by at most the node timeout when the others cannot decide without them.
/// * P3: an acquire that returns no guard is released on all nodes, also on those that did not answer.
/// * P8: errors have the outcome at each node.
/// * Every acquire is a new owner, and there is no re-entry. There is no order between waiters, and no fencing token.
///
/// # Events
/// There is no `events` method: what one node reports says nothing about the quorum, and the nodes have no common order of events. Read the
/// error of an acquire, which has the outcome at each node, or listen to a `Lock` of this name on one node.
///
/// # The algorithm
/// Redlock, <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>: send a request to all nodes
/// at once; the lock is held when more than half granted and the lease, counted from before the request was sent and
/// less the drift, has not ended; otherwise release all. There are two differences. The watchdog renews on each node,
/// as long as a quorum succeeds. The algorithm retries at random times; here a waiter first waits for a release on one
/// node, the same for all waiters, and then tries the others: so waiters queue up instead of splitting the nodes.
///
/// # On the wire
/// No format of its own: on every node a `Lock` of this name without fencing. A `Lock` of the name on one node excludes it there.
#[derive(Clone, Debug)]
pub struct RedLock {
    nodes: Arc<[Part]>,
    lease: Duration,
    node_timeout: Duration,
}

impl RedLock {
    /// Returns a handle to the lock called `name` on the servers of `clients`: an odd number, at least 3, each independent of
    /// the others (no replicas of one another, no two of one cluster). Sends nothing.
    ///
    /// ```
    /// # use stanchion_redlock::{Client, InvalidNodes, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-new-{node}")).await?);
    /// # }
    /// let compaction = RedLock::new(&nodes, "compaction")?; // three independent servers
    /// assert_eq!(compaction.quorum(), 2);
    /// let pair = RedLock::new(&nodes[..2], "compaction");
    /// assert_eq!(pair.unwrap_err(), InvalidNodes::TooFew { nodes: 2 });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidNodes`]. Servers are identified by their `run_id`, which needs the right to `INFO`. Two clients of one
    /// server that were not connected yet ([`Client::connect_lazy`]) are refused by the acquires after they are connected.
    pub fn new<'a>(
        clients: impl IntoIterator<Item = &'a Client>,
        name: impl AsRef<[u8]>,
    ) -> Result<Self, InvalidNodes> {
        let clients: Vec<&Client> = clients.into_iter().collect();
        Ok(Self {
            nodes: parts(&clients, name.as_ref())?,
            lease: Lease::default().length(),
            node_timeout: NODE_TIMEOUT,
        })
    }

    /// Returns the same lock with another lease for acquires that set none: 10 ms to 30 days, checked by the acquires. Default 30 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-with-lease-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let compaction = compaction.lease(Duration::from_secs(10));
    /// let guard = compaction.acquire().await?;
    /// assert!(guard.remaining() <= Duration::from_secs(10)); // free that long after a crash
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.lease = lease.into();
        self
    }

    /// Sets the longest wait for a node's answer. Default 100 ms. The wait should be a few round trips to the farthest node, and small
    /// against the lease. 10 ms to 1 h, the bounds of a client's timeouts: otherwise the acquires are rejected
    /// ([`RedLockError::InvalidOption`]).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-with-node-timeout-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let compaction = compaction.node_timeout(Duration::from_millis(400)); // far apart
    /// let guard = compaction.acquire().await?;
    /// assert!(guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.node_timeout = node_timeout;
        self
    }

    /// Returns the name, with the first client's key prefix.
    ///
    /// ```
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-name-{node}")).await?);
    /// # }
    /// let compaction = RedLock::new(&nodes, "compaction")?;
    /// println!("waiting for {}", compaction.name());
    /// assert_eq!(compaction.name().as_bytes(), b"compaction");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &Name {
        self.nodes[0].sync.name()
    }

    /// Returns the number of nodes.
    ///
    /// ```
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-nodes-{node}")).await?);
    /// # }
    /// let compaction = RedLock::new(&nodes, "compaction")?;
    /// println!("{} of {} servers must grant", compaction.quorum(), compaction.nodes());
    /// assert_eq!(compaction.nodes(), nodes.len());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of nodes that must grant: more than half.
    ///
    /// ```
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-quorum-{node}")).await?);
    /// # }
    /// let compaction = RedLock::new(&nodes, "compaction")?; // three servers
    /// assert_eq!(compaction.quorum(), 2);
    /// assert_eq!(compaction.nodes() - compaction.quorum(), 1); // so many servers may be down
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Waits until a quorum is acquired.
    ///
    /// ```
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-acquire-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// let next = tokio::spawn(compaction.acquire()); // waits
    /// guard.run(async { /* compact */ }).await?; // dropped in time if the quorum is lost
    /// guard.release().await?;
    /// assert!(next.await??.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RedLockError::Rejected`]: the request cannot succeed as it is. [`RedLockError::NoQuorum`]: too few nodes have answered
    /// for the clients' outage tolerance (30 s; the longest of theirs). Both have the outcome at each node.
    ///
    /// # Cancel safety
    /// Safe at every await point: requests already sent are awaited in the background, and their grants are released, on every
    /// node (P3).
    ///
    /// # On the wire
    /// One script on each node, at once, when the lock is free. Otherwise a release of each grant, and the wait of a
    /// `Lock` on one node; each waiter sends new requests to all nodes at least once in every poll interval (5 s).
    pub fn acquire(&self) -> impl Future<Output = Result<RedGuard, RedLockError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new())
    }

    /// Waits until a quorum is acquired, for at most `timeout`. Zero sends one round of requests.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{Client, RedLock, RedLockError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-acquire-timeout-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// let late = compaction.acquire_timeout(Duration::from_millis(50)).await;
    /// assert!(matches!(late, Err(RedLockError::TimedOut { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RedLockError::TimedOut`] or [`RedLockError::NoQuorum`], at most 50 ms after the deadline on any network (P9);
    /// otherwise as [`RedLock::acquire`].
    ///
    /// # Cancel safety
    /// As [`RedLock::acquire`].
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<RedGuard, RedLockError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new().timeout(timeout))
    }

    /// Waits until a quorum is acquired, with `options`; lease, renewal and `max_hold` apply on every node.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{AcquireOptions, Client, LostReason, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-acquire-with-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(50));
    /// let guard = compaction.acquire_with(options).await?;
    /// assert_eq!(guard.lost().await, LostReason::MaxHold); // nobody renews it any longer
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RedLock::acquire`] and [`RedLock::acquire_timeout`]; [`RedLockError::InvalidOption`] for an owner, for `on_queued`, and for
    /// [`OnDeadlock::Fail`](stanchion_client::OnDeadlock::Fail).
    ///
    /// # Cancel safety
    /// As [`RedLock::acquire`].
    pub fn acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<RedGuard, RedLockError>> + Send + 'static {
        let this = self.clone();
        async move {
            this.check(&options)?;
            let started = this.now();
            let deadline = options.patience().map(|patience| started + patience);
            let mut pauses = backon::ExponentialBuilder::default()
                .with_min_delay(PAUSE.0)
                .with_max_delay(PAUSE.1)
                .with_jitter()
                .without_max_times()
                .build();
            let mut out_of_reach_since: Option<Moment> = None;
            let mut gate = None;
            // The loop over rounds belongs to this algorithm: no server knows when a quorum is free, and the core
            // waits on one server only. Each wait in it is the core's, or the pause between rounds.
            loop {
                let ask = if gate.is_none() {
                    Ask::Once
                } else {
                    Ask::Insisting
                };
                let round = this.round(gate.take(), ask, &options, deadline).await;
                let now = this.now();
                let over = deadline.is_some_and(|deadline| now >= deadline);
                let waited = now.since(started);
                match round {
                    Round::Quorum(holds) => return Ok(RedGuard::of(holds)),
                    Round::Rejected(nodes) => return Err(this.rejected(nodes)),
                    Round::Contended(nodes) if over => {
                        let name = this.name().clone();
                        return Err(RedLockError::TimedOut {
                            name,
                            waited,
                            nodes,
                        });
                    }
                    Round::Contended(nodes) => {
                        out_of_reach_since = None;
                        if ask == Ask::Once {
                            gate = this.wait_at_gate(&nodes, &options, deadline).await;
                        }
                    }
                    Round::Unavailable(nodes) => {
                        let since = *out_of_reach_since.get_or_insert(now);
                        if over || now.since(since) >= this.outage_tolerance() {
                            return Err(this.no_quorum(nodes));
                        }
                    }
                }
                if gate.is_none() {
                    let pause = pauses.next().unwrap_or(PAUSE.1);
                    let left = deadline.map_or(pause, |deadline| deadline.since(this.now()));
                    sleep(pause.min(left)).await;
                }
            }
        }
    }

    /// Sends one request to each node; returns `Ok(None)` when other owners hold too many of them for a quorum.
    ///
    /// ```
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-try-acquire-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.try_acquire().await?;
    /// assert!(guard.is_some());
    /// assert!(compaction.try_acquire().await?.is_none()); // returns at once
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RedLockError`], but never for contention. Ends within the node timeout.
    ///
    /// # Cancel safety
    /// As [`RedLock::acquire`].
    ///
    /// # On the wire
    /// One script on each node, at once, and a release of each grant if there is no quorum.
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<RedGuard>, RedLockError>> + Send + 'static {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// Sends one request to each node, with `options`. Their timeout bounds the wait for the nodes' answers if it is
    /// shorter than the node timeout.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{AcquireOptions, Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlock-try-acquire-with-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let options = AcquireOptions::new().lease(Duration::from_secs(5));
    /// if let Some(guard) = compaction.try_acquire_with(options).await? {
    ///     assert!(guard.remaining() <= Duration::from_secs(5));
    ///     guard.release().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RedLock::try_acquire`]; [`RedLockError::InvalidOption`] for an owner.
    ///
    /// # Cancel safety
    /// As [`RedLock::acquire`].
    pub fn try_acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<RedGuard>, RedLockError>> + Send + 'static {
        let this = self.clone();
        async move {
            this.check(&options)?;
            let deadline = options.patience().map(|patience| this.now() + patience);
            match this.round(None, Ask::Once, &options, deadline).await {
                Round::Quorum(holds) => Ok(Some(RedGuard::of(holds))),
                Round::Contended(_) => Ok(None),
                Round::Unavailable(nodes) => Err(this.no_quorum(nodes)),
                Round::Rejected(nodes) => Err(this.rejected(nodes)),
            }
        }
    }

    async fn round(
        &self,
        kept: Option<(usize, Hold)>,
        ask: Ask,
        options: &AcquireOptions,
        deadline: Option<Moment>,
    ) -> Round {
        let now = self.now();
        let left = deadline.map_or(self.node_timeout, |deadline| {
            deadline.since(now).max(FIRST_ASK)
        });
        let budget = left.min(self.node_timeout);
        ask_all(&self.nodes, kept, ask, options, self.lease, budget).await
    }

    /// Waits until one node grants, the same for all waiters that see the same nodes. The waiter with the grant
    /// continues with the other nodes; the other waiters hold nothing. `None` when the wait failed or timed out.
    async fn wait_at_gate(
        &self,
        nodes: &[NodeReport],
        options: &AcquireOptions,
        deadline: Option<Moment>,
    ) -> Option<(usize, Hold)> {
        let is_busy = |report: &&NodeReport| report.outcome == NodeOutcome::Busy;
        let has_holder = nodes.iter().filter(is_busy).count() > self.nodes() - self.quorum();
        let gate = nodes
            .iter()
            .filter(|report| match report.outcome {
                NodeOutcome::Busy => true,
                // No owner has a quorum: waiters have split the nodes, and each finds the others' nodes busy.
                NodeOutcome::Granted => !has_holder,
                _ => false,
            })
            .map(|report| report.node)
            .min_by_key(|node| &self.nodes[*node].handle.server().run_id)?;
        let part = &self.nodes[gate];
        // Like every wait, it ends with a poll, here of all nodes: the holder of this one may have lost the others.
        let poll = part.handle.poll_interval();
        let left = deadline.map_or(poll, |deadline| deadline.since(self.now()));
        let options = options.clone().timeout(left.min(poll));
        let hold = part.handle.acquire(&part.sync, &options, self.lease).await;
        hold.ok().map(|hold| (gate, hold))
    }

    fn check(&self, options: &AcquireOptions) -> Result<(), RedLockError> {
        if options.has_owner() {
            return Err(RedLockError::InvalidOption {
                name: self.name().clone(),
                rule: "owner: a RedLock is not re-entrant".into(),
            });
        }
        // Servers that were not connected when this lock was created are known by now, or they grant nothing.
        let clients = self.nodes.iter().map(|part| &part.handle);
        if let Some((first, second)) = twins(clients) {
            return Err(RedLockError::InvalidOption {
                name: self.name().clone(),
                rule: InvalidNodes::SameServer { first, second }.to_string(),
            });
        }
        if let Some(option) = options.of_a_wait() {
            return Err(RedLockError::InvalidOption {
                name: self.name().clone(),
                rule: format!(
                    "{option} is for locks on one server; a RedLock has no one queue and no one holder"
                ),
            });
        }
        let bounds = Duration::from_millis(10)..=Duration::from_secs(3_600);
        let checked = bounded("node_timeout", self.node_timeout, bounds, "10ms to 1h");
        if let Err(invalid) = checked {
            return Err(RedLockError::InvalidOption {
                name: self.name().clone(),
                rule: invalid.to_string(),
            });
        }
        Ok(())
    }

    /// The longest tolerance of its clients: while one of them keeps trying, a quorum may come back for all of them.
    fn outage_tolerance(&self) -> Duration {
        let each = self.nodes.iter().map(|part| part.handle.outage_tolerance());
        each.max().unwrap_or_default()
    }

    fn now(&self) -> Moment {
        self.nodes[0].handle.now()
    }

    fn no_quorum(&self, nodes: Vec<NodeReport>) -> RedLockError {
        RedLockError::NoQuorum {
            name: self.name().clone(),
            needed: self.quorum(),
            nodes,
        }
    }

    fn rejected(&self, nodes: Vec<NodeReport>) -> RedLockError {
        RedLockError::Rejected {
            name: self.name().clone(),
            nodes,
        }
    }
}

impl Acquire for RedLock {
    fn name(&self) -> Name {
        Self::name(self).clone()
    }

    fn outage(&self) -> Option<Outage> {
        let spare = self.nodes() - self.quorum();
        self.nodes.iter().filter_map(Part::outage).nth(spare)
    }

    fn acquire_with(&self, options: AcquireOptions) -> Acquiring<Guard> {
        let acquiring = Self::acquire_with(self, options);
        Box::pin(async move { Ok(acquiring.await?.into()) })
    }

    fn try_acquire_with(&self, options: AcquireOptions) -> Acquiring<Option<Guard>> {
        let asking = Self::try_acquire_with(self, options);
        Box::pin(async move { Ok(asking.await?.map(Guard::from)) })
    }
}
