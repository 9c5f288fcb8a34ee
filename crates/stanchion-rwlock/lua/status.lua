-- rwlock/status
-- The mode, the holders, their hold counts, the longest TTL, and the last token. Reads only.
--
-- KEYS[1]  rwlock  hash    mode, reader -> hold count, writer -> hold count
-- KEYS[2]  fence   string  the last fencing token; the rwlock's own key again: none
-- KEYS[3]  line    zset    entry -> arrival; see line.lua
-- KEYS[4]  readers  zset  reader -> end of its lease, server ms
-- ARGV[1]  most    the largest number of holders to list
-- ARGV[2]  prefix  the prefix of all readers' hold keys
--
-- Returns  { ttl in ms (-2 free, -1 no TTL), last token or '', mode or '', holders that are not known to be dead,
--            1 if a writer waits at the head, field, count, the rest of that reader's lease in ms (-2: not known), ... }
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(listed holders); if there are more, those listed are chosen at random
local call = redis.call
local head = call('ZRANGE', KEYS[3], 0, 0)[1]
local result = { call('PTTL', KEYS[1]), '', '', 0, head and not string.find(head, '[rR]') and 1 or 0 }
if KEYS[2] ~= KEYS[1] then result[2] = call('GET', KEYS[2]) or '' end
if result[1] == -2 then return result end
local mode = call('HGET', KEYS[1], 'mode')
if not mode then return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode') end
result[3] = mode
result[4] = call('HLEN', KEYS[1]) - 1
-- A reader whose lease has ended is dead, and stays until another script removes it.
local time = call('TIME')
local dead = {}
local ended = call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. time[1] * 1000 + math.floor(time[2] / 1000), 'LIMIT', 0, ARGV[1])
for i = 1, #ended do
  if call('HEXISTS', KEYS[1], ended[i]) == 1 and call('EXISTS', ARGV[2] .. ended[i] .. ':rwlock_timeout:1') == 0 then
    dead[ended[i]] = true
    result[4] = result[4] - 1
  end
end
local fields = call('HRANDFIELD', KEYS[1], ARGV[1] + 1, 'WITHVALUES')
for i = 1, #fields, 2 do
  if fields[i] ~= 'mode' and not dead[fields[i]] and #result < 5 + 3 * ARGV[1] then
    result[#result + 1] = fields[i]
    result[#result + 1] = fields[i + 1]
    -- A writer has no hold key: its hold ends with the lock.
    result[#result + 1] = call('PTTL', ARGV[2] .. fields[i] .. ':rwlock_timeout:1')
  end
end
return result
