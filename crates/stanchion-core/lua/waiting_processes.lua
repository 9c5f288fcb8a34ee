-- core/waiting_processes
-- The number of processes that wait for a name. Reads only.
--
-- KEYS[1]  line  sorted set  entry -> arrival; see line.lua
-- ARGV[1]  base     channel of Redisson
-- ARGV[2]  publish  PUBLISH or SPUBLISH
--
-- Returns  the number; -1: this user has no right to count subscribers
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(processes that wait), up to 1000; the entries after these are counted as they are
local numsub = ARGV[2] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local channels, known, waiting = {}, {}, math.max(0, redis.call('ZCARD', KEYS[1]) - 1000)
for _, entry in ipairs(redis.call('ZRANGE', KEYS[1], 0, 999)) do
  local client = string.sub(entry, 1, 36)
  if not known[client] then
    known[client] = true
    -- A client that polls is subscribed to nothing.
    if string.sub(entry, -1) == '?' then waiting = waiting + 1 else channels[#channels + 1] = ARGV[1] .. ':' .. client end
  end
end
local counted = redis.pcall('PUBSUB', numsub, ARGV[1], ARGV[1] .. ':stanchion', unpack(channels))
if counted.err then return -1 end
-- Redisson's clients subscribe to the base channel only, the relay to the second one as well.
waiting = waiting + math.max(0, counted[2] - counted[4])
-- A dead process keeps its entry until a script checks it, but it is not subscribed.
for i = 6, #counted, 2 do
  if counted[i] > 0 then waiting = waiting + 1 end
end
return waiting
