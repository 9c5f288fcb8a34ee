-- jobs/end
-- End a run: record its end, then free the lock, or let the job rest until the least time has passed.
-- Or undo a run that never began: free the lock and give its tick back (P3).
--
-- KEYS[1]  lock      hash    owner -> hold count
-- KEYS[2]  fence     string  the last fencing token; if it is KEYS[1] again, no token is minted
-- KEYS[3]  line      zset    place -> arrival
-- KEYS[4]  wake      hash    the state of clients outside the line
-- KEYS[5]  record    hash    the last tick and the last run
-- ARGV[1]  base      not a KEY: it would need a right on a key of that name (R14)
-- ARGV[2]  publish   PUBLISH or SPUBLISH
-- ARGV[3]  owner
-- ARGV[4]  begun     1: the work of the run has begun
-- ARGV[5]  rests     the owner under which the lock rests, or '': a run without a least time
--
-- Returns  >= 0 done, the number of subscribers notified; -1 done, but no message could be sent; -2 the owner holds nothing;
--          { "tend", ms, that number } there are more dead processes in line
-- Replay   the second run finds nothing to end, or a job that rests (P6)
-- Wakes    freed: as lock/release. At rest: the next waiter, which learns how much time is left
-- Cost     O(log n) for n processes in line
local call = redis.call
-- Longer than a request may be in flight (R13).
local undone_ms = 60000
local lock, fence, line, wake, record = unpack(KEYS)
local base, publish, owner, begun, rests = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
local ttl = call('PTTL', lock)
-- HDEL comes first: Redis runs it at maxmemory, and after it the other commands of the script, too (R8).
local found = call('HDEL', lock, owner) == 1
-- An error in the record must not keep the lock.
local last = redis.pcall('HMGET', record, 'owner', 'until', 'ended', 'was', 'was_at', 'tick')
if last.err then last = {} end
local mine = last[1] == owner

-- @line.lua
local us = clock()
if not begun then
  -- J2: a late request of this owner must not claim the tick again.
  if type(redis.pcall('HSET', record, 'undone', owner)) == 'number' and call('PTTL', record) == -1 then redis.pcall('PEXPIRE', record, undone_ms) end
end
if mine and not begun then
  -- The tick has not run, because the work never began. The previous tick stays claimed.
  if (last[4] or '') ~= '' then
    redis.pcall('HSET', record, 'tick', last[4], 'tick_at', last[5])
  elseif last[4] then
    redis.pcall('HDEL', record, 'tick', 'tick_at')
  end
  redis.pcall('HDEL', record, 'owner', 'began', 'until', 'was', 'was_at')
elseif mine and found and not last[3] then
  redis.pcall('HSET', record, 'ended', string.format('%.0f', us))
end

if found and begun and rests ~= '' then
  local rest = 0
  if mine and last[2] and not last[3] then
    rest = last[2] - math.floor(us / 1000)
  elseif not mine then
    -- The record is missing. The remaining TTL of the first lease is at least as long as the least time.
    rest = ttl
  end
  -- The lock rests under another owner, so that no late request of the run's owner can lengthen its TTL (J4). Only here does an owner shorten a
  -- TTL: no process relies on the old TTL any more (R3).
  if rest > 0 and call('EXISTS', lock) == 0 then
    call('HSET', lock, rests, '0')
    local set = redis.pcall('PEXPIRE', lock, rest)
    if set == 1 then
      -- P4: the waiters know a longer time than the one that is left now.
      tell_next(rest)
      local told = redis.pcall(publish, base, call('EXISTS', line) == 1 and '0' .. released() or released())
      return type(told) == 'number' and told or -1
    end
    -- R9: without a TTL the lock must not stay.
    call('HDEL', lock, rests)
  end
end
if call('EXISTS', lock) == 1 then
  -- P6: an earlier run of this request has already put the job to rest.
  return rests ~= '' and call('HEXISTS', lock, rests) == 1 and 0 or -2
end
if not found and call('EXISTS', line, wake) == 0 then return -2 end
local told, _, more = pass(us)
return unless_unfinished(found and told or -2, more)
