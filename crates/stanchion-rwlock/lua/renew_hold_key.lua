-- rwlock/renew_hold_key
-- Extend the hold key of one reader, after its field has been found: for a migrating slot, whose keys are on two nodes.
--
-- KEYS[1]  the hold key
-- ARGV[1]  not_after, server time in microseconds: a run after it does nothing
-- ARGV[2]  lease in milliseconds
--
-- Returns  array: 1 renewed, -1 the server refused the key; or the number -1: late
-- Replay   harmless: a lease is only ever lengthened
-- Wakes    no waiter
-- Cost     O(1)
local now = redis.call('TIME')
if now[1] * 1000000 + now[2] > ARGV[1] + 0 then return -1 end
-- P10, R3: GT, so that a late duplicate never shortens. If the reader has left by now, the key ends with the lease.
local own = redis.pcall('PEXPIRE', KEYS[1], ARGV[2], 'GT')
if own == 0 and redis.call('EXISTS', KEYS[1]) == 0 then own = redis.pcall('SET', KEYS[1], '1', 'PX', ARGV[2]) end
if type(own) == 'table' and own.err then return { -1 } end
return { 1 }
