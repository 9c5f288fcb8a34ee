-- multilock/acquire
-- Take several locks if all of them are free. Otherwise take none, and add, or keep, an entry in the queue of one that is not.
--
-- KEYS[1]  lock       hash    owner -> hold count (Redisson's layout); one key for each lock, in name order
-- KEYS[2]  line       zset    entry -> arrival, server us; one key for each lock, after all locks
-- KEYS[3]  wake       hash    notes about the queue; one key for each lock, after all queues
-- KEYS[4]  fence      string  the last fencing token of a lock; one key for each counter, after those
-- ARGV[1]  owner      "<client uuid>:<number>", used for one outermost hold only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  locks      how many of the keys are locks
-- ARGV[5]  publish    PUBLISH or SPUBLISH
-- ARGV[6]  ask        as for a lock
-- ARGV[7]  base       Redisson's channel, one for each lock; then for each lock which of the counters is its own, 0: none
--
-- Returns  > 0 the token of all, 0 acquired without a token, -1 late, { -4 - ttl (-3: no TTL), now, i } busy: the i-th lock is held or
--          reserved, and this owner holds none; with an entry in its queue more elements, see `stand` in line.lua
-- Replay   grants again with a new, larger token: counts are set, never incremented (P6)
-- Wakes    for each lock that it takes as a waiter, the next in its queue, to poll when the lease ends; up to 64 of the queue in which it
--          found a silent holder; all subscribed processes after the loss of the queues; for locks that it cannot keep, or was notified
--          to try and leaves: as a release does (R12)
-- Cost     O(locks), each with O(log n) for n processes in its queue
-- @joint.lua
local ask, arrived, hears, poll = string.match(ARGV[6], '^(%l+) ?(%d*) ?(%d*) ?(%??)$')
local entry = ARGV[1] .. '+' .. poll

-- The common case, without the functions for queues: no holder, no queue, and no turn of Redisson's clients.
-- P4: a due poll expects a queue.
if locks <= 1000 and ask ~= 'look' and call('EXISTS', unpack(KEYS, 1, 3 * locks)) == 0 then
  local time = call('TIME')
  us = time[1] * 1000000 + time[2]
  -- P3: a request that outlived its caller takes nothing.
  if us > ARGV[3] + 0 then return -1 end
  local done, result = pcall(take)
  if done then return result end
end

-- @line.lua

local more
local function free()
  local _, _, left = pass(us)
  more = left or more
end

us = clock()
-- All types are read first, so WRONGTYPE comes before any write and foreign keys stay untouched (R16).
local mine, busy = {}, nil
for i = 1, locks do
  local ttl = call('PTTL', KEYS[i])
  ttls[i] = ttl
  if ttl ~= -2 then
    if call('HGET', KEYS[i], ARGV[1]) then
      mine[#mine + 1] = i
    elseif call('HEXISTS', KEYS[i], 'mode') == 1 then
      return redis.error_reply('WRONGTYPE the name of lock ' .. i .. ' is in use as a read-write lock')
    elseif not busy then
      busy = i
    end
  elseif not busy and ask ~= 'try' then
    -- L6: a new waiter does not overtake a queue, nor does an `ask` of a client that polls, except the head. L5: no waiter takes a lock in a
    -- turn of Redisson's clients.
    local head = call('ZRANGE', KEYS[locks + i], 0, 0)[1]
    local turn = call('HGET', KEYS[2 * locks + i], 'until')
    if turn and ms_until(turn, us, yield_ms * 2 ^ longest) > 0 or head and (ask == 'new' or ask == 'ask' and poll ~= '' and head ~= entry) then busy = i end
  end
end

-- P4: no queue has the entry.
local lost = true
for i = 1, locks do
  at(i)
  lost = lost and is_lost(entry, ask, arrived)
end
local function call_lost()
  for i = 1, lost and locks or 0 do
    at(i)
    call_all(us)
  end
end
if busy then
  for _, i in ipairs(mine) do
    at(i)
    if call('HDEL', lock, ARGV[1]) == 1 then free() end
  end
  if ask == 'try' then return unless_unfinished({ -4 - ttls[busy], us, busy }, more) end
  -- P3: a late request gets no queue entry.
  if us > ARGV[3] + 0 then return unless_unfinished(-1, more) end
  for i = 1, locks do
    if i ~= busy then
      at(i)
      local head = first() == entry
      remove(entry)
      if ttls[i] == -2 then
        -- This process was notified to try this lock, or polls it, and cannot take it.
        if (arrived ~= '' or ask ~= 'new') and call('EXISTS', line) == 1 then free() end
      elseif head then
        -- L4: the new head must poll.
        tell_next(ttls[i])
      end
    end
  end
  at(busy)
  local stood = stand(entry, us, ttls[busy], arrived, ttls[busy] == -2, hears == '1', ask)
  call_lost()
  if type(stood) == 'number' then
    stood = { stood, us, busy }
  elseif stood.err then
    return stood
  else
    table.insert(stood, 3, busy)
  end
  return unless_unfinished(stood, more)
end

-- P3. Checked after busy, which takes nothing either.
if us > ARGV[3] + 0 then return -1 end
local done, result = pcall(take)
if done then
  if ask ~= 'try' then
    -- The locks are taken: errors do not undo that.
    pcall(function()
      for i = 1, locks do
        at(i)
        -- Only in the queue with its entry, the poll may have found a silent holder.
        local stood = call('ZSCORE', line, entry)
        if ttls[i] == -2 then took(entry, us, stood and ask or 'ask', ARGV[2] + 0) else remove(entry) end
      end
      call_lost()
    end)
  end
  return result
end
-- All or nothing, also when rights are missing; and no lock without a TTL stays behind (R9).
-- The error is returned as it is, also if a queue has more dead processes.
for i = 1, taken do
  at(i)
  if redis.pcall('HDEL', lock, ARGV[1]) == 1 then free() end
end
return type(result) == 'table' and result or redis.error_reply(tostring(result))
