//! One database: keys, their values and their expiry.

pub(crate) mod hash;
pub(crate) mod list;
pub(crate) mod number;
pub(crate) mod zset;

use std::collections::HashMap;

use crate::outcome::{Failure, Outcome};
use crate::server::tracking::Notes;
use hash::Hash;
use list::List;
use zset::Zset;

/// The value of a key.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Str(Vec<u8>),
    Hash(Hash),
    List(List),
    Zset(Zset),
}

impl Value {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Str(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Zset(_) => "zset",
        }
    }

    /// Returns the memory that it takes, about.
    fn memory(&self) -> usize {
        match self {
            Self::Str(text) => text.len(),
            Self::Hash(hash) => hash.memory(),
            Self::List(list) => list.memory(),
            Self::Zset(zset) => zset.memory(),
        }
    }

    /// Returns whether it is a collection without elements, which does not exist in Redis.
    fn is_empty_collection(&self) -> bool {
        match self {
            Self::Str(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Zset(zset) => zset.is_empty(),
        }
    }
}

/// A key's value and its end, in milliseconds since the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    pub(crate) expire_at: Option<i64>,
    /// The memory of the key and its value when they were last counted.
    counted: usize,
}

/// The memory of a key in addition to its own bytes and those of its value.
const KEY: usize = 150;
/// The most keys that are remembered until they are counted.
const MOST_UNCOUNTED: usize = 1024;

/// One of the numbered databases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    entries: HashMap<Vec<u8>, Entry>,
    /// The time that this command sees. A script sets it once, so that no key expires while it runs.
    pub(crate) now_ms: i64,
    /// The keys read and written, for sessions with `CLIENT TRACKING`.
    pub(crate) notes: Notes,
    /// True once the memory in use was read: from then on the written keys are remembered.
    counts: bool,
    /// Keys that may have been written since they were counted.
    uncounted: Vec<Vec<u8>>,
    /// The memory of all counted keys.
    memory: usize,
}

/// Defines the typed accessors: `None` if the key is absent, `WRONGTYPE` if it holds another type.
macro_rules! typed {
    ($get:ident, $get_mut:ident, $or_new:ident, $variant:ident, $type:ty) => {
        pub(crate) fn $get(&mut self, key: &[u8]) -> Outcome<Option<&$type>> {
            match self.get(key) {
                None => Ok(None),
                Some(Entry {
                    value: Value::$variant(value),
                    ..
                }) => Ok(Some(value)),
                Some(_) => Err(Failure::wrong_type()),
            }
        }

        pub(crate) fn $get_mut(&mut self, key: &[u8]) -> Outcome<Option<&mut $type>> {
            match self.get_mut(key) {
                None => Ok(None),
                Some(Entry {
                    value: Value::$variant(value),
                    ..
                }) => Ok(Some(value)),
                Some(_) => Err(Failure::wrong_type()),
            }
        }

        /// Returns the value, created empty if the key is absent. The caller must add an element.
        pub(crate) fn $or_new(&mut self, key: &[u8]) -> Outcome<&mut $type> {
            self.drop_if_expired(key);
            if !self.entries.contains_key(key) {
                self.put(key, Value::$variant(<$type>::default()), None);
            }
            match self.$get_mut(key)? {
                Some(value) => Ok(value),
                None => Err(Failure::new("ERR no such key")),
            }
        }
    };
}

impl Keyspace {
    fn drop_if_expired(&mut self, key: &[u8]) {
        let now = self.now_ms;
        let is_over = |entry: &Entry| entry.expire_at.is_some_and(|end| now > end);
        if self.entries.get(key).is_some_and(is_over) {
            self.take(key);
            self.notes.written(key);
        }
    }

    /// Removes an entry, and subtracts its counted memory.
    fn take(&mut self, key: &[u8]) -> bool {
        let taken = self.entries.remove(key);
        self.memory -= taken.as_ref().map_or(0, |entry| entry.counted);
        taken.is_some()
    }

    /// Notes that a key is about to be written.
    fn writes(&mut self, key: &[u8]) {
        self.notes.written(key);
        if self.counts && self.uncounted.last().is_none_or(|last| last != key) {
            if self.uncounted.len() >= MOST_UNCOUNTED {
                self.memory();
            }
            self.uncounted.push(key.to_vec());
        }
    }

    /// Returns the memory in use, about. From the first call on, only keys written since the last call are counted.
    pub(crate) fn memory(&mut self) -> usize {
        if !self.counts {
            self.counts = true;
            self.uncounted = self.entries.keys().cloned().collect();
        }
        for key in self.uncounted.drain(..) {
            if let Some(entry) = self.entries.get_mut(&key) {
                let now = KEY + key.len() + entry.value.memory();
                self.memory = self.memory - entry.counted + now;
                entry.counted = now;
            }
        }
        self.memory
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&Entry> {
        self.drop_if_expired(key);
        self.notes.read(key);
        self.entries.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.drop_if_expired(key);
        // The caller writes to the value, or finds nothing to write.
        if self.entries.contains_key(key) {
            self.writes(key);
        }
        self.entries.get_mut(key)
    }

    pub(crate) fn contains(&mut self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    typed!(string, string_mut, string_or_new, Str, Vec<u8>);
    typed!(hash, hash_mut, hash_or_new, Hash, Hash);
    typed!(list, list_mut, list_or_new, List, List);
    typed!(zset, zset_mut, zset_or_new, Zset, Zset);

    pub(crate) fn put(&mut self, key: &[u8], value: Value, expire_at: Option<i64>) {
        self.writes(key);
        match self.entries.get_mut(key) {
            Some(old) => (old.value, old.expire_at) = (value, expire_at),
            None => {
                let entry = Entry {
                    value,
                    expire_at,
                    counted: 0,
                };
                self.entries.insert(key.to_vec(), entry);
            }
        }
    }

    /// Removes a key. Returns whether it existed.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.drop_if_expired(key);
        let existed = self.take(key);
        if existed {
            self.notes.written(key);
        }
        existed
    }

    /// Removes the key if its collection is empty. Called after an element was removed.
    pub(crate) fn remove_if_empty(&mut self, key: &[u8]) {
        if self
            .entries
            .get(key)
            .is_some_and(|entry| entry.value.is_empty_collection())
        {
            self.take(key);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.uncounted.clear();
        self.memory = 0;
        self.notes.flushed();
    }

    /// Removes the expired keys: a key that no command reads would otherwise stay indefinitely.
    pub(crate) fn purge(&mut self) {
        let now = self.now_ms;
        let (notes, memory) = (&mut self.notes, &mut self.memory);
        self.entries.retain(|key, entry| {
            let lives = entry.expire_at.is_none_or(|end| now <= end);
            if !lives {
                notes.written(key);
                *memory -= entry.counted;
            }
            lives
        });
        let (used, room) = (self.entries.len(), self.entries.capacity());
        if room > 1024 && room / 8 > used {
            self.entries.shrink_to(used * 2);
        }
    }

    #[cfg(feature = "explore")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.entries.iter().map(|(key, entry)| (&key[..], entry))
    }

    pub(crate) fn any(&self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        self.entries.keys().any(|key| wanted(key))
    }

    /// Removes the expired keys and returns the others, sorted.
    pub(crate) fn keys(&mut self) -> Vec<Vec<u8>> {
        self.purge();
        let mut keys: Vec<_> = self.entries.keys().cloned().collect();
        keys.sort();
        keys
    }
}
