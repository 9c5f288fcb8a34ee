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
-- Cost     O(1)
local numsub = ARGV[2] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local counted = redis.pcall('PUBSUB', numsub, ARGV[1], ARGV[1] .. ':stanchion')
if counted.err then return -1 end
-- Redisson's clients listen to the base channel; the process of the line that hears it for the others hears the second as well.
local others = math.max(0, counted[2] - counted[4])
local ours = redis.call('ZCARD', KEYS[1])
if KEYS[2] ~= KEYS[1] then
  if redis.call('ZSCORE', KEYS[1], 'readers+') then ours = ours - 1 end
  ours = ours + redis.call('ZCARD', KEYS[2])
end
return ours + others
