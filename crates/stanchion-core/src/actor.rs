//! Actors: the tie between a hold and a wait of one process.

use std::fmt;
use std::hash::{Hash as _, Hasher};
use std::num::NonZeroU64;

use crate::owner::Owner;

/// The actor behind an acquire, for [`Survey::deadlocks`](crate::Survey::deadlocks). Not its owner: an acquire without an explicit one has a
/// new owner each time.
///
/// One number, because every waiter carries it: with the highest bit the mark of an explicit owner, which is one actor by its user's
/// word; without it the number of a task, which is a hint only: a guard may be moved, and a task may do several things at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Actor(NonZeroU64);

const OWNER: u64 = 1 << 63;

impl Actor {
    /// The actor of an acquire that begins now; `None` outside of tasks.
    pub(crate) fn of(owner: Option<&Owner>) -> Option<Self> {
        if let Some(owner) = owner {
            return NonZeroU64::new(owner.mark() | OWNER).map(Self);
        }
        let mut number = Number(0);
        // Tokio shows the number of a task as text alone, and hashes it as it is. Any other would do: they only have to differ.
        tokio::task::try_id()?.hash(&mut number);
        NonZeroU64::new(number.0 & !OWNER).map(Self)
    }
}

/// The text of an actor in a record: `o` and 16 hex digits, or `t` and the number of a task.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.get();
        if number & OWNER == 0 {
            write!(f, "t{number}")
        } else {
            write!(f, "o{number:016x}")
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
    let task = tokio::spawn(async { (Actor::of(None), tokio::task::id()) });
    let (actor, id) = task.await.unwrap_or_else(|error| panic!("{error}"));
    let shown = actor.map(|actor| actor.to_string());
    assert_eq!(shown, Some(format!("t{id}")));
    let owner = |number| {
        let name = crate::wire_owner::WireOwner::new(&uuid::Uuid::nil(), number);
        Actor::of(Some(&Owner::new(name)))
    };
    assert!(owner(1) == owner(1) && owner(1) != owner(2));
    assert!(owner(1).is_some_and(|it| it.to_string().starts_with('o')));
}
