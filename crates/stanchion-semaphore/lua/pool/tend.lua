-- semaphore/tend
-- Serve the queue: for the relay after a release of Redisson's, or for a client whose script has changed the number of permits or was
-- unfinished.
--
-- KEYS[1]  free     string      the number of free permits
-- KEYS[2]  held     hash        or sorted set: the ledger, or the leases
-- KEYS[3]  line     sorted set  entry -> arrival
-- KEYS[4]  wake     hash        notes about the queue
-- KEYS[5]  granted  sorted set  see line_of_permits.lua; none for leased permits: the semaphore's own key
-- KEYS[6]  idle     string      see idle.lua
-- ARGV[1]  base
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  sentry   the uuid of the client that is the relay, or ''
--
-- Returns  -1, or { "tend", ms, -1 } there are more dead processes in the queue
-- Replay   harmless
-- Wakes    the next in the queue, as far as permits are free
-- Cost     O(log n) for n processes in the queue
local call = redis.call
local free, exists = free_in(KEYS[1])
local line, wake, granted, base, publish = KEYS[3], KEYS[4], KEYS[5], ARGV[1], ARGV[2]
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[6], plain = granted ~= KEYS[1] }
-- The common case, without functions: no process waits. The relay lingers, and receives releases of stanchion's, too.
if exists and call('EXISTS', line, wake, it.idle, it.plain and granted or wake) == 0 then return -1 end
-- @line.lua
-- R8: first, a write that passes at maxmemory.
call('ZREM', line, '')
-- A plain semaphore that does not exist has no holders.
if it.plain and not exists then call('DEL', it.held, granted) end
local us = clock()
heard_by(ARGV[3], us)
-- Redisson does not know that the semaphore ends, and a release in a migrating slot has not read `idle`.
if idle then pcall(used, it, idle, free, 0) end
reclaim(us, sweep)
local _, _, more = serve(us)
return unless_unfinished(-1, more)
