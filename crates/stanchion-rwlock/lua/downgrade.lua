-- rwlock/downgrade
-- Turn a write hold of any count into one read hold in one step: no writer comes in between, but readers may join.
--
-- KEYS[1]  rwlock     hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  line      zset    entry -> arrival
-- KEYS[3]  wake      hash    notes about the queue
-- KEYS[4]  readers   zset    reader -> end of its lease, server ms: the time from which it may be dead
-- KEYS[5]  hold key  string  of the new reader
-- ARGV[1]  base
-- ARGV[2]  publish    PUBLISH or SPUBLISH
-- ARGV[3]  writer     the owner that gives up its write hold
-- ARGV[4]  owner      the new reader, used for one outermost hold only (R1)
-- ARGV[5]  lease      milliseconds, of the new reader
-- ARGV[6]  not_after  server time in microseconds; later the script refuses and the write hold stays
-- ARGV[7]  prefix     the prefix of all readers' hold keys, which are in the slot of KEYS[1]
--
-- Returns  0 done, -1 late, -2 the writer holds nothing
-- Replay   finds the read hold and no write hold: renews the lease, which counts from the last request (P5)
-- Wakes    the readers in the queue, and all waiters of Redisson processes: payload 1, with a queue 01. Redisson publishes no message here
-- Cost     O(log n) for n processes in the queue
local call = redis.call
local lock, line, wake, readers, hold = unpack(KEYS)
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
-- The hold key before the field (R10), and the writer removed before the mode changes: an error in between must not grant a hold.
if call('PTTL', hold) < lease then call('SET', hold, '1', 'PX', lease) end
if found[1] then
  call('HDEL', lock, field)
  call('HSET', lock, 'mode', 'read', owner, '1')
  if call('EXISTS', line, wake) == 0 then
    redis.pcall(publish, base, '1')
  else
    local mode, announces, fence, prefix = 'read', '1', lock, ARGV[7]
    -- @line.lua
    -- By the zero in front the relay knows that Redisson did not send the message.
    redis.pcall(publish, base, '01')
    local _, _, more = serve(clock())
    return unless_unfinished(0, more)
  end
end
return 0
