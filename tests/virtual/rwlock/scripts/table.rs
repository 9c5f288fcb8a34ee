//! The simple model: the effect of each script on a table.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

/// The state of the server. Times in ms since its epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) mode: Option<Mode>,
    /// In the order of the hash.
    pub(super) fields: Vec<(String, u64)>,
    pub(super) end: u64,
    pub(super) holds: BTreeMap<String, u64>,
    /// The readers, and the time from which on each may be dead.
    pub(super) readers: BTreeMap<String, u64>,
    pub(super) readers_end: u64,
    pub(super) last_token: u64,
}

pub(super) fn hold_key(owner: &str, index: u64) -> String {
    format!("{{job}}:{owner}:rwlock_timeout:{index}")
}

/// The reply "busy for `ms`".
fn busy(ms: u64) -> i64 {
    -4 - i64::try_from(ms).unwrap()
}

/// The reply codes of the protocol.
const DONE: i64 = 0;
const LATE: i64 = -1;
const GONE: i64 = -2;

/// A request that can grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) field: &'a str,
    pub(super) lease: u64,
    /// In µs.
    pub(super) not_after: u64,
}

impl Table {
    /// Removes expired entries.
    pub(super) fn tick(&mut self, ms: u64) {
        if ms > self.end {
            self.free();
        }
        self.holds.retain(|_, end| ms <= *end);
        if ms > self.readers_end {
            self.readers.clear();
        }
    }

    /// Frees the lock and forgets its readers, as the script does.
    fn end_all(&mut self) {
        self.free();
        self.readers.clear();
    }

    pub(super) fn free(&mut self) {
        self.mode = None;
        self.fields.clear();
        self.end = 0;
    }

    pub(super) fn count(&self, field: &str) -> Option<u64> {
        self.fields
            .iter()
            .find(|(name, _)| name == field)
            .map(|(_, count)| *count)
    }

    pub(super) fn set(&mut self, field: &str, count: u64) {
        match self.fields.iter_mut().find(|(name, _)| name == field) {
            Some((_, old)) => *old = count,
            None => self.fields.push((field.to_owned(), count)),
        }
    }

    pub(super) fn remove(&mut self, field: &str) -> bool {
        let before = self.fields.len();
        self.fields.retain(|(name, _)| name != field);
        self.fields.len() < before
    }

