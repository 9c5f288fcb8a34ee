-- election/candidates
-- Read the live candidates by the time of their last request, the oldest first. Reads only.
--
-- KEYS[1]  candidates  hash  owner -> "<priority> <value>"
-- KEYS[2]  seen        zset  owner -> server ms at which its candidacy ends
--
-- Returns  array of: owner, ms until its candidacy ends, its entry; 256 candidates at most
-- Replay   harmless
-- Wakes    none
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
