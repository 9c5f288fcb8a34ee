-- Releases a permit, and notifies the first process in the list.
redis.call('INCR', KEYS[1])
local first = redis.call('LPOP', KEYS[2])
if first then redis.call('PUBLISH', first, '1') end
return 0