    pub(super) fn lengthen(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    pub(super) fn hold(&mut self, key: &str, end: u64) {
        let old = self.holds.entry(key.to_owned()).or_insert(end);
        *old = (*old).max(end);
    }

    pub(super) fn read_acquire(&mut self, now: u64, request: Request<'_>, within: &str) -> i64 {
        let ms = now / 1000;
        let (held, writer) = (self.count(request.field), self.count(within));
        let is_new = held.is_none() && writer.is_none();
        if is_new && self.mode == Some(Mode::Write) {
            return busy(self.end - ms);
        }
        if now > request.not_after {
            return LATE;
        }
        let own = hold_key(request.field, 1);
        if held.is_none() {
            self.holds.remove(&own);
        }
        self.hold(&own, ms + request.lease);
        self.index(request.field, ms + request.lease);
        let end = self.mode.map_or(0, |_| self.end);
        self.readers_end = end.max(ms + request.lease);
        if held.is_none() {
            if self.mode == Some(Mode::Read) {
                self.remove_ended(ms, 8);
            }
            self.set(request.field, 1);
        }
        self.mode.get_or_insert(Mode::Read);
        self.lengthen(ms + request.lease);
        DONE
    }

    fn index(&mut self, reader: &str, end: u64) {
        let old = self.readers.entry(reader.to_owned()).or_insert(end);
        *old = (*old).max(end);
    }

    /// The longest remaining time of a reader's hold keys, in ms.
    fn left_of(&self, ms: u64, reader: &str) -> u64 {
        let count = self.count(reader).unwrap_or(0);
        let ends = (1..=count.min(8)).filter_map(|index| self.holds.get(&hold_key(reader, index)));
        let left = ends.map(|end| end - ms).max().unwrap_or(0);
        if count > 8 {
            left.max(self.end - ms).max(1000)
        } else {
            left
        }
    }

    fn take_out(&mut self, reader: &str) {
        self.readers.remove(reader);
        self.remove(reader);
    }

    fn remove_ended(&mut self, ms: u64, most: usize) {
        let ended = self.readers.iter().filter(|(_, end)| **end < ms);
        let mut ended: Vec<_> = ended.map(|(reader, end)| (*end, reader.clone())).collect();
        ended.sort();
        for (_, reader) in ended.into_iter().take(most) {
            match self.left_of(ms, &reader) {
                0 => self.take_out(&reader),
                left => drop(self.readers.insert(reader, ms + left)),
            }
        }
    }

    /// Removes dead readers. Returns the time until the next check, and true if all readers were checked. The simulation has too few
    /// readers to exceed the limit of one run.
    fn remove_dead(&mut self, ms: u64) -> (u64, bool) {
        self.remove_ended(ms, 64);
        let few = self.fields.len() <= 4;
        if !few && self.fields.len() <= self.readers.len() {
            let last = self.readers.values().max().copied().unwrap_or(0);
            return (last.saturating_sub(ms), false);
        }
        let mut longest = 0;
        for (reader, _) in self.fields.clone() {
            let left = self.left_of(ms, &reader);
            longest = longest.max(left);
            if left == 0 {
                self.take_out(&reader);
            } else if !few {
                self.readers.entry(reader).or_insert(ms + left);
            }
        }
        if !few {
            self.readers_end = self.readers_end.max(self.end);
        }
        (longest, true)
    }

    pub(super) fn reenter(&mut self, now: u64, request: Request<'_>, n: u64, reads: bool) -> i64 {
        if now > request.not_after {
            return LATE;
        }
        // A late run of an earlier request never lowers the count.
        let n = self.count(request.field).unwrap_or(0).max(n + 1);
        self.counted(now / 1000, request.field, n, request.lease, reads)
    }

    fn counted(&mut self, ms: u64, field: &str, n: u64, lease: u64, reads: bool) -> i64 {
        if self.count(field).is_none() {
            return GONE;
        }
        self.set(field, n);
        self.lengthen(ms + lease);
        if reads {
            self.hold(&hold_key(field, 1), ms + lease);
            if self.readers.contains_key(field) {
                self.index(field, ms + lease);
            }
            self.readers_end = self.readers_end.max(ms + lease);
        }
        DONE
    }

    pub(super) fn renew(&mut self, ms: u64, field: &str, lease: u64, reads: bool) -> i64 {
        let Some(n) = self.count(field) else { return 0 };
        self.counted(ms, field, n, lease, reads);
        1
    }

    pub(super) fn read_release(&mut self, ms: u64, owner: &str, n: u64, lease: u64) -> i64 {
        if n > 1 {
            return self.counted(ms, owner, n - 1, lease, true);
        }
        let had = self.remove(owner);
        self.holds.remove(&hold_key(owner, 1));
        if !had {
            return GONE;
        }
        if self.fields.is_empty() {
            self.end_all();
            return DONE;
        }
        self.readers.remove(owner);
        if self.mode == Some(Mode::Read) {
            let (longest, all) = self.remove_dead(ms);
            if self.fields.is_empty() {
                self.end_all();
            } else if all {
                // As in Redisson's script: the lock lasts as long as its longest hold.
                self.end = ms + longest;
            }
        }
        DONE
    }

    pub(super) fn write_acquire(&mut self, now: u64, request: Request<'_>) -> i64 {
        let ms = now / 1000;
        let held = self.count(request.field).is_some();
        if self.mode == Some(Mode::Write) && !held {
            return busy(self.end - ms);
        }
        if now > request.not_after {
            return LATE;
        }
        let mut taken = self.mode.filter(|_| !held).map(|_| self.end - ms);
        if self.mode == Some(Mode::Read) && !held {
            let (again, _) = self.remove_dead(ms);
            if self.fields.is_empty() {
                self.end_all();
                taken = None;
            } else {
                taken = taken.map(|left| left.min(again));
            }
        }
        if let Some(left) = taken {
            return busy(left);
        }
        self.last_token = now.max(self.last_token + 1);
        if !held {
            self.mode = Some(Mode::Write);
            self.set(request.field, 1);
        }
        self.lengthen(ms + request.lease);
        i64::try_from(self.last_token).unwrap()
    }

    pub(super) fn write_release(&mut self, ms: u64, field: &str, n: u64, lease: u64) -> i64 {
        if n > 1 {
            return self.counted(ms, field, n - 1, lease, false);
        }
        if !self.remove(field) {
            return GONE;
        }
        if self.fields.is_empty() {
            self.free();
        } else {
            self.mode = Some(Mode::Read);
        }
        DONE
    }

    pub(super) fn downgrade(&mut self, now: u64, from: &str, to: Request<'_>) -> i64 {
        let ms = now / 1000;
        if self.count(from).is_none() && self.count(to.field).is_none() {
            return GONE;
        }
        if now > to.not_after {
            return LATE;
        }
        if self.remove(from) {
            self.set(to.field, 1);
            self.mode = Some(Mode::Read);
        }
        self.lengthen(ms + to.lease);
        self.hold(&hold_key(to.field, 1), ms + to.lease);
        self.index(to.field, ms + to.lease);
        self.readers_end = self.end;
        DONE
    }
}
