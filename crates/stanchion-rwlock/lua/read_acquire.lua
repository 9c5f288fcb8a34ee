-- rwlock/read_acquire
-- Join the readers, or read inside the write hold of the same owner; otherwise take, or keep, a place in the readers' part of the line.
--
-- KEYS[1]  rwlock     hash    mode, reader -> hold count, writer -> hold count (Redisson's layout)
-- KEYS[2]  line       zset    place -> arrival, server us: one for each process that waits to write, one for all readers
-- KEYS[3]  wake       hash    what is known of clients outside the line
-- KEYS[4]  crowd      zset    place -> arrival, server us: one for each process that waits to read; 20 s without a request end it
-- KEYS[5]  mark       string  a waiting writer's mark, for its grace; the rwlock's own key again: writers have no preference
-- KEYS[6]  turn       string  ".<reader>" while it waits, "!<reader>" when its turn is next, "+" when the turn has begun
-- KEYS[7]  readers    zset    reader -> end of its lease, server ms
-- KEYS[8]  hold key   string  "1" for as long as this reader's lease; every reader's release checks for it
-- ARGV[1]  owner      "<client uuid>:<number>", used for one outermost hold only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  ask        as for a lock: "try", "poll", "new", "look <arrived> <hears>", "ask <arrived> <hears>"; and "join", anew behind another
--                     reader of its process that was granted
-- ARGV[5]  publish    PUBLISH or SPUBLISH
-- ARGV[6]  base       Redisson's channel of the name; with ":<client uuid>" that of one process
-- ARGV[7]  grace      milliseconds for which its mark as a waiter lasts if it is refused; 0: it leaves none
-- ARGV[8]  prefix     the prefix of all readers' hold keys, which are in the slot of KEYS[1]
-- ARGV[9]  writer     the field of the write hold that this reader is inside of; empty: none
--
-- Returns  0 acquired, -1 late, -4 - ms busy: ask again after so long (-3: the writer has no TTL), with a place an array: see `stand`
--          in line.lua
-- Replay   grants again; the count and the place stay (P6)
-- Wakes    when it takes a free lock, or was told to try, other readers that wait: 16 at most; the next in line, with the duty to look
-- Cost     O(log n) for n readers and processes in line, and at most 8 dead readers
local call = redis.call
local lock, line, wake, crowd, mark, turn, readers, hold = unpack(KEYS)
local owner, lease, prefix = ARGV[1], ARGV[2] + 0, ARGV[8]
local ask, arrived, hears = string.match(ARGV[4], '^(%l+) ?(%d*) ?(%d*)$')
local ttl = call('PTTL', lock)
local mode, held, writer
if ttl ~= -2 then
  -- Reading the type first leaves a foreign key untouched (R16); a hash without a mode is a lock's.
  local found = call('HMGET', lock, 'mode', owner, ARGV[9])
  mode, held, writer = found[1], found[2], found[3]
  if not mode then return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode') end
end
local newcomer = not held and not writer
local prefers = mark ~= lock
local turned = prefers and newcomer and call('GET', turn) or ''

-- Busy: a writer holds, or one waits and it is not the readers' turn.
local busy
local passed = turned == '' or string.sub(turned, 1, 1) == '.'
-- The turn of the readers is for those that waited: who comes anew would lengthen it for as long as it may last.
if string.sub(turned, 1, 1) == '+' and (ask == 'new' or ask == 'try') then passed = true end
if newcomer and mode == 'write' then
  busy = ttl
elseif newcomer and prefers and passed then
  local left = call('PTTL', mark)
  if left ~= -2 then busy = left end
end
if busy and ask == 'try' then return -4 - busy end

-- P3: a request that outlived its caller takes nothing, and leaves no mark.
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
if us > ARGV[3] + 0 then return -1 end

local told = ask == 'ask' or ask == 'look'
local waits = (busy or told or not mode) and call('EXISTS', line, crowd) > 0
-- L6: who comes anew does not overtake a line. A free lock with a line is left to others for a moment.
local window = waits and not busy and (ask == 'new' or ask == 'join') and not mode and passed

-- @dead.lua

if not busy and not window then
  -- The hold key first: a field without one looks like a dead reader (R10). Never shorten (R3).
  local now = math.floor(us / 1000)
  if not held or call('PTTL', hold) < lease then call('SET', hold, '1', 'PX', lease) end
  call('ZADD', readers, 'GT', now + lease, owner)
  call('PEXPIRE', readers, math.max(lease, ttl))
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
      call('HDEL', lock, owner)
      if not mode then call('DEL', lock) end
      call('DEL', hold)
      call('ZREM', readers, owner)
      return set
    end
  end
  if turned == '.' .. owner then
    call('DEL', turn)
  elseif string.sub(turned, 1, 1) == '!' then
    -- The readers that wait with it are told, and have this long to join.
    call('SET', turn, '+', 'PX', 250)
  end
  if not waits then return 0 end
end

local publish, base, released, fence = ARGV[5], ARGV[6], '0', lock
-- @line.lua

if not busy and not window then
  call('ZREM', crowd, owner)
  if told and not mode then took(group, ask, lease) end
  local _, _, more = join(lease)
  return unless_unfinished(0, more)
end

local again
if ARGV[7] ~= '0' then
  -- One reader's mark stands for all, and is renewed twice in its grace. After one more writer it is their turn. At maxmemory
  -- there is none.
  if busy and turned == '' then
    redis.pcall('SET', turn, '.' .. owner, 'PX', ARGV[7])
  elseif busy and string.sub(turned, 2) == owner then
    call('PEXPIRE', turn, ARGV[7])
  end
  again = math.floor(ARGV[7] / 2)
end
if ask == 'poll' then
  if waits then note_poll(us) end
  if again and (busy < 0 or busy > again) then busy = again end
  return -4 - busy
end
if arrived == '' then arrived = string.format('%.0f', us) end
row = crowd
local stood = stand(owner, us, busy or -2, arrived, window, hears == '1')
-- Again at the latest when its mark must be renewed, or the writer's that holds it off may have ended.
if again and type(stood) == 'table' and stood[1] and stood[1] < -4 - again then stood[1], stood[5] = -4 - again, 0 end
return stood
