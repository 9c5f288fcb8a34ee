-- Gives a permit back, and tells the first in the line.
redis.call('INCR', KEYS[1])
local first = redis.call('LPOP', KEYS[2])
if first then redis.call('PUBLISH', first, '1') end
return 0
