-- double/enter
-- Take a place in the round that fills. The n-th place starts the round.
--
-- KEYS[1]  barrier    hash    n, gen (this half round: even fills, odd is under way), first (gen at creation); TTL 1 h after the last use
-- KEYS[2]  places     zset    owner -> server ms at which its lease ends; TTL as KEYS[1]
-- KEYS[3]  once       string  the answer to this arrival, because a resend may come after its round has begun
-- KEYS[4]  answered   string  the answer to another arrival, which has received it: removed; KEYS[3] for none
-- ARGV[1]  owner      "<client uuid>:<number>", used for one arrival only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  n          the number of parties
-- ARGV[5]  keep       milliseconds for which the answer is kept
-- ARGV[6]  publish    PUBLISH or SPUBLISH
-- ARGV[7]  channel
--
-- Returns  { 0, now in us, first, half round, arrival, 1 if it is the last }; -1 late; { -3, now, n } another number of parties; { -4 - ms until the
--          next request, now } a round is under way
-- Replay   gives the answer of the first run, and takes no place (P6), unless the place was lost
-- Wakes    all waiters for the round, when it begins
-- Cost     O(log n), and the dead places
local call = redis.call
local barrier, places, once = KEYS[1], KEYS[2], KEYS[3]
local publish, channel = ARGV[6], ARGV[7]
-- Every type is checked before the first write, so that a foreign key causes an error and stays unchanged (R16).
-- @half.lua
local standing = call('ZCOUNT', places, 0, '+inf')
local ends = call('ZSCORE', places, ARGV[1])
local answer = call('GET', once)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)
local function answered(text)
  local f, g, arrival, last = string.match(text, '^(%d+) (%d+) (%d+) (%d)$')
  return { 0, now, f + 0, g + 0, arrival + 0, last + 0 }
end
-- P5: a lost place does not count, and this request takes another.
if answer and not (ends and ends + 0 < ms) then
  -- Another resend may follow, so the answer is kept for longer. The lease counts from this request, as in the caller.
  call('PEXPIRE', once, ARGV[5])
  if ends then call('ZADD', places, 'XX', 'GT', string.format('%.0f', ms + ARGV[2]), ARGV[1]) end
  return answered(answer)
end
-- P3: a request that outlived its caller takes no place.
if now > ARGV[3] + 0 then return -1 end
local created = not gen
if created then
  n, first, standing = ARGV[4], string.format('%.0f', 2 * now), 0
  gen = first
elseif n ~= ARGV[4] then
  return { -3, now, n + 0 }
end
local dead = standing > 0 and call('ZCOUNT', places, 0, ms - 1) or 0
local live = standing - dead
if inside() and live > 0 then
  -- A party is inside. The next round begins when the last one has left, or has been dead for its lease.
  local earliest = call('ZRANGE', places, ms, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  return { -4 - (earliest - ms), now }
end
local arrival = live + 1
local last = arrival >= n + 0
local g = inside() and string.format('%.0f', gen + 1) or gen
answer = table.concat({ first, g, arrival, last and 1 or 0 }, ' ')
-- The first write. At maxmemory Redis refuses it before anything has changed; otherwise Redis allows the other writes, too (R8).
call('SET', once, answer, 'PX', ARGV[5])
if KEYS[4] ~= once then call('UNLINK', KEYS[4]) end
if created then
  -- Places of a barrier that has expired do not count.
  call('DEL', places)
  call('HSET', barrier, 'n', n, 'gen', gen, 'first', first)
end
if dead > 0 then bury(ms) end
-- All parties that were inside are dead.
if inside() then over() end
call('ZADD', places, string.format('%.0f', ms + ARGV[2]), ARGV[1])
local hour = math.max(3600000, ARGV[2] + 0)
if call('PTTL', barrier) < hour then call('PEXPIRE', barrier, hour) end
if call('PTTL', places) < hour then call('PEXPIRE', places, hour) end
if last then over() end
return answered(answer)
