-- core/waiting_processes
-- The number of processes that wait for a name. Reads only.
--
-- KEYS[1]  line   sorted set  places of the processes that wait
-- KEYS[2]  crowd  sorted set  where those who wait to read share one place in the line, their own; the line's key again: none
-- ARGV[1]  base     channel of Redisson
-- ARGV[2]  publish  PUBLISH or SPUBLISH
--
-- Returns  the number; -1: this user may not count listeners
-- Replay   harmless
-- Wakes    nobody
-- Cost     O(processes that wait), up to 1000 of each key; the places after these are counted as they are
local numsub = ARGV[2] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local channels, known, rest = {}, {}, 0
for key = 1, KEYS[2] == KEYS[1] and 1 or 2 do
  for _, place in ipairs(redis.call('ZRANGE', KEYS[key], 0, 999)) do
    local client = string.sub(place, 1, 36)
    -- The place that the readers share is shorter.
    if #client == 36 and not known[client] then
      known[client] = true
      channels[#channels + 1] = ARGV[1] .. ':' .. client
    end
  end
  rest = rest + math.max(0, redis.call('ZCARD', KEYS[key]) - 1000)
end
local counted = redis.pcall('PUBSUB', numsub, ARGV[1], ARGV[1] .. ':stanchion', unpack(channels))
if counted.err then return -1 end
-- Redisson's clients listen to the base channel; the process of the line that hears it for the others hears the second as well.
local waiting = math.max(0, counted[2] - counted[4]) + rest
-- A dead process keeps its place until a script checks it, but it is not subscribed.
for i = 6, #counted, 2 do
  if counted[i] > 0 then waiting = waiting + 1 end
end
return waiting
