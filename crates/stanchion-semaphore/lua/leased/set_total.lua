-- leased/set_total
-- Set the total number of permits, free and held. Redisson's setPermits.
--
-- KEYS[1]  free       string      the number of free permits; may become negative
-- KEYS[2]  leases     sorted set  permit id -> end of its lease
-- KEYS[3]  once       string      the result; expires with not_after
-- KEYS[4]  line       sorted set  entry -> arrival; see line.lua
-- KEYS[5]  idle       string      see idle.lua
-- ARGV[1]  total
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
-- ARGV[5]  made       "<ms> <permits>": make a missing semaphore first, which ends; otherwise empty
--
-- Returns  { 1 done, the previous total }, { -1 late, 0 }
-- Replay   the once key has the result
-- Wakes    when there are more than before: the queue, by semaphore/tend; Redisson's clients
-- Cost     O(1)
local answer = before(KEYS[3], ARGV[2])
if answer then return answer end
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[5], plain = false }
local free, exists = free_in(KEYS[1])
if not exists and ARGV[5] ~= '' then free = make(it, ARGV[5]) end
local total = free + redis.call('ZCARD', KEYS[2])
free = redis.call('INCRBY', KEYS[1], ARGV[1] - total)
touch(it, free)
answer = done(KEYS[3], ARGV[2], total)
if ARGV[1] + 0 <= total then return answer end
return announced(answer, free, KEYS[4], ARGV[3], ARGV[4])
