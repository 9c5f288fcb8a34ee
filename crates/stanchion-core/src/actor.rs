//! Actors: the tie between holds and waits that belong together.

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

/// One who acts: a transfer, a request, a job, whose holds and waits belong together, whatever owners they have.
///
/// An acquire is not tied to what else its caller holds: each has an owner of its own. An actor ties them, for
/// [`Client::deadlocks`] and [`OnDeadlock::Fail`](crate::OnDeadlock::Fail). It excludes nobody and re-enters nothing.
///
/// # What belongs to it
/// What is acquired inside of [`Actor::scope`], with any client. Not what a task does that was spawned there: whoever spawns passes the
/// actor on, `tokio::spawn(actor.scope(…))`. It counts which task polls an acquire first, not which made it. Inside several scopes it is the
/// innermost. A hold keeps its actor when its guard is moved, and after the scope.
///
/// # What it is worth
/// A tie by an actor is certain as far as its user is right that the holds are released by the work that waits. So is an explicit
/// [`Owner`], which ties what is acquired as it outside of scopes. Without either the task is taken for the actor, which is a hint only.
///
/// Cheap to clone; clones are the same actor, two calls of [`Client::actor`] with one label are two.
#[derive(Clone)]
pub struct Actor(Arc<Inner>);

struct Inner {
    id: ActorId,
    label: Box<str>,
    labels: Weak<Labels>,
}

impl Client {
    /// Returns a new actor. Its label is for people: a [survey](Client::survey) and the error of a deadlock show it. Control characters in it
    /// become spaces, and it is cut after 64 characters. Sends nothing.
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
    /// That of `work`; dropping the future drops it.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), work)
    }

    /// Returns the actor in whose scope this is called: to pass it on to a task.
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

/// The labels of a client's actors. An acquire carries the number alone, because every waiter does.
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

/// The actor behind an acquire, as one number, because every waiter carries it. The two highest bits are the marks of an explicit owner and
/// of a scope, which are actors by their user's word. Without either it is the number of a task, which is a hint only: a guard may be moved,
/// and a task may do several things at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ActorId(NonZeroU64);

const OWNER: u64 = 1 << 63;
const SCOPE: u64 = 1 << 62;
const A_SCOPE: NonZeroU64 = NonZeroU64::MIN.saturating_add(SCOPE - 1);

impl ActorId {
    /// The actor of an acquire that begins now; `None` outside of tasks.
    pub(crate) fn of(owner: Option<&Owner>) -> Option<Self> {
        // The scope first: it says what belongs together, an owner only what re-enters each other.
        if let Ok(id) = CURRENT.try_with(|actor| actor.0.id) {
            return Some(id);
        }
        if let Some(owner) = owner {
            return NonZeroU64::new(owner.mark() | OWNER).map(Self);
        }
        let mut number = Number(0);
        // Tokio shows the number of a task as text alone, and hashes it as it is. Any other would do: they only have to differ.
        tokio::task::try_id()?.hash(&mut number);
        NonZeroU64::new(number.0 & !(OWNER | SCOPE)).map(Self)
    }

    fn of_scope(mark: u64) -> Self {
        Self(A_SCOPE | (mark & !OWNER))
    }

    /// Returns whether it is an actor by its user's word.
    pub(crate) const fn is_certain(self) -> bool {
        self.0.get() & (OWNER | SCOPE) != 0
    }

    /// Returns whether `text` is that of an actor by its user's word.
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

/// A number for a text; the same in every process (FNV-1a).
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
