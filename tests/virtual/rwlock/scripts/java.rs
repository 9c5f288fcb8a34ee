//! Imitates Redisson's scripts, and applies their effect to the table.

use super::table::{Mode, Table, hold_key};

pub(super) const READ: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1) redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return -1
end
if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
  local i = redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':' .. i, 1) redis.call('pexpire', KEYS[2] .. ':' .. i, ARGV[1])
  redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
  return -1
end
return redis.call('pttl', KEYS[1])";

pub(super) const UNREAD: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return -2 end
local c = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if c == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
redis.call('del', KEYS[2] .. ':' .. (c + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  local m = -3
  for _, f in ipairs(redis.call('hkeys', KEYS[1])) do
    local v = tonumber(redis.call('hget', KEYS[1], f))
    if type(v) == 'number' then
      for i = v, 1, -1 do m = math.max(m, redis.call('pttl', KEYS[3] .. ':' .. f .. ':rwlock_timeout:' .. i)) end
    end
  end
  if m > 0 then redis.call('pexpire', KEYS[1], m) return 0 end
  if mode == 'write' then return 0 end
end
redis.call('del', KEYS[1])
return 1";

pub(super) const WRITE: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'write') redis.call('hset', KEYS[1], ARGV[2] .. ':write', 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return -1
end
if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2] .. ':write', 1)
  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
  return -1
end
return redis.call('pttl', KEYS[1])";

pub(super) const UNWRITE: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false or mode == 'read' or redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 0 then return -2 end
if redis.call('hincrby', KEYS[1], ARGV[2] .. ':write', -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
redis.call('hdel', KEYS[1], ARGV[2] .. ':write')
if redis.call('hlen', KEYS[1]) == 1 then redis.call('del', KEYS[1]) return 1 end
redis.call('hset', KEYS[1], 'mode', 'read')
return 1";

pub(super) const RENEW_READ: &str = "
local c = redis.call('hget', KEYS[1], ARGV[2])
if not c then return 0 end
for i = tonumber(c), 1, -1 do redis.call('pexpire', KEYS[2] .. ':' .. i, ARGV[1]) end
redis.call('pexpire', KEYS[1], ARGV[1])
return 1";

/// Granted; otherwise the reply is a TTL.
pub(super) const GRANTED: i64 = -1;
const NOT_OWNER: i64 = -2;

impl Table {
    pub(super) fn java_read(&mut self, ms: u64, owner: &str, lease: u64) -> i64 {
        if self.mode == Some(Mode::Write) && self.count(&format!("{owner}:write")).is_none() {
            return i64::try_from(self.end - ms).unwrap();
        }
        let count = self.count(owner).unwrap_or(0) + 1;
        self.set(owner, count);
        self.holds.insert(hold_key(owner, count), ms + lease);
        self.mode.get_or_insert(Mode::Read);
        self.lengthen(ms + lease);
        GRANTED
    }

    pub(super) fn java_unread(&mut self, ms: u64, owner: &str) -> i64 {
        let Some(count) = self.count(owner) else {
            return NOT_OWNER;
        };
        self.holds.remove(&hold_key(owner, count));
        if count == 1 {
            self.remove(owner);
        } else {
            self.set(owner, count - 1);
        }
        if !self.fields.is_empty() {
            let end = |(field, count): &(String, u64)| {
                let keys = (1..=*count).map(|index| hold_key(field, index));
                keys.filter_map(|key| self.holds.get(&key).copied()).max()
            };
            let longest = self.fields.iter().filter_map(end).max();
            if let Some(end) = longest.filter(|end| *end > ms) {
                self.end = end;
                return 0;
            }
            if self.mode == Some(Mode::Write) {
                return 0;
            }
        }
        self.free();
        1
    }

    pub(super) fn java_write(&mut self, ms: u64, owner: &str, lease: u64) -> i64 {
        let field = format!("{owner}:write");
        let count = self.count(&field);
        if self.mode.is_some() && count.is_none() {
            return i64::try_from(self.end - ms).unwrap();
        }
        self.end = self.end.max(ms) + lease;
        self.mode = Some(Mode::Write);
        self.set(&field, count.unwrap_or(0) + 1);
        GRANTED
    }

    pub(super) fn java_unwrite(&mut self, ms: u64, owner: &str, lease: u64) -> i64 {
        let field = format!("{owner}:write");
        let Some(count) = self.count(&field) else {
            return NOT_OWNER;
        };
        if count > 1 {
            self.set(&field, count - 1);
            self.end = ms + lease;
            return 0;
        }
        self.write_release(ms, &field, 1, 0);
        1
    }

    pub(super) fn java_renew_read(&mut self, ms: u64, owner: &str, lease: u64) -> i64 {
        let Some(count) = self.count(owner) else {
            return 0;
        };
        for index in 1..=count {
            if let Some(end) = self.holds.get_mut(&hold_key(owner, index)) {
                *end = ms + lease;
            }
        }
        self.end = ms + lease;
        1
    }
}
