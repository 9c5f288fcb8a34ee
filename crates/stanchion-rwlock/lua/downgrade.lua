-- rwlock/downgrade
-- Turn a write hold of any count into one read hold in one step: no writer comes in between, but readers may join.
--
-- KEYS[1]  rwlock     hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  line       zset    place -> arrival
-- KEYS[3]  wake       hash    what is known of clients outside the line
-- KEYS[4]  crowd      zset    place -> arrival, of readers
-- KEYS[5]  mark       string  a waiting writer's mark; the rwlock's own key again: writers have no preference
-- KEYS[6]  turn       string  see rwlock/write_acquire
-- KEYS[7]  readers    zset    reader -> end of its lease, server ms: the time from which it may be dead
-- KEYS[8]  hold key   string  of the new reader
-- ARGV[1]  base
-- ARGV[2]  publish    PUBLISH or SPUBLISH
-- ARGV[3]  writer     the owner that gives up its write hold
-- ARGV[4]  owner      the reader to be, used for one outermost hold only (R1)
-- ARGV[5]  lease      milliseconds, of the new reader
-- ARGV[6]  not_after  server time in microseconds; later the script refuses and the write hold stays
--
-- Returns  0 done, -1 late, -2 the writer holds nothing
-- Replay   finds the read hold and no write hold: renews the lease, which counts from the last request (P5)
-- Wakes    the readers that wait, and all waiters of Redisson processes: payload 1, where Redisson publishes nothing
-- Cost     O(log n) for n processes in line
local call = redis.call
local lock, line, wake, crowd, mark, turn, readers, hold = unpack(KEYS)
local base, publish, field, owner, lease = ARGV[1], ARGV[2], ARGV[3] .. ':write', ARGV[4], ARGV[5] + 0
local found = call('HMGET', lock, field, owner)
if not found[1] and not found[2] then return -2 end
-- P3: a request that outlived its caller changes nothing.
local time = call('TIME')
if time[1] * 1000000 + time[2] > ARGV[6] + 0 then return -1 end
-- First, because it passes at maxmemory and lets the rest pass (R8). Never shorten (R3).
call('PEXPIRE', lock, lease, 'GT')
call('ZADD', readers, 'GT', time[1] * 1000 + math.floor(time[2] / 1000) + lease, owner)
call('PEXPIRE', readers, math.max(call('PTTL', lock), 1))
-- The hold key before the field (R10), and the writer removed before the mode changes: an error in between grants to nobody.
if call('PTTL', hold) < lease then call('SET', hold, '1', 'PX', lease) end
if found[1] then
  call('HDEL', lock, field)
  call('HSET', lock, 'mode', 'read', owner, '1')
  if call('EXISTS', line, wake, crowd) == 0 then
    redis.pcall(publish, base, '1')
  else
    local released, fence = '1', lock
    -- @line.lua
    -- The client that hears Redisson's releases knows that it is none of Redisson's.
    redis.pcall(publish, base, '01')
    local _, _, more = join(lease)
    return unless_unfinished(0, more)
  end
end
return 0
