//! A sorted set: members ordered by score, then by bytes.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

/// A score with a total order. Never NaN: parsing and adding refuse it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score(pub(crate) f64);

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        // Not total_cmp: in Redis 0 and -0 are the same score.
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

/// One end of a score range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreLimit {
    pub(crate) score: f64,
    pub(crate) exclusive: bool,
}

/// The memory of a member in addition to its bytes, which both orders store.
const MEMBER: usize = 150;

/// A sorted set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zset {
    scores: HashMap<Vec<u8>, f64>,
    order: BTreeSet<(Score, Vec<u8>)>,
    /// The bytes of the members.
    bytes: usize,
}

impl Zset {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    /// Returns the memory of its members, about.
    pub(crate) fn memory(&self) -> usize {
        2 * self.bytes + self.scores.len() * MEMBER
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    pub(crate) fn set(&mut self, member: &[u8], score: f64) {
        if let Some(old) = self.scores.insert(member.to_vec(), score) {
            self.order.remove(&(Score(old), member.to_vec()));
        } else {
            self.bytes += member.len();
        }
        self.order.insert((Score(score), member.to_vec()));
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        match self.scores.remove(member) {
            Some(score) => {
                self.bytes -= member.len();
                self.order.remove(&(Score(score), member.to_vec()))
            }
            None => false,
        }
    }

    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        let key = (Score(score), member.to_vec());
        Some(self.order.range(..key).count())
    }

    /// Returns all members, lowest score first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.order
            .iter()
            .map(|(score, member)| (member.as_slice(), score.0))
    }

    /// Returns the members between two scores, lowest first. Costs as much as the result is long, not the whole set.
    pub(crate) fn between(
        &self,
        min: ScoreLimit,
        max: ScoreLimit,
    ) -> impl Iterator<Item = (&[u8], f64)> {
        // An empty member sorts before all others of its score.
        let start = (Score(min.score), Vec::new());
        self.order
            .range((Bound::Included(start), Bound::Unbounded))
            .skip_while(move |(score, _)| min.exclusive && score.0 == min.score)
            .take_while(move |(score, _)| {
                score.0 < max.score || (!max.exclusive && score.0 == max.score)
            })
            .map(|(score, member)| (member.as_slice(), score.0))
    }
}
