//! Facts: the state of a barrier in messages and replies. A fact has the present round, and the earlier rounds that broke.

use crate::error::BrokenBy;

/// The most broken rounds that a fact lists.
const LISTED: usize = 8;

/// The state of a barrier. Each later fact includes the earlier ones: see `lua/round.lua`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    first: u64,
    present: u64,
    broken: Vec<(u64, BrokenBy)>,
}

/// The round of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the barrier's first round.
    pub(crate) first: u64,
    pub(crate) round: u64,
}

/// The end of a round, for one of its parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All parties arrived.
    Complete,
    Broken(BrokenBy),
    /// The barrier was created again, or its list of broken rounds does not reach back to this round.
    Forgotten,
}

impl Fact {
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(text).ok()?.split(' ');
        let first = parts.next()?.parse().ok()?;
        let present = parts.next()?.parse().ok()?;
        let one = |text: &str| {
            let (&letter, round) = text.as_bytes().split_last()?;
            let round = std::str::from_utf8(round).ok()?.parse().ok()?;
            Some((round, BrokenBy::of(letter)?))
        };
        let broken = parts.next()?.split(',').filter(|text| !text.is_empty());
        Some(Self {
            first,
            present,
            broken: broken.map(one).collect::<Option<_>>()?,
        })
    }

    /// The end of the round of `place`; `None` while it is the present one.
    pub(crate) fn end_of(&self, place: Place) -> Option<End> {
        if self.first != place.first {
            // Numbers grow from one barrier of a name to the next, so a smaller one comes from a late message.
            return (self.first > place.first).then_some(End::Forgotten);
        }
        if self.present <= place.round {
            return None;
        }
        let broke = self.broken.iter().find(|(round, _)| *round == place.round);
        let oldest = self.broken.first().map_or(0, |(round, _)| *round);
        Some(match broke {
            Some((_, by)) => End::Broken(*by),
            None if self.broken.len() >= LISTED && place.round < oldest => End::Forgotten,
            None => End::Complete,
        })
    }

    /// Returns whether this fact includes all that `other` says, and more.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        (self.first, self.present) > (other.first, other.present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(round: u64) -> Place {
        Place { first: 10, round }
    }

    #[test]
    fn a_fact_contains_the_end_of_each_round() {
        let fact = Fact::read(b"10 15 11t,13d").unwrap();
        assert_eq!(fact.end_of(place(15)), None);
        assert_eq!(fact.end_of(place(14)), Some(End::Complete));
        assert_eq!(fact.end_of(place(13)), Some(End::Broken(BrokenBy::Died)));
        assert_eq!(fact.end_of(place(12)), Some(End::Complete));
        assert_eq!(
            fact.end_of(place(11)),
            Some(End::Broken(BrokenBy::TimedOut))
        );
        let none_broke = Fact::read(b"10 11 ").unwrap();
        assert_eq!(none_broke.end_of(place(10)), Some(End::Complete));
        assert!(fact.is_newer_than(&none_broke) && !none_broke.is_newer_than(&fact));
    }

    #[test]
    fn another_barrier_of_the_same_name_ends_the_wait_only_if_it_is_newer() {
        let of = |text: &[u8]| Fact::read(text).unwrap().end_of(place(12));
        assert_eq!(of(b"11 11 "), Some(End::Forgotten));
        assert_eq!(of(b"9 30 "), None);
    }

    #[test]
    fn a_full_list_says_nothing_of_rounds_before_it() {
        let fact = Fact::read(b"10 40 21l,22l,23l,24l,25l,26l,27l,28f").unwrap();
        assert_eq!(fact.end_of(place(20)), Some(End::Forgotten));
        assert_eq!(fact.end_of(place(28)), Some(End::Broken(BrokenBy::Forced)));
        assert_eq!(fact.end_of(place(29)), Some(End::Complete));
    }

    #[test]
    fn other_messages_are_no_facts() {
        for text in [
            &b""[..],
            b"10",
            b"10 x ",
            b"10 11",
            b"10 11 12",
            b"10 11 12q",
            b"\xff 1 ",
        ] {
            assert_eq!(Fact::read(text), None, "{text:?}");
        }
    }
}
