-- Takes a permit, or a place at the end of the list. A process that was notified of a permit goes first.
local free = tonumber(redis.call('GET', KEYS[1]))
if free > 0 and (ARGV[2] == 'told' or redis.call('EXISTS', KEYS[2]) == 0) then
  redis.call('DECR', KEYS[1])
  return 1
end
redis.call(ARGV[2] == 'told' and 'LPUSH' or 'RPUSH', KEYS[2], ARGV[1])
return 0
