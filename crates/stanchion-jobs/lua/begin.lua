-- jobs/begin
-- Begin a run: take the free lock, claim the tick, and note both. One step, so that a tick is claimed by whoever runs it.
--
-- KEYS[1]  lock       hash    owner -> hold count; its TTL is the lease (Redisson's layout)
-- KEYS[2]  fence      string  the last fencing token, no TTL; the lock's own key again: mint none
-- KEYS[3]  record     hash    the last tick and the last run, see docs/protocol.md
-- ARGV[1]  owner      "<client uuid>:<number>", used for one run only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  tick       unix time in milliseconds, or '': a run of no tick
-- ARGV[5]  least      milliseconds from now in which nobody else may run; 0: none
-- ARGV[6]  remember   milliseconds that the record stays, and the greatest age of a tick
-- ARGV[7]  ahead      milliseconds that a tick may be ahead of the server's clock
--
-- Returns  > 0 the token, 0 begun without a token, -1 late, or { code, now, word, ... }:
--          { -4 - ttl, now, 'held', owner, count } (-3: the holder has no TTL); count 0: nobody runs, the lock rests
--          { -3, now, 'ran', the last tick whose run is over, when that began in microseconds }
--          { -3, now, 'ahead' } and { -3, now, 'old' }: a tick that cannot be judged
-- Replay   begins again with a new, larger token; the claim stays (P6). Once its run has ended the owner is late
-- Wakes    nobody
-- Cost     O(1)
local call, fence = redis.call, KEYS[2]
local lock, record = KEYS[1], KEYS[3]
local owner, lease, tick = ARGV[1], ARGV[2] + 0, tonumber(ARGV[4])
-- Foreign keys are found before any write (R16).
local ttl = call('PTTL', lock)
local held = ttl ~= -2 and call('HGET', lock, owner)
if ttl ~= -2 and not held and call('HEXISTS', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE this name is in use as a read-write lock')
end
local last = call('HMGET', record, 'tick', 'tick_at', 'owner', 'ended', 'undone', 'was', 'was_at')
local mine = last[3] == owner

-- P3: a request that outlived its caller, or the run that it was for, takes nothing.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[3] + 0 or mine and last[4] or last[5] == owner then return -1 end

-- A claim of this owner is that of an earlier run of this request, whose reply was lost.
if tick and not mine then
  local ran, at = last[1], last[2]
  -- J2: a run that goes on may still turn out not to have begun. Until it has ended, it keeps others off by its hold alone.
  if last[6] and call('HEXISTS', lock, last[3] or '') == 1 then ran, at = last[6], last[7] end
  -- Before it is asked who holds.
  if (ran or '') ~= '' and tick <= ran + 0 then return { -3, now, 'ran', ran, at } end
  -- Who is wrong by so much must not claim the ticks of days to come.
  if tick * 1000 > now + ARGV[7] * 1000 then return { -3, now, 'ahead' } end
  -- J3: of a tick before the record's time nobody knows whether it has run.
  if tick * 1000 < now - ARGV[6] * 1000 then return { -3, now, 'old' } end
end
if ttl ~= -2 and not held then
  local holder = call('HRANDFIELD', lock, 1, 'WITHVALUES')
  return { -4 - ttl, now, 'held', holder[1], holder[2] }
end

-- @mint.lua

-- R4: a replay keeps what it finds.
if not held then call('HSET', lock, owner, '1') end
local failed
if ttl < lease then
  -- Never shorten (R3).
  local set = redis.pcall('PEXPIRE', lock, lease)
  if set ~= 1 then failed = set end
end
if not failed and not mine then
  -- J1. The claim before it is kept, for the case that this run never begins.
  local note = { 'owner', owner, 'began', string.format('%.0f', now) }
  if tick then
    for _, it in ipairs({ 'tick', ARGV[4], 'tick_at', note[4], 'was', last[1] or '', 'was_at', last[2] or '' }) do note[#note + 1] = it end
  end
  if ARGV[5] ~= '0' then
    note[#note + 1] = 'until'
    note[#note + 1] = string.format('%.0f', math.ceil(now / 1000) + ARGV[5])
  end
  local done = redis.pcall('HDEL', record, 'ended', 'until', 'was', 'was_at')
  if type(done) == 'number' then done = redis.pcall('HSET', record, unpack(note)) end
  if type(done) == 'number' then done = redis.pcall('PEXPIRE', record, ARGV[6]) end
  if type(done) ~= 'number' then failed = done end
end
if failed then
  -- R9: no lock stays that nobody has been given.
  if not held then call('HDEL', lock, owner) end
  return failed
end
return token
