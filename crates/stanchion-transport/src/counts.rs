//! The numbers of holds of a client, by kind, for [`Gauges`](crate::Gauges).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of slots; there are fewer kinds. The holds of a kind without a slot are not counted.
const KINDS: usize = 32;

/// The number of holds by kind. Any task updates it, and there is no mutex, because every grant is an update.
#[derive(Debug, Default)]
pub struct Counts([KindCount; KINDS]);

#[derive(Debug, Default)]
struct KindCount {
    kind: OnceLock<&'static str>,
    held: AtomicU64,
}

impl Counts {
    fn of(&self, kind: &'static str) -> Option<&AtomicU64> {
        self.0
            .iter()
            // A new kind takes the first empty slot, and keeps it.
            .find(|slot| *slot.kind.get_or_init(|| kind) == kind)
            .map(|slot| &slot.held)
    }

    /// A hold has begun.
    pub fn begun(&self, kind: &'static str) {
        if let Some(held) = self.of(kind) {
            held.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A hold has ended.
    pub fn ended(&self, kind: &'static str) {
        if let Some(held) = self.of(kind) {
            held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the kinds that were ever held, with their present numbers of holds.
    #[must_use]
    pub fn held(&self) -> Vec<(&'static str, u64)> {
        let number =
            |slot: &KindCount| Some((*slot.kind.get()?, slot.held.load(Ordering::Relaxed)));
        self.0.iter().map_while(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_apart_and_those_beyond_the_last_slot_not_at_all() {
        let counts = Counts::default();
        counts.begun("lock");
        counts.begun("fair lock");
        counts.begun("lock");
        counts.ended("fair lock");
        assert_eq!(counts.held(), [("lock", 2), ("fair lock", 0)]);
        for number in 0..KINDS {
            counts.begun(Box::leak(format!("kind {number}").into_boxed_str()));
        }
        assert_eq!(counts.held().len(), KINDS);
        assert_eq!(counts.held()[0], ("lock", 2));
    }
}
