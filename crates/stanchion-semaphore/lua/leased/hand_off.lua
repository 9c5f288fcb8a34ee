-- leased/hand_off
-- Pass permits to another owner of the same process in one step.
--
-- KEYS[1]  free     string      the number of free permits
-- KEYS[2]  leases   sorted set  permit id -> end of its lease; the TTL of `free`, mostly none
-- KEYS[3]  line     sorted set  entry -> arrival
-- KEYS[4]  wake     hash        notes about the queue
-- KEYS[5]  idle     string      see idle.lua
-- ARGV[1]  to         ids of 16 bytes each, concatenated: those that the new owner gets
-- ARGV[2]  lease      milliseconds, of the new owner
-- ARGV[3]  not_after  server time in microseconds; later this is a plain release
-- ARGV[4]  from       as many ids: those that are given up
-- ARGV[5]  base       not a KEY: it would need a right on a key of that name (R14)
-- ARGV[6]  publish    PUBLISH or SPUBLISH
--
-- Returns  0 passed on; -1 late: released; -2 at least one was not held, and the others are free; -3 released, because more is held than
--          there are, or a request for several permits has its turn
-- Replay   the ids are no longer there: -2. The client sends it once, and after a lost reply undoes the grant to `to` (P3)
-- Wakes    no waiter; where it releases: as a release does
-- Cost     O(permits, log n) for n processes in the queue
local call = redis.call
local function ids_in(text)
  local ids = {}
  for at = 1, #text, 16 do ids[#ids + 1] = string.sub(text, at, at + 15) end
  return ids
end
local from = ids_in(ARGV[4])
-- Checked before anything is removed: permits that cannot be given back would be lost (R16).
local free = free_in(KEYS[1])
local line, wake, granted, base, publish = KEYS[3], KEYS[4], KEYS[1], ARGV[5], ARGV[6]
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[5], plain = false }
-- @line.lua
-- Before permits are removed: a refusal must leave all unchanged, and no lease may outlast the semaphore.
if idle then used(it, idle, free, idle.ms + ARGV[2]) end
local us = clock()
-- While a request for several permits has its turn, freed permits are kept for that request: see line_of_permits.lua.
local waits, ends = unpack(call('HMGET', wake, 'waits', 'ends'))
local big = waits and waits ~= '' and us < ends + 0 and call('ZSCORE', line, waits)
-- ZREM tests and decides, and passes at maxmemory (R8).
local removed = call('ZREM', it.held, unpack(from))
if removed == 0 then return -2 end
local late = us > ARGV[3] + 0
-- Below zero, the total was lowered, and the permits must not be passed on. After an error they are given back below (R15).
if not late and not big and removed == #from and free >= 0 then
  if pcall(lease_of, ids_in(ARGV[1]), string.format('%.0f', math.floor(us / 1000) + ARGV[2])) then return 0 end
end
give_back(removed)
local _, more
if free > 0 then _, _, more = pass(us) end
return unless_unfinished(removed < #from and -2 or late and -1 or -3, more)
