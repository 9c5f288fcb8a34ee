//! One round: a request to all nodes at once.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use stanchion_client::primitive::{Guarded as _, Hold, HoldSet, Part, timeout};
use stanchion_client::{AcquireError, AcquireOptions, Moment};

use crate::error::{NodeOutcome, NodeReport};

/// The least time that the other nodes get after a round is decided; they get as long as the decision took. More
/// holds than a quorum survive the loss of a node, and a waiter needs to know which nodes are held. But a silent node
/// must not cost the node timeout each time.
const LEAST_GRACE: Duration = Duration::from_millis(5);

/// The time after the budget in which a node's own error may still arrive.
const OWN_WORDS: Duration = Duration::from_millis(2);

/// The outcome of a round.
#[derive(Debug)]
pub(crate) enum Round {
    /// A quorum, with time left.
    Quorum(HoldSet),
    /// Enough nodes answered, and other owners held too many.
    Contended(Vec<NodeReport>),
    /// Too few nodes answered.
    Unavailable(Vec<NodeReport>),
    /// Too many nodes refused for a quorum.
    Rejected(Vec<NodeReport>),
}

/// The kind of a request to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Once.
    Once,
    /// With a wait as long as the budget: the node's holder is about to release.
    Insisting,
}

/// Sends a request to all `nodes` within `budget`. `kept` is a hold from an earlier request, with its node.
pub(crate) async fn ask_all(
    nodes: &[Part],
    kept: Option<(usize, Hold)>,
    ask: Ask,
    options: &AcquireOptions,
    lease: Duration,
    budget: Duration,
) -> Round {
    let quorum = nodes.len() / 2 + 1;
    let clock = &nodes[0].handle;
    let started = clock.now();
    let mut tally = Tally::new(nodes.len());
    let kept_node = kept.map(|(node, hold)| {
        tally.granted(node, hold);
        node
    });
    let options = &options.clone().timeout(budget);
    let mut asking: FuturesUnordered<_> = nodes
        .iter()
        .enumerate()
        .filter(|(node, _)| Some(*node) != kept_node)
        .map(|(node, part)| async move { (node, ask_one(part, ask, options, lease).await) })
        .collect();
    let mut until = started + budget + OWN_WORDS;
    while !tally.is_complete(quorum) {
        let left = until.since(clock.now());
        let Some(Some((node, answer))) = timeout(left, asking.next()).await else {
            break;
        };
        tally.heard(node, answer);
        if tally.is_decided(quorum) {
            until = until.min(with_grace(started, clock.now()));
        }
    }
    // Requests under way are awaited in the background, and late grants are released there (P3).
    drop(asking);
    tally.close(quorum)
}

fn with_grace(started: Moment, now: Moment) -> Moment {
    now + now.since(started).max(LEAST_GRACE)
}

async fn ask_one(
    part: &Part,
    ask: Ask,
    options: &AcquireOptions,
    lease: Duration,
) -> Result<Option<Hold>, AcquireError> {
    match ask {
        Ask::Once => part.handle.try_acquire(&part.sync, options, lease).await,
        Ask::Insisting => match part.handle.acquire(&part.sync, options, lease).await {
            Ok(hold) => Ok(Some(hold)),
            Err(AcquireError::TimedOut { free_by: None, .. }) => Ok(None),
            Err(error) => Err(error),
        },
    }
}

/// The answers so far.
struct Tally {
    outcomes: Vec<NodeOutcome>,
    holds: Vec<Hold>,
}

impl Tally {
    fn new(nodes: usize) -> Self {
        Self {
            outcomes: vec![NodeOutcome::Unanswered; nodes],
            holds: Vec::with_capacity(nodes),
        }
    }

    fn granted(&mut self, node: usize, hold: Hold) {
        self.outcomes[node] = NodeOutcome::Granted;
        self.holds.push(hold);
    }

    fn heard(&mut self, node: usize, answer: Result<Option<Hold>, AcquireError>) {
        match answer {
            Ok(Some(hold)) => self.granted(node, hold),
            Ok(None) => self.outcomes[node] = NodeOutcome::Busy,
            Err(error) => self.outcomes[node] = NodeOutcome::Failed(error),
        }
    }

    fn count(&self, fits: impl Fn(&NodeOutcome) -> bool) -> usize {
        self.outcomes.iter().filter(|outcome| fits(outcome)).count()
    }

    fn busy(&self) -> usize {
        self.count(|outcome| matches!(outcome, NodeOutcome::Busy))
    }

    fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, NodeOutcome::Failed(_)))
    }

    /// Returns whether no further answer can be of use.
    fn is_complete(&self, quorum: usize) -> bool {
        let pending = self.count(|outcome| matches!(outcome, NodeOutcome::Unanswered));
        pending == 0 || self.failed() > self.outcomes.len() - quorum
    }

    /// Returns whether further answers cannot change that there is a quorum, or contention.
    fn is_decided(&self, quorum: usize) -> bool {
        self.holds.len() >= quorum || self.busy() > self.outcomes.len() - quorum
    }

    fn close(self, quorum: usize) -> Round {
        let spare = self.outcomes.len() - quorum;
        let (busy, failed) = (self.busy(), self.failed());
        let granted = self.holds.len();
        let refused = self.count(|outcome| {
            matches!(
                outcome,
                NodeOutcome::Failed(AcquireError::Rejected { .. } | AcquireError::Shutdown { .. })
            )
        });
        // The validity is the quorum-th largest of the nodes' ends. That time must not have passed.
        let late = match HoldSet::some(self.holds, quorum) {
            Some(holds) if holds.is_held() => return Round::Quorum(holds),
            Some(_) => true,
            None => false,
        };
        let reports = self
            .outcomes
            .into_iter()
            .enumerate()
            .map(|(node, outcome)| NodeReport { node, outcome })
            .collect();
        if refused > spare {
            Round::Rejected(reports)
        } else if failed > spare || late {
            Round::Unavailable(reports)
        } else if busy > spare || busy + granted >= quorum {
            Round::Contended(reports)
        } else {
            Round::Unavailable(reports)
        }
    }
}
