-- rwlock/read_acquire
-- Join the readers, or read inside the write hold of the same owner; otherwise add, or keep, a queue entry.
--
-- KEYS[1]  rwlock    hash    mode, reader -> hold count, writer -> hold count (Redisson's layout)
-- KEYS[2]  line      zset    entry -> arrival, server us; see line.lua
-- KEYS[3]  wake      hash    notes about the queue
-- KEYS[4]  readers   zset    reader -> end of its lease, server ms
-- KEYS[5]  hold key  string  "1" for as long as this reader's lease; every reader's release checks for it
-- ARGV[1]  owner      "<client uuid>:<number>", used for one outermost hold only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  ask        as for a lock
-- ARGV[5]  publish    PUBLISH or SPUBLISH
-- ARGV[6]  base       Redisson's channel of the name; with ":<client uuid>" that of one process
-- ARGV[7]  side       the suffix of the entry: "R" where a writer that waits comes first, otherwise "r"
-- ARGV[8]  prefix     the prefix of all readers' hold keys, which are in the slot of KEYS[1]
-- ARGV[9]  writer     the field of the write hold that this reader is inside of; empty: none
-- ARGV[10] since      server time in microseconds at which the call began
--
-- Returns  0 acquired, -1 late, -4 - ms busy: poll after ms (-3: the writer has no TTL), with a queue entry an array: see `stand` in
--          line.lua
-- Replay   grants again; the count and the entry stay (P6)
-- Wakes    when it takes a free lock, or joins readers at its poll: other readers in the queue, 16 at most; and the next in the queue, to
--          poll when a lease ends; all subscribed processes after the loss of the queue
-- Cost     O(log n) for n readers and processes in the queue, and at most 8 dead readers
local call = redis.call
local lock, line, wake, readers, hold = unpack(KEYS)
local owner, lease, prefix = ARGV[1], ARGV[2] + 0, ARGV[8]
local ask, arrived, hears, poll = string.match(ARGV[4], '^(%l+) ?(%d*) ?(%d*) ?(%??)$')
local ttl = call('PTTL', lock)
local mode, held, writer
if ttl ~= -2 then
  -- Reading the type first leaves a foreign key untouched (R16); a hash without a mode is a lock's.
  local found = call('HMGET', lock, 'mode', owner, ARGV[9])
  mode, held, writer = found[1], found[2], found[3]
  if not mode then return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode') end
end
local newcomer = not held and not writer
local tries = ask == 'try'
if newcomer and mode == 'write' and tries then return -4 - ttl end

-- P3: a request that outlived its caller takes nothing.
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
if us > ARGV[3] + 0 then return -1 end

local entry = owner .. ARGV[7] .. poll
-- Where writers have no preference, a reader that joins readers does not need the head of the queue.
local joins = mode == 'read' and ARGV[7] == 'r'
local head = newcomer and not joins and call('ZRANGE', line, 0, 0, 'WITHSCORES') or {}
local waits = head[1] ~= nil or newcomer and joins and call('EXISTS', line) == 1
-- L6: a new reader does not overtake a queue, nor does an `ask` of a client that polls, except the head. Where writers have no preference, a reader
-- joins readers that hold. A reader that waited behind another one of its process joins them, too, if it came before the head of the queue.
-- L5: no waiter takes a free lock in a turn of Redisson's clients.
local turn = not mode and not tries and call('HGET', wake, 'until')
-- A turn ends in 128 ms at most: otherwise the server's clock was stepped back.
local in_turn = turn and us < turn + 0 and turn - us <= 128000
local window = ask == 'new' or ask == 'ask' and poll ~= '' and head[1] ~= entry
local free = newcomer and mode ~= 'write' and not in_turn and (not waits or not mode and not window)
if mode == 'read' and waits then free = joins or ARGV[10] + 0 < head[2] + 0 end

-- @dead.lua

if not newcomer or free then
  -- The hold key first: a field without one looks like a dead reader (R10). Never shorten (R3).
  local now = math.floor(us / 1000)
  if not held or call('PTTL', hold) < lease then call('SET', hold, '1', 'PX', lease) end
  -- Before the field: a foreign key is an error, and then this reader does not hold (R16).
  call('ZADD', readers, 'GT', now + lease, owner)
  if not mode then
    call('HSET', lock, 'mode', 'read', owner, '1')
  elseif not held then
    if mode == 'read' then bury_ended(now, 8) end
    call('HSET', lock, owner, '1')
  end
  -- A hold without a TTL must not stay behind, even where PEXPIRE is not permitted (R9).
  if ttl < lease then
    local set = redis.pcall('PEXPIRE', lock, lease)
    if set ~= 1 then
      -- R4: a replay that fails keeps the hold.
      if held then return set end
      if mode then call('HDEL', lock, owner) else call('DEL', lock) end
      call('DEL', hold)
      call('ZREM', readers, owner)
      return set
    end
  end
  call('PEXPIRE', readers, math.max(lease, ttl))
  if not waits and not turn and ask ~= 'look' and not (held and ask == 'ask') then return 0 end
end

local publish, base, announces, fence = ARGV[5], ARGV[6], '0', lock
-- @line.lua

if not newcomer then
  remove(entry)
  return 0
end
local lost = is_lost(entry, ask, arrived)
if free then
  local more
  -- A poll may find readers that no message announced: others in the queue may join them, too.
  if not mode or ask == 'look' then
    mode = 'read'
    local _
    _, _, more = took(entry, us, lost and 'ask' or ask, lease)
  else
    remove(entry)
  end
  if lost then call_all(us) end
  return unless_unfinished(0, more)
end
if tries then return -4 - ttl end
local stood = stand(entry, us, mode and ttl or -2, arrived, not mode, hears == '1', ask, lease)
if lost then call_all(us) end
if mode ~= 'read' or type(stood) ~= 'table' or stood.err then return stood end
-- This reader may be the next that joins the readers.
local _, own, more = serve(us, entry, lease)
return unless_unfinished(own and 0 or stood, more)
