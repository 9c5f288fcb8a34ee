-- semaphore/hand_off
-- Pass permits to another owner of the same process in one step.
--
-- KEYS[1]  free     string      the number of free permits; missing: the semaphore does not exist, and no permit is held
-- KEYS[2]  ledger   hash        owner -> permits
-- KEYS[3]  line     sorted set  entry -> arrival
-- KEYS[4]  wake     hash        notes about the queue
-- KEYS[5]  granted  sorted set  see line_of_permits.lua
-- KEYS[6]  idle     string      see idle.lua. A semaphore that ends lives while any permit is held
-- ARGV[1]  to         the owner that gets them
-- ARGV[2]  not_after  server time in microseconds; later this is a plain release
-- ARGV[3]  from       the owner that gives them up
-- ARGV[4]  permits    those that `from` holds
-- ARGV[5]  base       not a KEY: it would need a right on a key of that name (R14)
-- ARGV[6]  publish    PUBLISH or SPUBLISH
--
-- Returns  0 passed on; -1 late: released; -2 `from` holds nothing; -3 released, because more is held than there are,
--          or a request for several permits has its turn
-- Replay   the ledger no longer has `from`: -2. The client sends it once, and after a lost reply undoes the grant to `to` (P3)
-- Wakes    no waiter; where it releases: as a release does
-- Cost     O(log n) for n processes in the queue
local call = redis.call
local free, exists = free_in(KEYS[1])
if not exists then
  call('DEL', KEYS[2], KEYS[5])
  return -2
end
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
-- While a request for several permits has its turn, freed permits are kept for that request: see line_of_permits.lua.
local waits, ends = unpack(call('HMGET', KEYS[4], 'waits', 'ends'))
local big = waits and waits ~= '' and us < ends + 0 and call('ZSCORE', KEYS[3], waits)
-- HDEL tests and decides, and passes at maxmemory (R8).
if call('HDEL', KEYS[2], ARGV[3]) == 0 then return -2 end
local late = us > ARGV[2] + 0
-- Below zero, the total was lowered, and the permits must not be passed on. After an error they are given back below (R15).
if not late and not big and free >= 0 and type(redis.pcall('HSET', KEYS[2], ARGV[1], ARGV[4])) == 'number' then return 0 end
free = redis.pcall('INCRBY', KEYS[1], ARGV[4])
if type(free) ~= 'number' then
  redis.pcall('HSET', KEYS[2], ARGV[3], ARGV[4])
  return free
end
local line, wake, granted, base, publish = KEYS[3], KEYS[4], KEYS[5], ARGV[5], ARGV[6]
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[6], plain = true }
-- @line.lua
-- Errors do not undo a release (R15).
if idle then pcall(used, it, idle, free, 0) end
local more
local _
if free > 0 then _, _, more = pass(us) end
return unless_unfinished(late and -1 or -3, more)
