-- semaphore/init
-- Set the number of permits, if the semaphore does not exist yet. Redisson's trySetPermits.
--
-- KEYS[1]  free       string      the number of free permits; no TTL, as Redisson, but for what idle.lua sets
-- KEYS[2]  once       string      the result; expires with not_after
-- KEYS[3]  ledger     hash        of plain permits
-- KEYS[4]  total      string      see total.lua; none if it is the semaphore's own key
-- KEYS[5]  line       sorted set  entry -> arrival; see line.lua
-- KEYS[6]  idle       string      see idle.lua
-- ARGV[1]  permits
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
-- ARGV[5]  made       "<ms> <permits>": make one that ends; otherwise empty
--
-- Returns  { 1 done, 1 set or 0 it existed }, { -1 late, 0 }
-- Replay   the once key has the result
-- Wakes    the queue, by semaphore/tend; Redisson's clients
-- Cost     O(1), and O(holders) of a former semaphore that only Redisson or a TTL has ended
local answer = before(KEYS[2], ARGV[2])
if answer then return answer end
local it = { free = KEYS[1], held = KEYS[3], idle = KEYS[6], plain = KEYS[4] ~= KEYS[1] }
local free, exists = free_in(KEYS[1])
if exists then
  touch(it, free)
  return done(KEYS[2], ARGV[2], 0)
end
if ARGV[5] ~= '' then
  make(it, ARGV[5])
else
  redis.call('SET', KEYS[1], ARGV[1])
  made(it, KEYS[4], ARGV[1])
end
answer = done(KEYS[2], ARGV[2], 1)
return announced(answer, ARGV[1] + 0, KEYS[5], ARGV[3], ARGV[4])
