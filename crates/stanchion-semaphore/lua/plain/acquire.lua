-- semaphore/acquire
-- Take permits if enough are free and no process waits for them, or confirm that this owner has them already; otherwise add, or keep, a
-- queue entry.
--
-- KEYS[1]  free     string      the number of free permits (Redisson's layout); missing: none
-- KEYS[2]  ledger   hash        owner -> permits; no TTL, because it exists exactly while permits are held
-- KEYS[3]  line     sorted set  entry -> arrival, server us; see line.lua
-- KEYS[4]  wake     hash        notes about the queue
-- KEYS[5]  granted  sorted set  see line_of_permits.lua
-- KEYS[6]  idle     string      see idle.lua
-- ARGV[1]  owner      "<client uuid>:<number>", used for one acquire only (R1)
-- ARGV[2]  wanted     permits, at least 1
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  ask        as for a lock
-- ARGV[5]  base       Redisson's channel of the name; with ":<client uuid>" that of one process
-- ARGV[6]  publish    PUBLISH or SPUBLISH
-- ARGV[7]  kept       ms for which a waiter keeps a semaphore that ends; the waiter polls earlier
-- ARGV[8]  made       "<ms> <permits>": make a missing semaphore, which ends; otherwise empty
--
-- Returns  0 acquired; -1 late; -4 - ms busy: poll after ms (-3: on a message), with a queue entry an array: see `stand` in line.lua.
--          Its last element is "none" if the semaphore does not exist
-- Replay   the ledger has the owner: granted, and nothing is taken again (P6)
-- Wakes    the next in the queue, as far as permits are free; all subscribed processes after the loss of the queue
-- Cost     O(log n) for n processes in the queue; 16 of them at most are looked at
local call = redis.call
local free, exists = free_in(KEYS[1])
local wanted = ARGV[2] + 0
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- P3: a request that outlived its caller takes nothing.
if now > ARGV[3] + 0 then return -1 end

-- The common case, without functions: no process waits. P4: a due poll expects a queue.
if free >= wanted and string.sub(ARGV[4], 1, 4) ~= 'look' and call('EXISTS', KEYS[3], KEYS[4], KEYS[5], KEYS[6]) == 0 then
  if call('HSET', KEYS[2], ARGV[1], ARGV[2]) == 0 then return 0 end
  local left = redis.pcall('DECRBY', KEYS[1], ARGV[2])
  if type(left) == 'number' then return 0 end
  call('HDEL', KEYS[2], ARGV[1])
  return left
end

local line, wake, granted, base, publish = KEYS[3], KEYS[4], KEYS[5], ARGV[5], ARGV[6]
local it = { free = KEYS[1], held = KEYS[2], idle = KEYS[6], plain = true }
if not exists and ARGV[8] ~= '' then free, exists = make(it, ARGV[8]), true end
-- @line.lua
if refused then idle_of(it) end
-- A semaphore that does not exist has no holders.
if not exists then call('DEL', it.held, granted) end
local ask, arrived, hears, poll = string.match(ARGV[4], '^(%l+) ?(%d*) ?(%d*) ?(%??)$')
local entry = ARGV[1] .. '=' .. ARGV[2] .. poll
if call('HGET', it.held, ARGV[1]) then
  -- A replay, or a grant by message, which this confirms.
  call('ZREM', granted, ARGV[1])
  remove(entry)
  return 0
end
return request(entry, wanted, now, ask, arrived, hears == '1', ARGV[7] + 0)
