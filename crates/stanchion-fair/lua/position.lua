-- fair/position
-- The number of waiters ahead of a client's first one. Reads only.
--
-- KEYS[1]  queue   list  owners in order of arrival
-- ARGV[1]  client  the client's uuid
--
-- Returns  that number, or -1: none of its waiters is in the queue
-- Replay   harmless
-- Wakes    no waiter
-- Cost     O(that number), or O(n) for n waiters
local page = 128
local from = 0
repeat
  local owners = redis.call('LRANGE', KEYS[1], from, from + page - 1)
  for i, owner in ipairs(owners) do
    if string.sub(owner, 1, #ARGV[1]) == ARGV[1] then return from + i - 1 end
  end
  from = from + page
until #owners < page
return -1
