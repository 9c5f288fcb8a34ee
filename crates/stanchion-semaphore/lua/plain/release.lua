-- semaphore/release
-- Give permits back, to the next process in the queue or for all. Or undo the requests of an owner: its queue entry, or permits that
-- were granted in a lost reply (P3).
--
-- KEYS[1]  free     string      the number of free permits; missing: the semaphore does not exist, and no permit is held
-- KEYS[2]  ledger   hash        owner -> permits
-- KEYS[3]  line     sorted set  entry -> arrival
-- KEYS[4]  wake     hash        notes about the queue
-- KEYS[5]  granted  sorted set  see line_of_permits.lua
-- KEYS[6]  idle     string      see idle.lua
-- The last four are KEYS[1] again in a slot in migration, where they may be on another node: the queue is served later
-- ARGV[1]  owner
-- ARGV[2]  permits  those it holds, or requested
-- ARGV[3]  base     not a KEY: it would need a right on a key of that name (R14)
-- ARGV[4]  publish  PUBLISH or SPUBLISH
-- ARGV[5]  entries  1: give up its entry in the queue, too
--
-- Returns  >= 0 done: the number of receivers; -1 done, but no message could be sent; -2 the owner holds nothing; { "tend", ms, that
--          number } there are more dead processes in the queue
-- Replay   the ledger no longer has the owner: nothing is given back again (P6)
-- Wakes    the next in the queue, as far as permits are free. Without a queue Redisson's clients: payload the number of free permits
-- Cost     O(log n) for n processes in the queue
local call = redis.call
local free, exists = free_in(KEYS[1])
-- HDEL tests and decides, and passes at maxmemory (R8).
local found = call('HDEL', KEYS[2], ARGV[1]) == 1
if not exists then call('DEL', KEYS[2]) end
if found and exists then
  free = redis.pcall('INCRBY', KEYS[1], ARGV[2])
  if type(free) ~= 'number' then
    redis.pcall('HSET', KEYS[2], ARGV[1], ARGV[2])
    return free
  end
end
-- The common case, without functions: no process waits.
local divided, alone = KEYS[3] == KEYS[1], nil
if divided or call('EXISTS', KEYS[3], KEYS[4], KEYS[5], KEYS[6]) == 0 then
  if not found or not exists then return -2 end
  -- Java cannot read a negative number.
  if free <= 0 then return 0 end
  alone = redis.pcall(ARGV[4], ARGV[3], free)
  if type(alone) ~= 'number' then return -1 end
  if divided or alone == 0 or not redisson_waits(ARGV[3], ARGV[4]) then return alone end
end

local line, wake, granted, base, publish = KEYS[3], KEYS[4], KEYS[5], ARGV[3], ARGV[4]
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[6], plain = true }
-- @line.lua
if alone then return begin_alone(clock(), alone) end
call('ZREM', granted, ARGV[1])
-- Errors do not undo a release (R15).
if idle then pcall(used, it, idle, free, 0) end
return returned(clock(), ARGV[1], ARGV[2], found and exists, ARGV[5] == '1')
