-- rwlock/write_acquire
-- Take a free lock that no process waits for, or find that this writer has it already; otherwise take, or keep, a place in the line.
--
-- KEYS[1]  rwlock     hash    mode, reader -> hold count, writer -> hold count (Redisson's layout)
-- KEYS[2]  fence      string  the last fencing token, no TTL; the rwlock's own key again: mint none
-- KEYS[3]  line       zset    place -> arrival, server us: one for each process that waits to write, one for all readers; 20 s without
--                             a request end it
-- KEYS[4]  wake       hash    what is known of clients outside the line; 60 s, and ends with the line
-- KEYS[5]  crowd      zset    place -> arrival, of readers
-- KEYS[6]  mark       string  a waiting writer's mark, for its grace; the rwlock's own key again: writers have no preference
-- KEYS[7]  turn       string  ".<reader>" while it waits, "!<reader>" when its turn is next, "+" when the turn has begun
-- KEYS[8]  readers    zset    reader -> end of its lease, server ms
-- ARGV[1]  owner      "<client uuid>:<number>", used for one outermost hold only (R1); its field is "<owner>:write"
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  ask        as for a lock: "try", "poll", "new", "look <arrived> <hears>", "ask <arrived> <hears>"
-- ARGV[5]  publish    PUBLISH or SPUBLISH
-- ARGV[6]  base       Redisson's channel of the name; with ":<client uuid>" that of one process
-- ARGV[7]  grace      milliseconds for which new readers are held off if it is busy; 0: they are not
-- ARGV[8]  prefix     the prefix of all readers' hold keys, which are in the slot of KEYS[1]
--
-- Returns  > 0 the token, 0 acquired without a token, -1 late, -4 - ms busy: ask again after so long (-3: the holder has no TTL), with a
--          place an array: see `stand` in line.lua
-- Replay   grants again with a new, larger token; the count and the place stay (P6)
-- Wakes    the next in line, with the duty to look; up to 64 of the line when a holder turns out to be silent
-- Cost     O(log n) for n processes in line; with readers as for their release
local call, fence = redis.call, KEYS[2]
local field = ARGV[1] .. ':write'
-- The common case, without functions: nobody holds and nobody waits.
if call('EXISTS', KEYS[1], KEYS[3], KEYS[5], KEYS[6], KEYS[7]) == 0 then
  -- P3: a request that outlived its caller takes nothing, and holds nobody off.
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

local lock, _, line, wake, crowd, mark, turn, readers = unpack(KEYS)
local lease, publish, base, prefix = ARGV[2] + 0, ARGV[5], ARGV[6], ARGV[8]
local ask, arrived, hears = string.match(ARGV[4], '^(%l+) ?(%d*) ?(%d*)$')
local ttl = call('PTTL', lock)
local mode, held
if ttl ~= -2 then
  -- Reading the type first leaves a foreign key untouched (R16); a hash without a mode is a lock's.
  local found = call('HMGET', lock, 'mode', field)
  mode, held = found[1], found[2]
  if not mode then return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode') end
  if not held and mode == 'write' and ask == 'try' then return -4 - ttl end
end

local released = '1'
-- @dead.lua
-- @line.lua

-- P3, for the place and the mark as for the lock.
local us = clock()
if us > ARGV[3] + 0 then return -1 end

if mode == 'read' and not held then
  -- R8: first, a write that passes at maxmemory.
  call('ZREM', readers, '')
  local fields, again = bury(math.floor(us / 1000), call('HLEN', lock))
  if fields <= 1 then
    call('DEL', lock, readers)
    ttl = -2
  else
    ttl = ttl >= 0 and math.min(ttl, again) or again
  end
end

-- The readers have let one writer pass: it is their turn.
local yields = not held and due() ~= nil
local waits = first() ~= nil
-- L6: who comes anew does not overtake a line. A free lock with a line is left to others for a moment.
local window = ask == 'new' and ttl == -2 and waits
if held or ttl == -2 and not yields and not window then
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
  if not held then
    passes(field)
  elseif mark ~= lock and call('GET', mark) == field then
    call('DEL', mark)
  end
  if waits and ask ~= 'try' and ask ~= 'poll' then
    if ttl == -2 then took(ARGV[1], ask, lease) else call('ZREM', line, ARGV[1]) end
  end
  return token
end

if yields and ttl == -2 then ttl = call('PTTL', turn) end
if ask == 'try' then return -4 - ttl end
local again
if ARGV[7] ~= '0' then
  -- The mark is renewed twice in its grace, for as long as this writer waits. At maxmemory there is none.
  redis.pcall('SET', mark, field, 'PX', ARGV[7])
  again = math.floor(ARGV[7] / 2)
end
if ask == 'poll' then
  if waits then note_poll(us) end
  if again and (ttl < 0 or ttl > again) then ttl = again end
  return -4 - ttl
end
if arrived == '' then arrived = string.format('%.0f', us) end
local stood = stand(ARGV[1], us, ttl, arrived, window and not yields, hears == '1')
if type(stood) == 'table' and stood[1] then
  if again and stood[1] < -4 - again then stood[1], stood[5] = -4 - again, 0 end
  -- It asks again when the turn of the readers is over, and does not take that for a holder's silence.
  if yields then stood[6] = 1 end
end
return stood
