//! Runs the scripts next to those of Redisson: one reads the keys of the other, and removes no hold that is alive.

use super::direct::check;

/// Redisson's scripts, with replies in words. The prefix of hold keys is empty.
pub(super) const SCRIPTS: [(&str, &str, &str, &str); 5] = [
    ("jread", READ, "job", "$2 $1"),
    ("junread", UNREAD, "job base", "$1"),
    ("jwrite", WRITE, "job", "$2 $1"),
    ("junwrite", UNWRITE, "job base", "$1"),
    ("jrenew", RENEW_READ, "job", "$2 $1"),
];

const READ: &str =
    "local mode, hold = redis.call('hget', KEYS[1], 'mode'), ARGV[2] .. ':rwlock_timeout:'
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', hold .. '1', 1) redis.call('pexpire', hold .. '1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 'granted'
end
if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
  local i = redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('set', hold .. i, 1) redis.call('pexpire', hold .. i, ARGV[1])
  redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
  return 'granted'
end
return redis.call('pttl', KEYS[1])";

const UNREAD: &str = "local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then redis.call('publish', KEYS[2], '0') return 'not owner' end
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 'not owner' end
local c = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if c == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
redis.call('del', ARGV[1] .. ':rwlock_timeout:' .. (c + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  local m = -3
  for _, f in ipairs(redis.call('hkeys', KEYS[1])) do
    local v = tonumber(redis.call('hget', KEYS[1], f))
    if type(v) == 'number' then
      for i = v, 1, -1 do m = math.max(m, redis.call('pttl', f .. ':rwlock_timeout:' .. i)) end
    end
  end
  if m > 0 then redis.call('pexpire', KEYS[1], m) return 'others read' end
  if mode == 'write' then return 'writes on' end
end
redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '0')
return 'freed'";

const WRITE: &str = "local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'write') redis.call('hset', KEYS[1], ARGV[2] .. ':write', 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 'granted'
end
if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2] .. ':write', 1)
  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
  return 'granted'
end
return redis.call('pttl', KEYS[1])";

const UNWRITE: &str = "local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then redis.call('publish', KEYS[2], '1') return 'not owner' end
if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[1] .. ':write') == 0 then return 'not owner' end
if redis.call('hincrby', KEYS[1], ARGV[1] .. ':write', -1) > 0 then redis.call('pexpire', KEYS[1], 30000) return 'writes on' end
redis.call('hdel', KEYS[1], ARGV[1] .. ':write')
if redis.call('hlen', KEYS[1]) == 1 then redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '1') return 'freed' end
redis.call('hset', KEYS[1], 'mode', 'read')
return 'reads on'";

const RENEW_READ: &str = "local c = redis.call('hget', KEYS[1], ARGV[2])
if not c then return 0 end
for i = tonumber(c), 1, -1 do redis.call('pexpire', ARGV[2] .. ':rwlock_timeout:' .. i, ARGV[1]) end
redis.call('pexpire', KEYS[1], ARGV[1])
return 1";

#[test]
fn readers_of_both_survive_each_others_releases() {
    check(
        "our hold key keeps the lock when Redisson's reader releases
        > jread J 60000 -> granted; J.hold1 = 1 /60000; job = {mode read, J 1} /60000
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, J 1, A 1} /60000; readers = [A@ms+30000ms] /60000
        > reread A 1 -> 0; job = {mode read, J 1, A 2} /60000
        > junread J -> others read; job = {mode read, A 2} /30000; J.hold1 is gone
        > renew A -> [1]

        our re-entries need one hold key
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000; readers = [A@ms+30000ms] /30000
        > reread A 1 -> 0; job = {mode read, A 2} /30000
        > reread A 2 -> 0; job = {mode read, A 3} /30000
        > jread J 5000 -> granted; J.hold1 = 1 /5000; job = {mode read, A 3, J 1} /30000
        > junread J -> others read; job = {mode read, A 3} /30000; J.hold1 is gone

        the second and the third hold of Redisson's reader are alive
        > jread J 40000 -> granted; J.hold1 = 1 /40000; job = {mode read, J 1} /40000
        > jread J 20000 -> granted; J.hold2 = 1 /20000; job = {mode read, J 2} /40000
        > jread J 10000 -> granted; J.hold3 = 1 /10000; job = {mode read, J 3} /40000
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, J 3, A 1} /40000; readers = [A@ms+30000ms] /40000
        + DEL J.hold1
        > unread A -> 0; job = {mode read, J 3} /20000; A.hold1 is gone; readers is gone
        > write B try -> -20004
        > junread J -> others read; job = {mode read, J 2} /20000; J.hold3 is gone
        > junread J -> freed; J.hold2 is gone; job is gone

        a reader of Redisson's that died does not keep the lock
        > jread J 300 -> granted; J.hold1 = 1 /300; job = {mode read, J 1} /300
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, J 1, A 1} /30000; readers = [A@ms+30000ms] /30000
        + wait 400ms
        > unread A -> 0; base: 0; A.hold1 is gone; job is gone; readers is gone

        Redisson's renewal may shorten our lease, and our renewal lengthens it again
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000; readers = [A@ms+30000ms] /30000
        > jread J 5000 -> granted; J.hold1 = 1 /5000; job = {mode read, A 1, J 1} /30000
        > jrenew J 5000 -> 1; job = {mode read, A 1, J 1} /5000
        > renew A -> [1]; job = {mode read, A 1, J 1} /30000
        > jrenew B 5000 -> 0",
    );
}

/// P1.
#[test]
fn writers_of_both_exclude_each_other() {
    check(
        "Redisson's writer, which reads
        > jwrite J 30000 -> granted; job = {mode write, J:write 1} /30000
        > jwrite J 30000 -> granted; job = {mode write, J:write 2} /60000
        > jread J 30000 -> granted; J.hold1 = 1 /30000; job = {mode write, J:write 2, J 1} /60000
        > read A try -> -60004
        > write A try -> -60004
        > junread J -> writes on; job = {mode write, J:write 2} /60000; J.hold1 is gone
        > junwrite J -> writes on; job = {mode write, J:write 1} /30000
        > junwrite J -> freed; job is gone

        Redisson's writer keeps its read hold, and publishes nothing
        > jwrite J 30000 -> granted; job = {mode write, J:write 1} /30000
        > jread J 30000 -> granted; J.hold1 = 1 /30000; job = {mode write, J:write 1, J 1} /30000
        > junwrite J -> reads on; job = {mode read, J 1} /30000
        > write A try -> -30004
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, J 1, A 1} /30000; readers = [A@ms+30000ms] /30000
        > junread J -> others read; job = {mode read, A 1} /30000; J.hold1 is gone

        our writer
        > write A new -> now; fence = now; job = {mode write, A:write 1} /30000
        > jread J 30000 -> 30000
        > jwrite J 30000 -> 30000
        > junwrite J -> not owner
        > junread J -> not owner
        > downgrade A C -> 0; base: 1; C.hold1 = 1 /30000; job = {mode read, C 1} /30000;
            readers = [C@ms+30000ms] /30000
        > jwrite J 30000 -> 30000
        > jread J 30000 -> granted; J.hold1 = 1 /30000; job = {mode read, C 1, J 1} /30000
        > unread C -> 0; job = {mode read, J 1} /30000; C.hold1 is gone; readers is gone
        > write A try -> -30004
        > junread J -> freed; J.hold1 is gone; job is gone
        > junread J -> not owner
        > junwrite J -> not owner",
    );
}
