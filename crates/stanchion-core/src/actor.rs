//! The numbers of actors: a tie between the holds and the waits of one piece of work.

use std::fmt;
use std::hash::{Hash as _, Hasher};
use std::num::NonZeroU64;

use crate::wire_owner::WireOwner;

/// The actor of an acquire, as one number, because every waiter stores it. The two highest bits mark an explicit owner and a scope: with
/// these the user declares an actor. Without either it is the number of a task, which is a hint only: a guard may move to another task,
/// and a task may do several things at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActorId(NonZeroU64);

const OWNER: u64 = 1 << 63;
const SCOPE: u64 = 1 << 62;
const A_SCOPE: NonZeroU64 = NonZeroU64::MIN.saturating_add(SCOPE - 1);

impl ActorId {
    /// Returns the actor of an acquire that begins now outside of all scopes. `None` if there is no explicit owner and no task.
    /// `owner`: the mark of the explicit owner.
    pub(crate) fn of(owner: Option<u64>) -> Option<Self> {
        if let Some(mark) = owner {
            return NonZeroU64::new(mark | OWNER).map(Self);
        }
        let mut number = Number(0);
        // Tokio shows a task's number only as text, but hashes the plain number. Any other number would do, if it differs between tasks.
        tokio::task::try_id()?.hash(&mut number);
        NonZeroU64::new(number.0 & !(OWNER | SCOPE)).map(Self)
    }

    /// Returns the actor of a scope. `fresh` is an owner that nothing else uses.
    #[must_use]
    pub fn of_scope(fresh: &WireOwner) -> Self {
        Self::marked(mark_of(fresh.as_str().as_bytes()))
    }

    fn marked(mark: u64) -> Self {
        Self(A_SCOPE | (mark & !OWNER))
    }

    /// Returns whether the user declared this actor, by a scope or an explicit owner.
    #[must_use]
    pub const fn is_certain(self) -> bool {
        self.0.get() & (OWNER | SCOPE) != 0
    }

    /// Returns whether `text` is that of an actor which the user declared.
    #[must_use]
    pub fn is_certain_as(text: &str) -> bool {
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
#[must_use]
pub fn mark_of(text: &[u8]) -> u64 {
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
        let name = WireOwner::new(&uuid::Uuid::nil(), number);
        ActorId::of(Some(mark_of(name.as_str().as_bytes())))
    };
    assert!(owner(1) == owner(1) && owner(1) != owner(2));
    assert!(owner(1).is_some_and(|it| it.to_string().starts_with('o') && it.is_certain()));
    for mark in [0, 1, u64::MAX] {
        let shown = ActorId::marked(mark).to_string();
        assert!(
            shown.starts_with('s') && ActorId::is_certain_as(&shown),
            "{shown}"
        );
    }
}
