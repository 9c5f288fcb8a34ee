-- semaphore/adjust
-- Add permits, or remove some for good. Redisson's addPermits, but a TTL stays.
--
-- KEYS[1]  free       string      the number of free permits; may become negative
-- KEYS[2]  once       string      the result; expires with not_after
-- KEYS[3]  ledger     hash        of plain permits
-- KEYS[4]  total      string      see total.lua; none if it is the semaphore's own key
-- KEYS[5]  line       sorted set  entry -> arrival; see line.lua
-- KEYS[6]  idle       string      see idle.lua
-- ARGV[1]  by         a whole number, negative to remove
-- ARGV[2]  not_after  server time in microseconds; later the script refuses
-- ARGV[3]  channel
-- ARGV[4]  publish    PUBLISH or SPUBLISH
-- ARGV[5]  made       "<ms> <permits>": make a missing semaphore first, which ends; otherwise empty
--
-- Returns  { 1 done, free permits }, { -1 late, 0 }
-- Replay   the once key has the result
-- Wakes    when some were added: the queue, by semaphore/tend; Redisson's clients
-- Cost     O(1), and O(holders) of a former semaphore that only Redisson or a TTL has ended
local answer = before(KEYS[2], ARGV[2])
if answer then return answer end
local it = { free = KEYS[1], held = KEYS[3], idle = KEYS[6], plain = KEYS[4] ~= KEYS[1] }
local free, exists = free_in(KEYS[1])
local makes = not exists and string.match(ARGV[5], '%d+$')
free = free + (makes or 0) + ARGV[1]
-- Java reads 32 bits.
if free > 2147483647 or free < -2147483648 then
  return redis.error_reply('ERR that would make ' .. string.format('%.0f', free) .. ' free permits, beyond 32 bits')
end
if makes then make(it, ARGV[5]) end
free = redis.call('INCRBY', KEYS[1], ARGV[1])
if exists or makes then
  changed(it, KEYS[4], ARGV[1], free)
else
  made(it, KEYS[4], ARGV[1])
end
answer = done(KEYS[2], ARGV[2], free)
if ARGV[1] + 0 <= 0 then return answer end
return announced(answer, free, KEYS[5], ARGV[3], ARGV[4])
