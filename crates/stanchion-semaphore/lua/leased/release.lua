-- leased/release
-- Give permits back, and wake as many waiters as are free now.
--
-- KEYS[1]  free     string      the number of free permits
-- KEYS[2]  leases   sorted set  permit id -> end of its lease
-- KEYS[3]  line     list        see line.lua
-- KEYS[4]  crowd    sorted set  see crowd.lua
-- KEYS[5]  wake     hash        see crowd.lua
-- KEYS[6]  idle     string      see idle.lua
-- The last four are KEYS[1] again in a slot in migration, where they may be on another node: the crowd is told later
-- ARGV[1]  ids      of 16 bytes each, concatenated
-- ARGV[2]  channel  not a KEY: it would need a right on a key of that name (R14)
-- ARGV[3]  publish  PUBLISH or SPUBLISH
-- ARGV[4]  client   the uuid of the holder's client
--
-- Returns  >= 0 done: the number of subscribers that got the message; -1 done, but no message could be sent; -2 at least one was not held;
--          { that number, permits } no other process waits: so many are free for the waiters of this one
-- Replay   the ids are no longer there: nothing is given back again (P6)
-- Wakes    as many processes that wait as permits are free, with a grant or a hint, see crowd.lua; Redisson's clients: payload the number of free permits
-- Cost     O(permits, log n), O(log m) for m processes that wait
local ids = {}
for at = 1, #ARGV[1], 16 do ids[#ids + 1] = string.sub(ARGV[1], at, at + 15) end
-- Checked before anything is removed: permits that cannot be given back would be lost (R16).
free_in(KEYS[1])
-- ZREM tests and decides, and passes at maxmemory (R8).
local removed = redis.call('ZREM', KEYS[2], unpack(ids))
if removed == 0 then return -2 end
local free = redis.call('INCRBY', KEYS[1], removed)
local told = 0
if free > 0 then
  -- The common case, without the functions for those who wait.
  if KEYS[4] == KEYS[1] or redis.call('EXISTS', KEYS[4], KEYS[5]) == 0 then
    told = redis.pcall(ARGV[3], ARGV[2], free)
  else
    -- @crowd.lua
    local to = { line = KEYS[3], crowd = KEYS[4], wake = KEYS[5], base = ARGV[2], publish = ARGV[3], free = KEYS[1], leases = KEYS[2] }
    -- A semaphore that ends must first be kept for the lease: who asks does that.
    if can_be_granted(KEYS[1]) and redis.call('EXISTS', KEYS[6]) == 0 then to.grant = grant end
    told = give_back(to, free, ARGV[4])
  end
end
if removed < #ids then
  if type(told) ~= 'table' or told[1] ~= 'tend' then return -2 end
  told[3] = -2
end
return (type(told) == 'number' or told[1]) and told or -1
