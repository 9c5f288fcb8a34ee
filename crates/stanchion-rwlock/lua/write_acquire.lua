-- rwlock/write_acquire
-- Take a free lock that no process waits for, or find that this writer has it already; otherwise add, or keep, a queue entry.
--
-- KEYS[1]  rwlock   hash    mode, reader -> hold count, writer -> hold count (Redisson's layout)
-- KEYS[2]  fence    string  the last fencing token, no TTL; the rwlock's own key again: mint none
-- KEYS[3]  line     zset    entry -> arrival, server us; see line.lua
-- KEYS[4]  wake     hash    notes about the queue
-- KEYS[5]  readers  zset    reader -> end of its lease, server ms
-- ARGV[1]  owner      "<client uuid>:<number>", used for one outermost hold only (R1); its field is "<owner>:write"
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  ask        as for a lock
-- ARGV[5]  publish    PUBLISH or SPUBLISH
-- ARGV[6]  base       Redisson's channel of the name; with ":<client uuid>" that of one process
-- ARGV[7]  prefix     the prefix of all readers' hold keys, which are in the slot of KEYS[1]
--
-- Returns  > 0 the token, 0 acquired without a token, -1 late, -4 - ms busy: poll after ms (-3: the holder has no TTL), with a queue
--          entry an array: see `stand` in line.lua
-- Replay   grants again with a new, larger token; the count and the entry stay (P6)
-- Wakes    the next in the queue, to poll when the lease ends; up to 64 of the queue after a silent holder; all subscribed processes after the
--          loss of the queue
-- Cost     O(log n) for n processes in the queue; with readers as for their release
local call, fence = redis.call, KEYS[2]
local field = ARGV[1] .. ':write'
-- The common case, without functions: no holder, no queue, and no turn of Redisson's clients. P4: a due poll expects a queue.
if call('EXISTS', KEYS[1], KEYS[3], KEYS[4]) == 0 and string.sub(ARGV[4], 1, 4) ~= 'look' then
  -- P3: a request that outlived its caller takes nothing.
  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  if now > ARGV[3] + 0 then return -1 end

  -- @mint.lua

  call('HSET', KEYS[1], 'mode', 'write', field, '1')
  -- A lock without a TTL must not stay behind, even where PEXPIRE is not permitted (R9).
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if set ~= 1 then
    call('DEL', KEYS[1])
    return set
  end
  return token
end

local lock, _, line, wake, readers = unpack(KEYS)
local lease, publish, base, prefix, announces = ARGV[2] + 0, ARGV[5], ARGV[6], ARGV[7], '1'
local ask, arrived, hears, poll = string.match(ARGV[4], '^(%l+) ?(%d*) ?(%d*) ?(%??)$')
local entry = ARGV[1] .. poll
local ttl = call('PTTL', lock)
local mode, held
if ttl ~= -2 then
  -- Reading the type first leaves a foreign key untouched (R16); a hash without a mode is a lock's.
  local found = call('HMGET', lock, 'mode', field)
  mode, held = found[1], found[2]
  if not mode then return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode') end
  if not held and mode == 'write' and ask == 'try' then return -4 - ttl end
end

-- @dead.lua
-- @line.lua

-- P3: a late request gets no queue entry, either.
local us = clock()
if us > ARGV[3] + 0 then return -1 end

if mode == 'read' and not held then
  -- R8: first, a write that passes at maxmemory.
  call('ZREM', readers, '')
  local fields, again = bury(math.floor(us / 1000), call('HLEN', lock))
  if fields <= 1 then
    call('DEL', lock, readers)
    ttl, mode = -2, nil
  else
    ttl = ttl >= 0 and math.min(ttl, again) or again
  end
end

-- L6: a new waiter does not overtake a queue, nor does an `ask` of a client that polls, except the head: `window` reserves the lock. L5: no
-- waiter takes it in a turn of Redisson's clients.
local head = first()
if ttl == -2 and ask ~= 'try' then
  local foreign_notes = read_turn(us)
  if foreign_notes then return foreign_notes end
end
local lost = is_lost(entry, ask, arrived)
local window = ttl == -2 and (left_ms > 0 or head and (ask == 'new' or ask == 'ask' and poll ~= '' and head ~= entry))
if held or ttl == -2 and not window then
  local token = mint(us)
  -- R4: a replay keeps the count that re-entries have set.
  if not held then call('HSET', lock, 'mode', 'write', field, '1') end
  -- Never shorten (R3).
  if ttl < lease then
    local set = redis.pcall('PEXPIRE', lock, lease)
    if set ~= 1 then
      if not held then call('DEL', lock) end
      return set
    end
  end
  mode, shares = 'write', false
  if ask ~= 'try' then
    if ttl == -2 then took(entry, us, lost and 'ask' or ask, lease) else remove(entry) end
  end
  if lost then call_all(us) end
  return token
end
if ask == 'try' then return -4 - ttl end
local stood = stand(entry, us, ttl, arrived, window, hears == '1', ask, lease)
if lost then call_all(us) end
if mode ~= 'read' then return stood end
-- Readers in the queue may be served before this writer.
local _, _, more = serve(us, entry)
return unless_unfinished(stood, more)
