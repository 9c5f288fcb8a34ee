-- leased/reclaim
-- Give one permit back by its id before its lease has ended, and notify the processes of all holders: the id does not name one.
--
-- KEYS[1]  free       string      the number of free permits
-- KEYS[2]  leases     sorted set  permit id -> end of its lease
-- KEYS[3]  once       string      the result; expires with not_after
-- KEYS[4]  line       sorted set  entry -> arrival; see line.lua
-- ARGV[1]  id         16 bytes
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
--
-- Returns  { 1 done, 1 given back or 0 not held }, { -1 late, 0 }
-- Replay   the once key has the result
-- Wakes    the queue, by semaphore/tend; Redisson's clients; the holders' processes check their permits
-- Cost     O(log n)
local answer = before(KEYS[3], ARGV[2])
if answer then return answer end
free_in(KEYS[1])
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return done(KEYS[3], ARGV[2], 0) end
local free = redis.pcall('INCRBY', KEYS[1], '1')
if type(free) ~= 'number' then
  -- R15: as in leased/release.
  redis.pcall('ZADD', KEYS[2], '0', ARGV[1])
  return free
end
answer = done(KEYS[3], ARGV[2], 1)
redis.pcall(ARGV[4], ARGV[3] .. ':held', 'gone')
return announced(answer, free, KEYS[4], ARGV[3], ARGV[4])
