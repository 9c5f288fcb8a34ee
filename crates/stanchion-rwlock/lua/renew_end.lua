-- rwlock/renew_end
-- Extend the end of one reader's lease, after its field has been found: for a migrating slot, whose keys are on two nodes.
--
-- KEYS[1]  zset of the lock: reader -> end of its lease, server ms
-- ARGV[1]  not_after, server time in microseconds: a run after it does nothing
-- ARGV[2]  owner
-- ARGV[3]  lease in milliseconds
--
-- Returns  array: 1 renewed, -1 the server refused the key; or the number -1: late
-- Replay   harmless: a lease is only ever lengthened
-- Wakes    no waiter
-- Cost     O(log n) for n readers
local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > ARGV[1] + 0 then return -1 end
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- P10, R3: GT, so that a late duplicate never shortens.
local ends = redis.pcall('ZADD', KEYS[1], 'XX', 'GT', now + ARGV[3], ARGV[2])
redis.pcall('PEXPIRE', KEYS[1], ARGV[3], 'GT')
if type(ends) ~= 'number' then return { -1 } end
return { 1 }
