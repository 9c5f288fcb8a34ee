-- leased/acquire
-- Take permits if enough are free and no process waits for them, or confirm that this owner has them already; otherwise add, or keep, a
-- queue entry.
--
-- KEYS[1]  free     string      the number of free permits (Redisson's layout); missing: none
-- KEYS[2]  leases   sorted set  permit id, 16 raw bytes -> end of its lease, server time in ms (Redisson's layout); the TTL of
--                               `free`, mostly none: a request that finds too few free permits reaps ended leases
-- KEYS[3]  line     sorted set  entry -> arrival, server us; see line.lua
-- KEYS[4]  wake     hash        notes about the queue
-- KEYS[5]  idle     string      see idle.lua
-- ARGV[1]  owner      "<client uuid>:<number>", used for one acquire only (R1)
-- ARGV[2]  ids        concatenated: one for each permit that is wanted
-- ARGV[3]  lease      milliseconds
-- ARGV[4]  not_after  server time in microseconds; later the script refuses
-- ARGV[5]  ask        as for a lock
-- ARGV[6]  reap       the most ended leases to reap
-- ARGV[7]  base       Redisson's channel of the name; with ":<client uuid>" that of one process
-- ARGV[8]  publish    PUBLISH or SPUBLISH
-- ARGV[9]  kept       ms for which a waiter keeps a semaphore that ends; the waiter polls earlier
-- ARGV[10] made       "<ms> <permits>": make a missing semaphore, which ends; otherwise empty
--
-- Returns  0 acquired; -1 late; -4 - ms busy: poll after ms, when a lease ends (-3: on a message), with a queue entry an array: see `stand`
--          in line.lua. Its last element is "none" if the semaphore does not exist
-- Replay   the ids are there: granted, their leases only ever lengthened (P6, R3)
-- Wakes    the next in the queue, as far as permits are free; all subscribed processes after the loss of the queue
-- Cost     O(wanted + reap, log n); 16 of the n processes in the queue at most are looked at
local call = redis.call
local free, exists = free_in(KEYS[1])
local ids, held = {}, 0
for at = 1, #ARGV[2], 16 do
  local id = string.sub(ARGV[2], at, at + 15)
  ids[#ids + 1] = id
  if call('ZSCORE', KEYS[2], id) then held = held + 1 end
end
local wanted = #ids
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- P3: a request that outlived its caller takes nothing.
if now > ARGV[4] + 0 then return -1 end
local ends = string.format('%.0f', math.floor(now / 1000) + ARGV[3])

-- The common case, without functions: no process waits. P4: a due poll expects a queue.
if held == 0 and free >= wanted and string.sub(ARGV[5], 1, 4) ~= 'look' and call('EXISTS', KEYS[3], KEYS[4], KEYS[5]) == 0 then
  call('DECRBY', KEYS[1], wanted)
  local scored = {}
  for i, id in ipairs(ids) do
    scored[2 * i - 1] = ends
    scored[2 * i] = id
  end
  local added = redis.pcall('ZADD', KEYS[2], unpack(scored))
  if type(added) ~= 'number' then
    call('INCRBY', KEYS[1], wanted)
    return added
  end
  local ttl = call('PTTL', KEYS[1])
  if ttl > 0 then call('PEXPIRE', KEYS[2], ttl) end
  return 0
end

local line, wake, granted, base, publish = KEYS[3], KEYS[4], KEYS[1], ARGV[7], ARGV[8]
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[5], plain = false }
if not exists and ARGV[10] ~= '' then
  free, exists, held = make(it, ARGV[10]), true, 0
end
-- @line.lua
if refused then idle_of(it) end
-- Before permits are taken or leases extended: a refusal must leave all unchanged, and no lease may outlast the semaphore.
if idle then used(it, idle, free, idle.ms + ARGV[3]) end
local ask, arrived, hears, poll = string.match(ARGV[5], '^(%l+) ?(%d*) ?(%d*) ?(%??)$')
local entry = ARGV[1] .. '=' .. wanted .. poll
if held == wanted then
  -- This ZREM removes no member, but passes at maxmemory, and then ZADD passes, too (R8).
  call('ZREM', it.held, '')
  for _, id in ipairs(ids) do call('ZADD', it.held, 'XX', 'GT', ends, id) end
  remove(entry)
  return 0
end
if held > 0 then
  -- An earlier run took the permits, and some of their leases have been reaped since: start over.
  give_back(nil, held, ids)
end
return request(entry, wanted, now, ask, arrived, hears == '1', ARGV[9] + 0, ARGV[3] + 0, ids, ARGV[6])
