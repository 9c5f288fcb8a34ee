-- core/waiting_processes
-- The number of processes that wait for a name. Reads only.
--
-- KEYS[1]  line   sorted set  places of the processes that wait
-- KEYS[2]  crowd  sorted set  where those who wait to read share one place in the line, their own; the line's key again: none
-- KEYS[3]  wake   hash        `sentry`: the process of the line that hears Redisson's releases
-- ARGV[1]  base     channel of Redisson
-- ARGV[2]  publish  PUBLISH or SPUBLISH
--
-- Returns  the number; -1: this user may not count listeners
-- Replay   harmless
-- Wakes    nobody
-- Cost     O(1)
local base, sentry = ARGV[1], redis.call('HGET', KEYS[3], 'sentry')
local numsub = ARGV[2] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local counted = redis.pcall('PUBSUB', numsub, base, base .. ':' .. (sentry or ''))
if counted.err then return -1 end
-- Redisson's clients listen to the base channel, and the sentry does so for the line: its own channel says whether it is there.
local others = math.max(0, counted[2] - (sentry and math.min(1, counted[4]) or 0))
local ours = redis.call('ZCARD', KEYS[1])
if KEYS[2] ~= KEYS[1] then
  if redis.call('ZSCORE', KEYS[1], 'readers+') then ours = ours - 1 end
  ours = ours + redis.call('ZCARD', KEYS[2])
end
return ours + others
