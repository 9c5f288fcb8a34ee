-- leased/release
-- Give permits back, to the next process in the queue or for all. Or undo the requests of an owner: its queue entry, or permits that
-- were granted in a lost reply (P3).
--
-- KEYS[1]  free     string      the number of free permits
-- KEYS[2]  leases   sorted set  permit id -> end of its lease
-- KEYS[3]  line     sorted set  entry -> arrival
-- KEYS[4]  wake     hash        notes about the queue
-- KEYS[5]  idle     string      see idle.lua
-- The last three are KEYS[1] again in a slot in migration, where they may be on another node: the queue is served later
-- ARGV[1]  owner
-- ARGV[2]  ids      of 16 bytes each, concatenated
-- ARGV[3]  base     not a KEY: it would need a right on a key of that name (R14)
-- ARGV[4]  publish  PUBLISH or SPUBLISH
-- ARGV[5]  entries  1: give up its entry in the queue, too
--
-- Returns  >= 0 done: the number of receivers; -1 done, but no message could be sent; -2 at least one was not held; { "tend", ms, that
--          number } there are more dead processes in the queue
-- Replay   the ids are no longer there: nothing is given back again (P6)
-- Wakes    the next in the queue, as far as permits are free. Without a queue Redisson's clients: payload the number of free permits
-- Cost     O(permits, log n) for n processes in the queue
local call = redis.call
local ids = {}
for at = 1, #ARGV[2], 16 do ids[#ids + 1] = string.sub(ARGV[2], at, at + 15) end
-- Checked before anything is removed: permits that cannot be given back would be lost (R16).
local free = free_in(KEYS[1])
-- ZREM tests and decides, and passes at maxmemory (R8).
local removed = call('ZREM', KEYS[2], unpack(ids))
if removed > 0 then
  free = redis.pcall('INCRBY', KEYS[1], removed)
  if type(free) ~= 'number' then
    -- R15: no permit is lost. Leases that have ended are reaped by a request with the right to return them.
    for i = 1, removed do redis.pcall('ZADD', KEYS[2], '0', ids[i]) end
    return free
  end
end
-- The common case, without functions: no process waits.
local divided, alone = KEYS[3] == KEYS[1], nil
if divided or call('EXISTS', KEYS[3], KEYS[4], KEYS[5]) == 0 then
  alone = 0
  if removed > 0 and free > 0 then alone = redis.pcall(ARGV[4], ARGV[3], free) end
  if removed < #ids then return -2 end
  if type(alone) ~= 'number' then return -1 end
  if divided or alone == 0 or not redisson_waits(ARGV[3], ARGV[4]) then return alone end
end

local line, wake, granted, base, publish = KEYS[3], KEYS[4], KEYS[1], ARGV[3], ARGV[4]
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[5], plain = false }
-- @line.lua
if alone then return begin_alone(clock(), alone) end
return returned(clock(), ARGV[1], #ids, removed == #ids, ARGV[5] == '1', removed > 0)
