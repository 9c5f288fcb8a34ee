//! Actors: a tie between the holds and the waits of one piece of work.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use stanchion_core::primitive::{ActorId, Handle};

use crate::Surveys;

/// The longest label, in characters.
const LONGEST_LABEL: usize = 64;

tokio::task_local! {
    static CURRENT: Actor;
}

/// A unit of work, such as a transfer, a request or a job. Its holds and waits belong together, whatever their owners are.
///
/// By default each acquire has an owner of its own, so nothing ties it to the other holds of its caller. An actor ties them, for
/// `Client::deadlocks` and [`OnDeadlock::Fail`](stanchion_core::OnDeadlock::Fail). An actor excludes no other caller and makes nothing re-entrant.
///
/// # What belongs to it
/// Every acquire inside of [`Actor::scope`] belongs to the actor, with any client. A task that is spawned there does not: pass the
/// actor on with `tokio::spawn(actor.scope(…))`. The task that first polls an acquire counts, not the task that made the future.
/// With nested scopes, the innermost one counts. A hold keeps its actor when its guard is moved, and after the scope.
///
/// # Certainty
/// Deadlock detection treats a tie by an actor as certain. This is right if the work that waits also releases the holds. The same is
/// true of an explicit [`Owner`](stanchion_core::Owner), which ties its acquires outside of scopes. Without either, the task counts as the actor, as a hint only.
///
/// Clones are cheap and are the same actor. Two calls of `Client::actor` with one label return two different actors.
#[derive(Clone)]
pub struct Actor(Arc<Inner>);

struct Inner {
    id: ActorId,
    label: Box<str>,
    labels: Weak<Labels>,
}

/// Returns a new actor of a client: see `Client::actor`.
#[must_use]
pub fn actor(handle: &Handle, label: impl AsRef<str>) -> Actor {
    let shown = |it: char| if it.is_control() { ' ' } else { it };
    let label: String = label.as_ref().chars().map(shown).collect();
    let label: String = label.chars().take(LONGEST_LABEL).collect();
    let id = ActorId::of_scope(&handle.fresh_id());
    let surveys = handle.extension::<Surveys>();
    if let Some(surveys) = &surveys {
        surveys.labels.keep(id, &label);
    }
    Actor(Arc::new(Inner {
        id,
        label: label.into(),
        labels: surveys.map_or_else(Weak::new, |it| Arc::downgrade(&it.labels)),
    }))
}

impl Actor {
    /// Runs `work` as this actor.
    ///
    /// # Cancel safety
    /// The same as for `work`; dropping the future drops `work`.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), work)
    }

    /// Returns the actor of the current scope, for example to pass it on to a spawned task.
    ///
    /// ```
    /// # use stanchion_survey::Actor;
    /// async fn in_background(work: impl Future<Output = ()> + Send + 'static) {
    ///     match Actor::current() {
    ///         Some(actor) => drop(tokio::spawn(actor.scope(work))),
    ///         None => drop(tokio::spawn(work)),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    pub(crate) fn current_id() -> Option<ActorId> {
        CURRENT.try_with(|actor| actor.0.id).ok()
    }

    /// Returns the label.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0.label
    }
}

impl PartialEq for Actor {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Actor {}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Actor({} {:?})", self.0.id, self.0.label)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(labels) = self.labels.upgrade() {
            labels.forget(self.id);
        }
    }
}

/// The labels of a client's actors. An acquire carries only the number of its actor, because every waiter stores it.
#[derive(Debug, Default)]
pub(crate) struct Labels(Mutex<HashMap<ActorId, Box<str>>>);

impl Labels {
    fn keep(&self, id: ActorId, label: &str) {
        let mut labels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        labels.insert(id, label.into());
    }

    fn forget(&self, id: ActorId) {
        let mut labels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        labels.remove(&id);
    }

    pub(crate) fn of(&self, id: ActorId) -> Option<String> {
        let labels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        labels.get(&id).map(|label| label.to_string())
    }
}
