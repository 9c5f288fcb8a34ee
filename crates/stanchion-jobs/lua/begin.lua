-- jobs/begin
-- Begin a run: acquire the free lock, claim the tick and record both, in one step. So the process that claims a tick also runs it.
--
-- KEYS[1]  lock       hash    owner -> hold count; its TTL is the lease (Redisson's layout)
-- KEYS[2]  fence      string  the last fencing token, no TTL; if it is KEYS[1] again, no token is minted
-- KEYS[3]  record     hash    the last tick and the last run, see docs/protocol.md
-- ARGV[1]  owner      "<client uuid>:<number>", used for one run only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  tick       unix time in milliseconds, or '': a run without a tick
-- ARGV[5]  least      milliseconds from now in which no other run may begin; 0: none
-- ARGV[6]  remember   milliseconds for which the record is kept, and the greatest age of a tick
-- ARGV[7]  ahead      milliseconds by which a tick may be ahead of the server's clock
--
-- Returns  > 0 the token, 0 begun without a token, -1 late, or { code, now, word, ... }:
--          { -4 - ttl, now, 'held', owner, count } (-3: the holder has no TTL); count 0: no run is in progress, the job rests
--          { -3, now, 'ran', the last tick with a finished run, the start of that run in microseconds }
--          { -3, now, 'ahead' } and { -3, now, 'old' }: a tick for which the script cannot tell if it has run
-- Replay   begins again with a new, larger token; the claim stays (P6). After the end of its run, the owner gets -1
-- Wakes    none
-- Cost     O(1)
local call, fence = redis.call, KEYS[2]
local lock, record = KEYS[1], KEYS[3]
local owner, lease, tick = ARGV[1], ARGV[2] + 0, tonumber(ARGV[4])
-- Every type is checked before the first write, so that a foreign key causes an error and stays unchanged (R16).
local ttl = call('PTTL', lock)
local held = ttl ~= -2 and call('HGET', lock, owner)
if ttl ~= -2 and not held and call('HEXISTS', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE this name is in use as a read-write lock')
end
local last = call('HMGET', record, 'tick', 'tick_at', 'owner', 'ended', 'undone', 'was', 'was_at')
local mine = last[3] == owner

-- P3: a request takes nothing if its caller has given up, or if the run that it was sent for has ended.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[3] + 0 or mine and last[4] or last[5] == owner then return -1 end

-- If the record has a claim of this owner, an earlier run of the same request made the claim, and its reply was lost.
if tick and not mine then
  local ran, at = last[1], last[2]
  -- J2: a run in progress may still be undone because its work never began. Until the run ends, only its hold keeps other runs off, not its claim.
  if last[6] and call('HEXISTS', lock, last[3] or '') == 1 then ran, at = last[6], last[7] end
  -- This test comes before the test for a holder, so that a tick that has run is reported as such.
  if (ran or '') ~= '' and tick <= ran + 0 then return { -3, now, 'ran', ran, at } end
  -- A caller whose clock is this far ahead must not claim the ticks of days to come.
  if tick * 1000 > now + ARGV[7] * 1000 then return { -3, now, 'ahead' } end
  -- J3: a tick that is older than the record may or may not have run.
  if tick * 1000 < now - ARGV[6] * 1000 then return { -3, now, 'old' } end
end
if ttl ~= -2 and not held then
  local holder = call('HRANDFIELD', lock, 1, 'WITHVALUES')
  return { -4 - ttl, now, 'held', holder[1], holder[2] }
end

-- @mint.lua

-- R4: a replay keeps the field that it finds.
if not held then call('HSET', lock, owner, '1') end
local failed
if ttl < lease then
  -- R3: never shorten a TTL.
  local set = redis.pcall('PEXPIRE', lock, lease)
  if set ~= 1 then failed = set end
end
if not failed and not mine then
  -- J1: the previous claim is kept in case this run never begins.
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
  -- R9: no lock may stay on the server if it was not granted to a caller.
  if not held then call('HDEL', lock, owner) end
  return failed
end
return token
