-- barrier/status
-- Read the state of a barrier of either kind.
--
-- KEYS[1]  barrier  hash  see barrier/arrive
-- KEYS[2]  places   zset  owner -> server ms at which its lease ends
--
-- Returns  { n, next or 0, round, 1 if a leaving party breaks it, live places, ms until the first lease ends: -1 none }; nil without a barrier
-- Replay   harmless
-- Wakes    none
-- Cost     O(log n)
local call = redis.call
local time = call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local live = call('ZCOUNT', KEYS[2], ms, '+inf')
local n, gen, policy, after = unpack(call('HMGET', KEYS[1], 'n', 'gen', 'policy', 'next'))
if not gen then
  if call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('WRONGTYPE the key holds no barrier')
  end
  return false
end
local first = call('ZRANGE', KEYS[2], ms, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
return { n + 0, (after or 0) + 0, gen + 0, policy == 'b' and 1 or 0, live, first and first - ms or -1 }
