-- leased/hand_off
-- Pass permits to another owner of the same process in one step.
--
-- KEYS[1]  free     string      the number of free permits
-- KEYS[2]  leases   sorted set  permit id -> end of its lease; the TTL of `free`, mostly none
-- KEYS[3]  line     sorted set  entry -> arrival
-- KEYS[4]  wake     hash        notes about the queue
-- KEYS[5]  idle     string      see idle.lua
-- ARGV[1]  to         ids of 16 bytes each, concatenated: those that the new owner gets
-- ARGV[2]  lease      milliseconds, of the new owner
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  from       as many ids: those that are given up
-- ARGV[5]  base
-- ARGV[6]  publish    PUBLISH or SPUBLISH
-- ARGV[7]  yields     empty; "outside": clients of Redisson's come first; the uuid of this client: others, too
-- ARGV[8]  hears      1: this client is subscribed to `base`
--
-- Returns  0 passed on; -1 late, -3 at least one is not held, or freed permits are for others: nothing done
-- Replay   the ids are no longer there: -3. The client sends it once, and after a lost reply undoes the grant to `to` (P3)
-- Wakes    no waiter
-- Cost     O(permits, log n) for n processes in the queue
local call = redis.call
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
-- P3: a late run changes nothing. The client releases.
if us > ARGV[3] + 0 then return -1 end
local free = free_in(KEYS[1])
if kept_for_others(free, us, KEYS[3], KEYS[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]) then return -3 end
for at = 1, #ARGV[4], 16 do
  if not call('ZSCORE', KEYS[2], string.sub(ARGV[4], at, at + 15)) then return -3 end
end
-- No lease may outlast the semaphore.
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[5], plain = false }
local idle = idle_of(it)
if idle then used(it, idle, free, idle.ms + ARGV[2]) end
-- This ZREM removes no member, but passes at maxmemory, and then ZADD passes, too (R8).
call('ZREM', it.held, '')
local ends = string.format('%.0f', math.floor(us / 1000) + ARGV[2])
-- The new lease comes first, so an error loses no permit (R15).
for at = 1, #ARGV[1], 16 do call('ZADD', it.held, ends, string.sub(ARGV[1], at, at + 15)) end
for at = 1, #ARGV[4], 16 do call('ZREM', it.held, string.sub(ARGV[4], at, at + 15)) end
return 0
