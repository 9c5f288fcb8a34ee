-- barrier/arrive
-- Take a place in the present round. The n-th place trips it.
--
-- KEYS[1]  barrier    hash    n, gen (this round), first (round at creation), policy (see ARGV[5]), next (n from the next round on), broken; TTL 1 h
-- KEYS[2]  places     zset    owner -> server ms at which its lease ends; below zero: see bury.lua; TTL as KEYS[1]
-- KEYS[3]  once       string  the answer to this arrival, because a resend may come after its round
-- KEYS[4]  answered   string  the answer to another arrival, which has received it: removed; KEYS[3] for none
-- ARGV[1]  owner      "<client uuid>:<number>", used for one arrival only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  n          the number of parties
-- ARGV[5]  policy     f: a place is given back; b: a leaving party breaks the round. The first place of a round decides
-- ARGV[6]  keep       milliseconds for which the answer is kept
-- ARGV[7]  publish    PUBLISH or SPUBLISH
-- ARGV[8]  channel
--
-- Returns  { 0, now in us, first, round, arrival, 1 if it tripped the round, 1 if a leaving party breaks it, ms until the next poll: -1 none }; -1
--          late; { -3, now, n } another number of parties
-- Replay   gives the answer of the first run, and takes no place (P6), unless the place was lost
-- Wakes    all waiters of the round, when it trips or breaks because a party is dead: one message
-- Cost     O(log n), and the dead places
local call = redis.call
local barrier, places, once = KEYS[1], KEYS[2], KEYS[3]
local publish, channel = ARGV[7], ARGV[8]
-- Every type is checked before the first write, so that a foreign key causes an error and stays unchanged (R16).
-- @round.lua
local standing = call('ZCOUNT', places, 0, '+inf')
local ends = call('ZSCORE', places, ARGV[1])
local answer = call('GET', once)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)
local function answered(text, look)
  local f, g, arrival, last, breaks = string.match(text, '^(%d+) (%d+) (%d+) (%d) (%d)$')
  return { 0, now, f + 0, g + 0, arrival + 0, last + 0, breaks + 0, look }
end
local lost = ends and ends + 0 < ms
local breaks = answer and string.sub(answer, -1) == '1'
if answer and (breaks or not lost) then
  -- Another resend may follow, so the answer is kept for longer.
  call('PEXPIRE', once, ARGV[6])
  if lost and ends + 0 >= 0 then
    -- The lease of this party has ended, which breaks its round.
    over('d')
  elseif ends and not lost then
    -- The lease counts from this request, as in the caller.
    call('ZADD', places, 'XX', 'GT', string.format('%.0f', ms + ARGV[2]), ARGV[1])
  end
  return answered(answer, -1)
end
-- P5: a lost place does not count, and this request takes another. P3: a request that outlived its caller takes no place.
if now > ARGV[3] + 0 then return -1 end
local dead = standing > 0 and call('ZCOUNT', places, 0, ms - 1) or 0
if dead > 0 and policy == 'b' then
  over('d')
  standing, dead = 0, 0
end
local created = not gen
if created then
  -- Places of a barrier that has expired do not count.
  n, first, standing, dead = ARGV[4], string.format('%.0f', now), 0, 0
  gen = first
elseif n ~= ARGV[4] then
  return { -3, now, n + 0 }
end
local arrival = standing - dead + 1
local last = arrival >= n + 0
if arrival == 1 then policy = ARGV[5] end
answer = table.concat({ first, gen, arrival, last and 1 or 0, policy == 'b' and 1 or 0 }, ' ')
-- The first write. At maxmemory Redis refuses it before anything has changed; otherwise Redis allows the other writes, too (R8).
call('SET', once, answer, 'PX', ARGV[6])
if KEYS[4] ~= once then call('UNLINK', KEYS[4]) end
if created then
  call('DEL', places)
  call('HSET', barrier, 'n', n, 'gen', gen, 'first', first)
end
if arrival == 1 then call('HSET', barrier, 'policy', policy) end
if dead > 0 then bury(ms) end
local hour = math.max(3600000, ARGV[2] + 0)
if call('PTTL', barrier) < hour then call('PEXPIRE', barrier, hour) end
if last then
  -- P6: remove the mark of the lost place, so that only the answer stays. A resend would otherwise take the mark for the loss of this arrival.
  if ends then call('ZREM', places, ARGV[1]) end
  over()
  return answered(answer, -1)
end
call('ZADD', places, string.format('%.0f', ms + ARGV[2]), ARGV[1])
if call('PTTL', places) < hour then call('PEXPIRE', places, hour) end
local look = -1
-- No message announces the death of a party, so a waiter polls when the first lease ends.
if policy == 'b' then look = math.max(0, call('ZRANGE', places, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2] - ms) end
return answered(answer, look)
