-- semaphore/reclaim
-- Give back what an owner holds, for an operator who knows that it will not.
--
-- KEYS[1]  free       string  the permits that nobody holds
-- KEYS[2]  ledger     hash    owner -> permits
-- KEYS[3]  once       string  the result; expires with not_after
-- ARGV[1]  owner
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
--
-- Returns  { 1 done, permits given back }, { -1 late, 0 }
-- Replay   the once key has the result
-- Wakes    as a release does
-- Cost     O(1)
local answer = before(KEYS[3], ARGV[2])
if answer then return answer end
free_in(KEYS[1])
local held = redis.call('HGET', KEYS[2], ARGV[1])
if not held then return done(KEYS[3], ARGV[2], 0) end
-- First, because it passes at maxmemory and lets the rest pass (R8).
redis.call('HDEL', KEYS[2], ARGV[1])
local free = redis.call('INCRBY', KEYS[1], held)
answer = done(KEYS[3], ARGV[2], held)
if free > 0 then redis.pcall(ARGV[4], ARGV[3], free) end
return answer
