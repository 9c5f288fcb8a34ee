-- fair/status
-- The holder, its hold count, the rest of its lease, the last token, and the number of waiters. Reads only.
--
-- KEYS[1]  lock   hash    owner -> hold count
-- KEYS[2]  queue  list    owners in order of arrival
-- KEYS[3]  fence  string  the last fencing token; the lock's own key again: none
-- ARGV[1]  the number of waiters to read, to count their processes
--
-- Returns  { ttl in ms (-2 free, -1 no TTL), last token or '', length of the queue, processes, owner, count, ... }
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(ARGV[1]): a lock's hash has one field
local seen, processes = {}, 0
if ARGV[1] + 0 > 0 then
  for _, owner in ipairs(redis.call('LRANGE', KEYS[2], 0, ARGV[1] - 1)) do
    local client = string.match(owner, '^[^:]*')
    if not seen[client] then seen[client], processes = true, processes + 1 end
  end
end
local result = { redis.call('PTTL', KEYS[1]), '', redis.call('LLEN', KEYS[2]), processes }
if KEYS[3] ~= KEYS[1] then result[2] = redis.call('GET', KEYS[3]) or '' end
-- A hash with a second field is another kind of synchronizer's, and may be large: two fields are enough.
local holders = redis.call('HRANDFIELD', KEYS[1], 2, 'WITHVALUES')
for i = 1, #holders do result[#result + 1] = holders[i] end
return result
