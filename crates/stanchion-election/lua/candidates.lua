-- election/candidates
-- The candidates that ask, by the time of their last request, the oldest first. Reads only.
--
-- KEYS[1]  candidates  hash  owner -> "<priority> <value>"
-- KEYS[2]  seen        zset  owner -> server ms until which it is a candidate
--
-- Returns  array of: owner, ms for which it is still a candidate, its entry; 256 candidates at most
-- Replay   harmless
-- Wakes    nobody
-- Cost     O(n) for n candidates, 256 at most
local call = redis.call
local time = call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local seen = call('ZRANGEBYSCORE', KEYS[2], ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 256)
local result = {}
for i = 1, #seen, 2 do
  result[#result + 1] = seen[i]
  result[#result + 1] = seen[i + 1] - ms
  result[#result + 1] = call('HGET', KEYS[1], seen[i]) or ''
end
return result
