//! The plain model: what each script does to a table.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

/// What the server has. Times in ms since its epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) mode: Option<Mode>,
    /// In the order of the hash.
    pub(super) fields: Vec<(String, u64)>,
    pub(super) end: u64,
    pub(super) holds: BTreeMap<String, u64>,
    pub(super) mark: Option<(String, u64)>,
    pub(super) last_token: u64,
}

pub(super) fn hold_key(owner: &str, index: u64) -> String {
    format!("{{job}}:{owner}:rwlock_timeout:{index}")
}

/// Busy for so long.
fn busy(ms: u64) -> i64 {
    -4 - i64::try_from(ms).unwrap()
}

/// The replies of the convention.
const DONE: i64 = 0;
const LATE: i64 = -1;
const GONE: i64 = -2;

/// A request that can grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) field: &'a str,
    pub(super) lease: u64,
    /// µs.
    pub(super) not_after: u64,
    pub(super) prefers_writers: bool,
}

impl Table {
    /// What has run out goes.
    pub(super) fn tick(&mut self, ms: u64) {
        if ms > self.end {
            self.free();
        }
        self.holds.retain(|_, end| ms <= *end);
        self.mark.take_if(|(_, end)| ms > *end);
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

    pub(super) fn read_acquire(&mut self, now: u64, ask: Ask<'_>, within: &str) -> i64 {
        let ms = now / 1000;
        let (held, writer) = (self.count(ask.field), self.count(within));
        if self.mode == Some(Mode::Write) && held.is_none() && writer.is_none() {
            return busy(self.end - ms);
        }
        if let Some((_, end)) = &self.mark
            && ask.prefers_writers
            && held.is_none()
            && writer.is_none()
        {
            return busy(end - ms);
        }
        if now > ask.not_after {
            return LATE;
        }
        if held.is_none() {
            self.holds.remove(&hold_key(ask.field, 1));
            self.set(ask.field, 1);
        }
        self.hold(&hold_key(ask.field, 1), ms + ask.lease);
        self.mode.get_or_insert(Mode::Read);
        self.lengthen(ms + ask.lease);
        DONE
    }

    pub(super) fn reenter(&mut self, now: u64, ask: Ask<'_>, n: u64, reads: bool) -> i64 {
        if now > ask.not_after {
            return LATE;
        }
        self.counted(now / 1000, ask.field, n + 1, ask.lease, reads)
    }

    fn counted(&mut self, ms: u64, field: &str, n: u64, lease: u64, reads: bool) -> i64 {
        if self.count(field).is_none() {
            return GONE;
        }
        self.set(field, n);
        self.lengthen(ms + lease);
        if reads {
            self.hold(&hold_key(field, 1), ms + lease);
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
            self.free();
        } else if self.mode == Some(Mode::Read) && self.fields.len() <= 4 {
            self.look_at_all(ms);
        }
        DONE
    }

    /// As Redisson: whose keys have all gone is dead, and the lock lasts as long as the longest.
    fn look_at_all(&mut self, ms: u64) {
        let (mut budget, mut all, mut longest) = (8, true, 0);
        let fields = std::mem::take(&mut self.fields);
        for (owner, count) in fields {
            let mut alive = false;
            for index in 1..=count {
                if budget == 0 {
                    (all, alive) = (false, true);
                    break;
                }
                budget -= 1;
                let end = self.holds.get(&hold_key(&owner, index));
                if let Some(end) = end.filter(|end| **end > ms) {
                    alive = true;
                    longest = longest.max(*end);
                }
            }
            if alive {
                self.fields.push((owner, count));
            }
        }
        if self.fields.is_empty() {
            self.free();
        } else if all {
            self.end = longest;
        }
    }

    /// Whether nothing keeps this reader's field alive.
    pub(super) fn is_dead(&self, ms: u64, owner: &str) -> bool {
        let count = self.count(owner).unwrap_or(0);
        (1..=count).all(|index| {
            self.holds
                .get(&hold_key(owner, index))
                .is_none_or(|end| *end <= ms)
        })
    }

    pub(super) fn write_acquire(&mut self, now: u64, ask: Ask<'_>, grace: u64) -> i64 {
        let ms = now / 1000;
        let held = self.count(ask.field).is_some();
        let taken = self.mode.is_some() && !held;
        if taken && grace == 0 {
            return busy(self.end - ms);
        }
        if now > ask.not_after {
            return LATE;
        }
        if taken {
            self.mark = Some((ask.field.to_owned(), ms + grace));
            return busy((grace / 2).min(self.end - ms));
        }
        self.last_token = now.max(self.last_token + 1);
        if !held {
            self.mode = Some(Mode::Write);
            self.set(ask.field, 1);
        }
        self.lengthen(ms + ask.lease);
        self.unmark(ask);
        i64::try_from(self.last_token).unwrap()
    }

    fn unmark(&mut self, ask: Ask<'_>) {
        if ask.prefers_writers {
            self.mark.take_if(|(writer, _)| writer == ask.field);
        }
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

    pub(super) fn write_abandon(&mut self, ms: u64, field: &str) -> i64 {
        let released = self.write_release(ms, field, 1, 0);
        let marked = self.mark.take_if(|(writer, _)| writer == field);
        if marked.is_some() { DONE } else { released }
    }

    pub(super) fn downgrade(&mut self, now: u64, from: &str, to: Ask<'_>) -> i64 {
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
        DONE
    }
}
