-- election/leader
-- Read the leader, its remaining lease, and its term. Reads only.
--
-- KEYS[1]  lead  hash  owner -> 1, the leader
-- KEYS[2]  term  hash  owner, priority, since, token, seq and value of the leader
--
-- Returns  { now in us, ttl in ms (-2 no leader, -1 no TTL), and for a leader: the owner, its hold count, and for a leader of
--          this library: priority, since, token, seq, value }
-- Replay   harmless
-- Wakes    none
-- Cost     O(1)
local call = redis.call
local time = call('TIME')
local result = { time[1] * 1000000 + time[2], call('PTTL', KEYS[1]) }
-- The hash of a lock has only one field.
for _, part in ipairs(call('HGETALL', KEYS[1])) do result[#result + 1] = part end
local term = call('HMGET', KEYS[2], 'owner', 'priority', 'since', 'token', 'seq', 'value')
if #result == 4 and term[1] == result[3] then
  for i = 2, 6 do result[#result + 1] = term[i] or '' end
end
return result
