-- double/enter
-- Take a place in the round that fills. The n-th place begins it.
--
-- KEYS[1]  barrier    hash    n, gen (the present half round: even fills, odd is under way), first (that at creation); an hour from the last sign of life
-- KEYS[2]  places     zset    owner -> server ms until which its place is good; as KEYS[1]
-- KEYS[3]  once       string  the answer of this arrival: a resend may come after its round has begun
-- KEYS[4]  answered   string  that of another arrival, which has got it: removed; KEYS[3] for none
-- ARGV[1]  owner      "<client uuid>:<number>", used for one arrival only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  n          the number of parties
-- ARGV[5]  keep       milliseconds that the answer is kept
-- ARGV[6]  publish    PUBLISH or SPUBLISH
-- ARGV[7]  channel
--
-- Returns  { 0, now in us, first, half round, arrival, 1 if it is the last }; -1 late; { -4 - ms after which to ask again, now } a round is under way; { -3, now, n } another number of parties
-- Replay   gives the answer of the first run, and takes no place (P6), unless the first was lost
-- Wakes    all who wait to get in, when the round begins
-- Cost     O(log n), and the dead places
local call = redis.call
local barrier, places, once = KEYS[1], KEYS[2], KEYS[3]
local publish, channel = ARGV[6], ARGV[7]
-- Every type is read before the first write: a foreign key is an error, and stays (R16).
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
-- P5: a place that was lost counts for nothing; then this request takes another.
if answer and not (ends and ends + 0 < ms) then
  -- Another resend may follow.
  call('PEXPIRE', once, ARGV[5])
  -- The caller counts its lease from this request.
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
  -- Somebody is inside: the next round begins when the last has left, or has been dead for its lease.
  local earliest = call('ZRANGE', places, ms, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  return { -4 - (earliest - ms), now }
end
local arrival = live + 1
local last = arrival >= n + 0
local g = inside() and string.format('%.0f', gen + 1) or gen
answer = table.concat({ first, g, arrival, last and 1 or 0 }, ' ')
-- The first write: at maxmemory it is refused before anything has changed, and otherwise lets the rest pass (R8).
call('SET', once, answer, 'PX', ARGV[5])
if KEYS[4] ~= once then call('UNLINK', KEYS[4]) end
if created then
  -- Places of a barrier that is forgotten count for nothing.
  call('DEL', places)
  call('HSET', barrier, 'n', n, 'gen', gen, 'first', first)
end
if dead > 0 then bury(ms) end
-- All that were inside are dead.
if inside() then over() end
call('ZADD', places, string.format('%.0f', ms + ARGV[2]), ARGV[1])
local hour = math.max(3600000, ARGV[2] + 0)
if call('PTTL', barrier) < hour then call('PEXPIRE', barrier, hour) end
if call('PTTL', places) < hour then call('PEXPIRE', places, hour) end
if last then over() end
return answered(answer)
