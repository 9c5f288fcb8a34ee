-- multilock/release
-- Free several locks: each is granted to the head of its queue, or is free for all.
--
-- KEYS[1]  lock     hash    owner -> hold count; one key for each lock
-- KEYS[2]  line     zset    entry -> arrival, server us; one key for each lock, after all locks
-- KEYS[3]  wake     hash    notes about the queue; one key for each lock, after all queues
-- KEYS[4]  fence    string  the last fencing token of a lock; one key for each counter, after those
-- ARGV[1]  owner
-- ARGV[2]  publish  PUBLISH or SPUBLISH
-- ARGV[3]  locks    how many of the keys are locks
-- ARGV[4]  places   1: give up its queue entries, too
-- ARGV[5]  base     one for each lock; not a KEY: it would need a right on a key of that name (R14). Then for each lock which of
--                   the counters is its own, 0: none
--
-- Returns  >= 0 all freed: the number of subscribers that got a message; -1 all freed, but a message could not be sent; -2 the
--          owner did not hold one of them, and those it held are free
-- Replay   the second run finds nothing to release (P6)
-- Wakes    for each lock the head of its queue, which is granted the lock or notified to try. Without a queue all subscribers: payload 0,
--          as Redisson
-- Cost     O(locks), each with O(log n) for n processes in its queue
local call = redis.call
local publish, locks = ARGV[2], ARGV[3] + 0
local found, missing = {}, false
for i = 1, locks do
  -- HDEL tests and deletes in one step, and passes at maxmemory (R8). A foreign key among them does not stop the others.
  found[i] = redis.pcall('HDEL', KEYS[i], ARGV[1]) == 1
  if not found[i] then missing = true end
end

local told, unheard = 0, false
local function add(heard)
  if type(heard) == 'number' and heard >= 0 then told = told + heard else unheard = true end
end
-- The common case, without the functions for queues: no process waits.
local alone = false
if locks <= 1000 and call('EXISTS', unpack(KEYS, locks + 1, 3 * locks)) == 0 then
  for i = 1, locks do
    if found[i] then add(redis.pcall(publish, ARGV[4 + i], '0')) end
  end
  if missing then return -2 end
  if unheard or told == 0 then return unheard and -1 or told end
  alone = true
end

local lock, fence, line, wake, base
local function at(i)
  lock, line, wake, base = KEYS[i], KEYS[locks + i], KEYS[2 * locks + i], ARGV[4 + i]
  local counter = ARGV[4 + locks + i] + 0
  fence = counter > 0 and KEYS[3 * locks + counter] or lock
end

-- @line.lua

local us, more = clock(), nil
for i = 1, alone and locks or 0 do
  at(i)
  begin_alone(us, told)
end
if alone then return told end
local function free()
  local heard, _, left = pass(us)
  more = left or more
  return heard
end
for i = 1, locks do
  at(i)
  local stood = false
  if ARGV[4] == '1' then
    local head
    stood, head = quit(ARGV[1] .. '+')
    -- L4: the new head must poll.
    if head then
      local ttl = call('PTTL', lock)
      if ttl ~= -2 then
        tell_next(ttl)
        if call('EXISTS', line) == 0 then forget() end
      end
    end
  end
  if found[i] or stood and call('EXISTS', lock) == 0 then add(free()) end
end
return unless_unfinished(missing and -2 or unheard and -1 or told, more)
