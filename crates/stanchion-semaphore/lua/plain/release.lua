-- semaphore/release
-- Give permits back, and wake as many waiters as are free now.
--
-- KEYS[1]  free     string  the number of free permits; missing: the semaphore does not exist, and nothing of it is held
-- KEYS[2]  ledger   hash    owner -> permits
-- ARGV[1]  owner
-- ARGV[2]  permits  those it holds
-- ARGV[3]  channel  not a KEY: it would need a right on a key of that name (R14)
-- ARGV[4]  publish  PUBLISH or SPUBLISH
--
-- Returns  >= 0 done: the number of subscribers that got the message; -1 done, but no message could be sent; -2 the owner holds nothing
-- Replay   the ledger no longer has the owner: nothing is given back again (P6)
-- Wakes    waiters in each process, as many as the payload says: the number of free permits, as Redisson
-- Cost     O(1) and the server's delivery to the subscribers
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
-- Java cannot read a negative number.
if free <= 0 then return 0 end
local told = redis.pcall(ARGV[4], ARGV[3], free)
return type(told) == 'number' and told or -1
