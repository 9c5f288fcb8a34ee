-- semaphore/release
-- Give permits back, and wake as many waiters as are free now.
--
-- KEYS[1]  free     string      the number of free permits; missing: the semaphore does not exist, and nothing of it is held
-- KEYS[2]  ledger   hash        owner -> permits
-- KEYS[3]  line     list        see line.lua
-- KEYS[4]  crowd    sorted set  see crowd.lua
-- KEYS[5]  wake     hash        see crowd.lua
-- KEYS[6]  idle     string      see idle.lua
-- The last four are KEYS[1] again in a slot in migration, where they may be on another node: the crowd is told later
-- ARGV[1]  owner
-- ARGV[2]  permits  those it holds
-- ARGV[3]  channel  not a KEY: it would need a right on a key of that name (R14)
-- ARGV[4]  publish  PUBLISH or SPUBLISH
--
-- Returns  >= 0 done: the number of subscribers that got the message; -1 done, but no message could be sent; -2 the owner holds nothing;
--          { that number, permits } no other process waits: so many are free for the waiters of this one
-- Replay   the ledger no longer has the owner: nothing is given back again (P6)
-- Wakes    as many processes that wait as permits are free, see crowd.lua; Redisson's clients: payload the number of free permits
-- Cost     O(log n) for n processes that wait
local _, exists = free_in(KEYS[1])
if not exists then
  redis.call('DEL', KEYS[2])
  return -2
end
-- HDEL tests and decides, and passes at maxmemory (R8).
if redis.call('HDEL', KEYS[2], ARGV[1]) == 0 then return -2 end
local free = redis.pcall('INCRBY', KEYS[1], ARGV[2])
if type(free) ~= 'number' then
  redis.pcall('HSET', KEYS[2], ARGV[1], ARGV[2])
  return free
end
-- The common case, without the functions for those who wait.
local alone = KEYS[4] == KEYS[1]
if free > 0 and (alone or redis.call('EXISTS', KEYS[4], KEYS[5], KEYS[6]) == 0) then
  local told = redis.pcall(ARGV[4], ARGV[3], free)
  return type(told) == 'number' and told or -1
end
-- Java cannot read a negative number.
if alone then return 0 end
-- @crowd.lua
-- Errors do not undo a release (R15).
pcall(touch, { free = KEYS[1], held = KEYS[2], idle = KEYS[6], plain = true }, free)
if free <= 0 then return 0 end
local to = { line = KEYS[3], crowd = KEYS[4], wake = KEYS[5], base = ARGV[3], publish = ARGV[4] }
return give_back(to, free, string.sub(ARGV[1], 1, 36))
