//! The primitives that the workers contend for, with the limits that the detector checks.

use clap::ValueEnum;
use serde::Serialize;

use crate::look::Kind;

/// A member of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Primitive {
    /// One at a time.
    Lock,
    /// One at a time, in order of arrival.
    Fair,
    /// Many readers, or one writer.
    Rwlock,
    /// Three at a time.
    Semaphore,
    /// All workers continue when all have counted.
    Latch,
    /// Two names at once.
    Multilock,
    /// A quorum of three engines inside this program.
    Redlock,
    /// All of them, one after the other.
    All,
}

/// Permits of each semaphore.
pub(super) const PERMITS: u32 = 3;
/// More readers than there can be.
const READERS: usize = 1 << 20;

impl Primitive {
    pub(super) const EACH: [Self; 7] = [
        Self::Lock,
        Self::Fair,
        Self::Rwlock,
        Self::Semaphore,
        Self::Latch,
        Self::Multilock,
        Self::Redlock,
    ];

    /// The prefix of its names.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Lock | Self::All => "lock",
            Self::Fair => "fair",
            Self::Rwlock => "rwlock",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
            Self::Multilock => "multilock",
            Self::Redlock => "redlock",
        }
    }

    /// The kind of its names on a server.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Lock | Self::All | Self::Multilock | Self::Redlock => Kind::Lock,
            Self::Fair => Kind::Fair,
            Self::Rwlock => Kind::Rwlock,
            Self::Semaphore => Kind::LeasedSemaphore,
            Self::Latch => Kind::Latch,
        }
    }

    /// The number of names it needs when `asked` were requested.
    pub(super) fn names(self, asked: u16) -> u16 {
        match self {
            // A worker takes two of them.
            Self::Multilock => asked.max(4),
            // Each round has its own.
            Self::Latch => 1,
            _ => asked,
        }
    }

    /// The number of units that may be inside at a time: the detector's limit.
    pub(super) fn capacity(self) -> usize {
        match self {
            Self::Rwlock => READERS,
            // OK: a small constant.
            Self::Semaphore => usize::try_from(PERMITS).unwrap_or(usize::MAX),
            _ => 1,
        }
    }

    /// A description of the objects that the workers contend for.
    pub(super) fn prize(self, names: u16) -> String {
        let (one, many) = match self {
            Self::Lock | Self::All => ("lock", "locks"),
            Self::Fair => ("fair lock", "fair locks"),
            Self::Rwlock => ("read-write lock", "read-write locks"),
            Self::Semaphore => ("semaphore of 3", "semaphores of 3"),
            Self::Redlock => ("lock on three engines", "locks on three engines"),
            Self::Latch => return "to be done together, round by round".into(),
            Self::Multilock => return format!("two of {names} locks at once"),
        };
        match names {
            1 => format!("1 {one}"),
            n => format!("{n} {many}"),
        }
    }

    /// The verb with which the display names the last worker.
    pub(super) fn did(self) -> &'static str {
        match self {
            Self::Latch => "passed by",
            _ => "held by",
        }
    }

    /// The pace of the workers, which limits the number of grants.
    pub(super) fn pace(self) -> &'static str {
        match self {
            Self::Latch => "each rests for up to 3 ms, then counts and waits for all",
            _ => "each holds for up to 3 ms and rests for up to 3 ms",
        }
    }

    /// The closing line when nothing went wrong.
    pub(super) fn verdict(self) -> &'static str {
        match self {
            Self::Lock | Self::Fair | Self::Redlock | Self::All => {
                "Never more than one holder at a time."
            }
            Self::Rwlock => "Never a writer beside anybody else.",
            Self::Semaphore => "Never more than three holders at a time.",
            Self::Latch => "Nobody continued before everybody had counted.",
            Self::Multilock => "Never more than one holder of a name, and no deadlock.",
        }
    }

    /// The closing line when the detector saw an overlap.
    pub(super) fn alarm(self) -> &'static str {
        match self {
            Self::Lock | Self::Fair | Self::Multilock | Self::Redlock | Self::All => {
                "TWO HELD AT THE SAME TIME."
            }
            Self::Rwlock => "A WRITER WAS NOT ALONE.",
            Self::Semaphore => "MORE HOLDERS THAN PERMITS.",
            Self::Latch => "SOMEBODY CONTINUED TOO EARLY.",
        }
    }
}
