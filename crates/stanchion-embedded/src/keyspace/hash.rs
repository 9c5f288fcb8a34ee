//! A hash: fields in the order they were first set, as the small hashes of Redis keep them.

use std::collections::{BTreeMap, HashMap};

/// The number of fields up to which a scan is faster than hashing. Most hashes of locks have one field.
const SCAN_LIMIT: usize = 12;

/// The memory of a field in addition to its bytes, which the index stores a second time.
const FIELD: usize = 150;

/// A map from field to value that remembers insertion order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hash {
    entries: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
    /// The position of each field; empty while the hash is small.
    index: HashMap<Vec<u8>, u64>,
    next: u64,
    /// The bytes of fields, twice, and of values.
    bytes: usize,
}

impl Hash {
    fn position(&self, field: &[u8]) -> Option<u64> {
        if self.index.is_empty() {
            self.entries
                .iter()
                .find(|(_, (name, _))| name == field)
                .map(|(&at, _)| at)
        } else {
            self.index.get(field).copied()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory of its fields and values, about.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.entries.len() * FIELD
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        let at = self.position(field)?;
        self.entries.get(&at).map(|(_, value)| value.as_slice())
    }

    /// Sets a field. Returns whether it is new.
    pub(crate) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        if let Some((_, old)) = self
            .position(field)
            .and_then(|at| self.entries.get_mut(&at))
        {
            let before = old.len();
            old.clear();
            old.extend_from_slice(value);
            self.bytes = self.bytes - before + value.len();
            return false;
        }
        let at = self.next;
        self.next += 1;
        self.bytes += 2 * field.len() + value.len();
        self.entries.insert(at, (field.to_vec(), value.to_vec()));
        if !self.index.is_empty() {
            self.index.insert(field.to_vec(), at);
        } else if self.entries.len() > SCAN_LIMIT {
            self.index = self
                .entries
                .iter()
                .map(|(&at, (name, _))| (name.clone(), at))
                .collect();
        }
        true
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(at) = self.position(field) else {
            return false;
        };
        self.index.remove(field);
        let removed = self.entries.remove(&at);
        let value = removed.as_ref().map_or(0, |(_, value)| value.len());
        self.bytes -= 2 * field.len() + value;
        removed.is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries
            .values()
            .map(|(field, value)| (field.as_slice(), value.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_growth_and_removal() {
        let mut hash = Hash::default();
        for n in 0..40_u8 {
            assert!(hash.set(&[n], &[n]));
        }
        for n in 0..39_u8 {
            assert!(hash.remove(&[n]), "{n}");
        }
        assert!(!hash.set(&[39], b"again"));
        assert!(hash.set(&[0], b"back"));
        let fields: Vec<_> = hash.iter().map(|(f, _)| f.to_vec()).collect();
        assert_eq!(fields, [vec![39], vec![0]]);
        assert_eq!(hash.get(&[39]), Some(&b"again"[..]));
        assert_eq!(hash.get(&[0]), Some(&b"back"[..]));
    }
}
