//! Actors: a tie between the holds and the waits of one piece of work.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash as _, Hasher};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::client::Client;
use crate::owner::Owner;

/// The longest label, in characters.
const LONGEST_LABEL: usize = 64;

tokio::task_local! {
    static CURRENT: Actor;
}

/// A unit of work, such as a transfer, a request or a job. Its holds and waits belong together, whatever their owners are.
///
/// By default each acquire has an owner of its own, so nothing ties it to the other holds of its caller. An actor ties them, for
/// [`Client::deadlocks`] and [`OnDeadlock::Fail`](crate::OnDeadlock::Fail). An actor excludes no other caller and makes nothing re-entrant.
///
/// # What belongs to it
/// Every acquire inside of [`Actor::scope`] belongs to the actor, with any client. A task that is spawned there does not: pass the
/// actor on with `tokio::spawn(actor.scope(…))`. The task that first polls an acquire counts, not the task that made the future.
/// With nested scopes, the innermost one counts. A hold keeps its actor when its guard is moved, and after the scope.
///
/// # Certainty
/// Deadlock detection treats a tie by an actor as certain. This is right if the work that waits also releases the holds. The same is
/// true of an explicit [`Owner`], which ties its acquires outside of scopes. Without either, the task counts as the actor, as a hint only.
///
/// Clones are cheap and are the same actor. Two calls of [`Client::actor`] with one label return two different actors.
#[derive(Clone)]
pub struct Actor(Arc<Inner>);

struct Inner {
    id: ActorId,
    label: Box<str>,
    labels: Weak<Labels>,
}

impl Client {
    /// Returns a new actor. Its label is shown to people, in a [survey](Client::survey) and in the error of a deadlock. Control characters
    /// in the label become spaces, and it is cut after 64 characters. Sends nothing.
    ///
    /// ```
    /// # use stanchion_core::Client;
    /// # async fn example(client: &Client) {
    /// let transfer = client.actor("transfer 4711");
    /// transfer.scope(async { /* acquire, wait, release */ }).await;
    /// tokio::spawn(transfer.scope(async { /* the same, in another task */ }));
    /// # }
    /// ```
    #[must_use]
    pub fn actor(&self, label: impl AsRef<str>) -> Actor {
        let shown = |it: char| if it.is_control() { ' ' } else { it };
        let label: String = label.as_ref().chars().map(shown).collect();
        let label: String = label.chars().take(LONGEST_LABEL).collect();
        let owner = self.core().next_wire_owner();
        let id = ActorId::of_scope(mark_of(owner.as_str().as_bytes()));
        let labels = &self.core().labels;
        labels.keep(id, &label);
        Actor(Arc::new(Inner {
            id,
            label: label.into(),
            labels: Arc::downgrade(labels),
        }))
    }
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
    /// # use stanchion_core::Actor;
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

/// The actor of an acquire, as one number, because every waiter stores it. The two highest bits mark an explicit owner and a scope: with
/// these the user declares an actor. Without either it is the number of a task, which is a hint only: a guard may move to another task,
/// and a task may do several things at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ActorId(NonZeroU64);

const OWNER: u64 = 1 << 63;
const SCOPE: u64 = 1 << 62;
const A_SCOPE: NonZeroU64 = NonZeroU64::MIN.saturating_add(SCOPE - 1);

impl ActorId {
    /// Returns the actor of an acquire that begins now. `None` if there is no scope, no explicit owner and no task.
    pub(crate) fn of(owner: Option<&Owner>) -> Option<Self> {
        // The scope first: a scope declares which acquires belong together, an owner only which acquires re-enter each other.
        if let Ok(id) = CURRENT.try_with(|actor| actor.0.id) {
            return Some(id);
        }
        if let Some(owner) = owner {
            return NonZeroU64::new(owner.mark() | OWNER).map(Self);
        }
        let mut number = Number(0);
        // Tokio shows a task's number only as text, but hashes the plain number. Any other number would do, if it differs between tasks.
        tokio::task::try_id()?.hash(&mut number);
        NonZeroU64::new(number.0 & !(OWNER | SCOPE)).map(Self)
    }

    fn of_scope(mark: u64) -> Self {
        Self(A_SCOPE | (mark & !OWNER))
    }

    /// Returns whether the user declared this actor, by a scope or an explicit owner.
    pub(crate) const fn is_certain(self) -> bool {
        self.0.get() & (OWNER | SCOPE) != 0
    }

    /// Returns whether `text` is that of an actor which the user declared.
    pub(crate) fn is_certain_as(text: &str) -> bool {
        text.starts_with(['o', 's'])
    }
}

/// The text of an actor in a record: `o` or `s` and 16 hex digits, or `t` and the number of a task.
impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.get();
        if number & OWNER != 0 {
            write!(f, "o{number:016x}")
        } else if number & SCOPE != 0 {
            write!(f, "s{number:016x}")
        } else {
            write!(f, "t{number}")
        }
    }
}

/// Keeps the number that is hashed.
struct Number(u64);

impl Hasher for Number {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= mark_of(bytes);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Returns the FNV-1a hash of a text, which is the same in every process.
pub(crate) fn mark_of(text: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[tokio::test]
async fn a_task_is_known_by_its_number_and_an_owner_by_its_mark() {
    let task = tokio::spawn(async { (ActorId::of(None), tokio::task::id()) });
    let (actor, id) = task.await.unwrap_or_else(|error| panic!("{error}"));
    let shown = actor.map(|actor| actor.to_string());
    assert_eq!(shown, Some(format!("t{id}")));
    assert!(!actor.is_some_and(ActorId::is_certain));
    let owner = |number| {
        let name = crate::wire_owner::WireOwner::new(&uuid::Uuid::nil(), number);
        ActorId::of(Some(&Owner::new(name)))
    };
    assert!(owner(1) == owner(1) && owner(1) != owner(2));
    assert!(owner(1).is_some_and(|it| it.to_string().starts_with('o') && it.is_certain()));
    for mark in [0, 1, u64::MAX] {
        let shown = ActorId::of_scope(mark).to_string();
        assert!(
            shown.starts_with('s') && ActorId::is_certain_as(&shown),
            "{shown}"
        );
    }
}
