-- multilock/release
-- Free all of several locks, and wake a waiter of each.
--
-- KEYS[1]  lock     hash  owner -> hold count; one key for each lock
-- ARGV[1]  owner
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  channel  one for each lock; not a KEY: it would need a right on a key of that name (R14)
--
-- Returns  >= 0 all freed: the number of subscribers that got a message; -1 all freed, but a message could not be sent; -2 the
--          owner did not hold one of them, and those it held are free
-- Replay   the second run finds nothing to release (P6)
-- Wakes    for each lock one waiter in each process that waits: payload 0, as Redisson
-- Cost     O(locks) and the server's delivery to the subscribers
local told, missing, unheard = 0, false, false
for i = 1, #KEYS do
  -- HDEL tests and deletes in one step, and passes at maxmemory (R8). A foreign key among them does not stop the others.
  if redis.pcall('HDEL', KEYS[i], ARGV[1]) == 1 then
    local heard = redis.pcall(ARGV[2], ARGV[2 + i], '0')
    if type(heard) == 'number' then told = told + heard else unheard = true end
  else
    missing = true
  end
end
if missing then return -2 end
return unheard and -1 or told
