-- leased/reclaim
-- Give one permit back by its id, before its lease has ended, and tell all who hold one: the id does not say whose it is.
--
-- KEYS[1]  free       string      the number of free permits
-- KEYS[2]  leases     sorted set  permit id -> end of its lease
-- KEYS[3]  once       string      the result; expires with not_after
-- KEYS[4]  line       list        see line.lua
-- KEYS[5]  crowd      sorted set  see crowd.lua
-- KEYS[6]  wake       hash        see crowd.lua
-- ARGV[1]  id         16 bytes
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
--
-- Returns  { 1 done, 1 given back or 0 not held }, { -1 late, 0 }
-- Replay   the once key has the result
-- Wakes    as a release does; the holders' processes look
-- Cost     O(log n)
local answer = before(KEYS[3], ARGV[2])
if answer then return answer end
free_in(KEYS[1])
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return done(KEYS[3], ARGV[2], 0) end
local free = redis.call('INCRBY', KEYS[1], '1')
answer = done(KEYS[3], ARGV[2], 1)
local to = { line = KEYS[4], crowd = KEYS[5], wake = KEYS[6], base = ARGV[3], publish = ARGV[4] }
announce(to, free)
redis.pcall(ARGV[4], ARGV[3] .. ':held', 'gone')
return unless_unfinished(to, answer)
