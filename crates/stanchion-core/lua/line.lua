-- The line of the processes that wait for a lock: for every script that may free it, or find it taken.
--
-- A process has one place in it, whatever waits inside: the member "<client uuid>:<number>", with a "+" behind it where the
-- process must be asked to try instead of being granted. Needs the locals `call`, `lock`, `fence`, `line`, `wake` (their keys),
-- `base` (Redisson's channel of the name; with ":<client uuid>" that of one process) and `publish`; and what a hold is, see
-- `line_of_lock.lua`.
--
-- Messages to a process: "G owner token us ms fence" granted at `us` for `ms`, with a token of that counter ("-" none); "N ms" it is
-- the head now, and the holder's time may run out in `ms`; "P ms" try in `ms`; "A" its place was taken off the line.

-- Milliseconds: of a grant by message, until its holder renews it; of a line that nobody asks in; the longest pause between two
-- looks; the pause of a process that is not the head, for each place in the line; the head start of clients outside the line, and
-- of a process that was told to try.
local granted_ms, line_ms, poll_ms, each_ms, yield_ms, try_ms = 1500, 20000, 5000, 500, 2, 25
-- P11: the most places looked at in one run, and the most that are asked whether they live.
local sweep, roll = 16, 64

local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- @mint_function.lua
-- Returns how many heard it; -1: there is no right to publish.
local function send(place, payload)
  local told = redis.pcall(publish, base .. ':' .. string.sub(place, 1, 36), payload)
  return type(told) == 'number' and told or -1
end

-- Puts a place into a key, or keeps it. Returns a number, or the error. R9, R16: no key stays without a TTL, and a foreign one untouched.
local function place_in(key, place, arrived)
  local added = redis.pcall('ZADD', key, 'NX', arrived, place)
  if type(added) ~= 'number' then return added end
  local set = redis.pcall('PEXPIRE', key, line_ms)
  if set == 1 then return added end
  call('ZREM', key, place)
  return set
end

-- @kind.lua

-- L4: the head has the duty to look when the holder's time is over, because an expiry sends no message.
local function tell_next(ms)
  local head = first()
  if head then tell(head, string.format('N %d', ms)) end
end

-- After a request of `place` that took the free lock, for `lease`.
local function took(place, ask, lease)
  call('ZREM', line, place)
  if ask == 'look' then
    -- L3: nobody gave it, so a holder or a grantee was silent, and others may be. The living among them ask again.
    local asked = call('ZRANGE', line, 0, roll - 1)
    if #asked > 0 then call('ZREM', line, unpack(asked)) end
    for _, other in ipairs(asked) do tell(other, 'A') end
  elseif call('HGET', wake, 'turn') == '0' then
    call('HINCRBY', wake, 'unused', 1)
  end
  tell_next(lease)
end

-- Publishes `payload` to the first subscribed process, and removes the places in front of it (L2). Returns the number of receivers, and
-- whether places are left to check.
local function tell_first(payload)
  for _ = 1, sweep do
    local head = first()
    if not head then return 0 end
    local told = tell(head, payload)
    if told ~= 0 then return told end
    call('ZREM', line, head)
  end
  return 0, first() ~= nil
end

-- Grants the free lock to the head of the line. `me` runs its own attempt, with `lease`, and needs no message.
-- Returns the number of subscribers notified (-1: none can be), the token if it was granted to `me`, and, if there are more places to
-- look at, the ms until that is due.
local function serve(us, me, lease)
  for _ = 1, sweep do
    local head = due() or first()
    if not head then
      call('DEL', wake)
      return 0
    end
    if head == 'outside' then
      local pause = give_way()
      local told, more = tell_first(string.format('P %d', pause))
      return told, nil, more and pause
    end
    -- Who waits there cannot be granted to, so it tries by itself. Should it not, the next one does.
    local asks = string.sub(head, -1) == '+'
    -- Minting comes first, because it may fail.
    local token = asks or mint(us)
    call('ZREM', line, head)
    if asks then
      local told = tell(head, 'P 0')
      if told > 0 then
        local watch = call('ZRANGE', line, 0, 0)[1]
        if watch then tell(watch, string.format('P %d', try_ms)) end
      end
      if told ~= 0 then return told end
    else
      enter(head)
      -- L13: for a short time, so that a grant to a process that has just died costs no lease.
      local set = redis.pcall('PEXPIRE', lock, head == me and lease or granted_ms)
      if set ~= 1 then
        -- R9.
        leave(head)
        error(set)
      end
      if head == me then return 0, token end
      -- L11: dated by the server's clock, because a paused process may read it late.
      local told = tell(head, string.format('G %s %.0f %.0f %d %s', head, token, us, granted_ms, fence == lock and '-' or fence))
      if told > 0 then
        tell_next(granted_ms)
        return told
      end
      -- L2: nobody heard it, so that process is gone. Without the right to publish nobody can be granted to (L14).
      leave(head)
      if told < 0 then return told end
    end
  end
  return 0, nil, 0
end

-- The clients that wait outside the line: Redisson's, which hear only `base`, and stanchion's that poll. A client of stanchion's that hears
-- `base` hears a second channel as well (L7).
local function others(us)
  local polled = call('HGET', wake, 'polled')
  local numsub = publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
  local counted = redis.pcall('PUBSUB', numsub, base, base .. ':stanchion')
  polled = polled and us - polled < 1000000 and 1 or 0
  -- Without the right to count it is one: they must not be starved.
  if counted.err then return 1 + polled end
  -- The two are ended one after the other.
  return math.max(0, counted[2] - counted[4]) + polled
end

-- Notes that a client outside the line polls: it hears no grant, so it is left a turn now and then.
local function note_poll(us)
  redis.pcall('HSET', wake, 'polled', string.format('%.0f', us))
  redis.pcall('PEXPIRE', wake, 60000)
end

-- Leaves the free lock to those outside the line, if it is their turn: as many turns of the line for one of theirs as there are
-- processes in it for each of them, 16 at most. A turn that they did not take makes the next one come half as often.
-- Returns how many heard of it, or nil: it is the line's turn; and as `serve` if there are more places to look at.
local function make_public(us)
  local outside = others(us)
  if outside <= 0 then return nil end
  local turns = math.ceil((waiting() + 1) / outside) * 2 ^ (call('HGET', wake, 'unused') or 0)
  local passed = call('HINCRBY', wake, 'turn', 1)
  call('PEXPIRE', wake, 60000)
  if passed < math.min(16, turns) then return nil end
  call('HSET', wake, 'turn', '0')
  -- Redisson reads it as a release; the client that hears for the line knows that it is none of Redisson's.
  local told = redis.pcall(publish, base, '0' .. released)
  -- L5: one of the line must look, because those outside may be gone by now.
  local heard, more = tell_first(string.format('P %d', yield_ms))
  return math.max(type(told) == 'number' and told or -1, heard), more and yield_ms
end

-- The lock was freed: whoever is next gets it, or hears of it. Errors do not undo that (R15). Results as those of `serve`.
local function pass(us, me, lease)
  local done, told, token, more = pcall(function()
    if not me and not first() then
      call('DEL', wake)
      return call(publish, base, released)
    end
    local public, more = make_public(us)
    if public then return public, nil, more end
    local told, token
    told, token, more = serve(us, me, lease)
    -- All that stood in line are gone, so it is everybody's.
    if told == 0 and not token and not more then return call(publish, base, '0' .. released) end
    return told, token, more
  end)
  if done then return told, token, more end
  redis.pcall(publish, base, released)
  local _, _, left = pcall(tell_first, 'P 0')
  return -1, nil, left and 0
end

-- The reply of a script that has freed something. With `more` ms it has not finished: its client tends the line after that time.
local function unless_unfinished(reply, more)
  if more then return { 'tend', more, reply } end
  return reply
end

-- Gives `place` its place in the line, or keeps it, and makes the reply: { -4 - ms to the next look, now, its arrival,
-- 1 to hear Redisson's releases for the line or 2 to stop, 1 to look at a random moment of that time, 1 to ask then as one that
-- was told to }. `ttl`: of the lock; `window`: it is free, but not for this one. `hears`: this client hears Redisson's releases.
local function stand(place, us, ttl, arrived, window, hears)
  local added = put(place, arrived)
  if type(added) == 'table' then
    -- R8: at maxmemory it waits without a place, and polls.
    if ttl == -2 or not string.find(added.err or '', 'OOM', 1, true) then return added end
    return -4 - ttl
  end
  local look, spread = ttl, 0
  window = window and is_first(place)
  if window then
    -- Left to clients outside the line; or to a process that was told to try, which is about to.
    look = call('HGET', wake, 'turn') == '0' and 2 * yield_ms or try_ms
  elseif ttl == -2 or not is_first(place) then
    -- L8: at random, so that a line which was told nothing does not ask all at once. All together ask two to four times a second.
    spread, look = 1, math.max(each_ms, each_ms * waiting())
  end
  if look < 0 or look > poll_ms then look = poll_ms end
  local role, foreign = 0, false
  for _, holder in ipairs(call('HRANDFIELD', lock, 4)) do
    -- Client uuids are of version 8 in stanchion, of version 4 in Redisson.
    if #holder > 36 and string.sub(holder, 15, 15) ~= '8' then foreign = true end
  end
  if foreign then
    call('HDEL', wake, 'unused')
    -- The one that hears its release may be gone (L9).
    if look > 1000 then look, spread = 1000, 1 end
    local found, me = call('HMGET', wake, 'sentry', 'heard'), string.sub(place, 1, 36)
    local numsub = publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
    local good = false
    if found[1] and us - (found[2] or 0) < 1000000 then
      local counted = redis.pcall('PUBSUB', numsub, base .. ':' .. found[1])
      good = counted.err ~= nil or counted[2] > 0
    end
    if not hears then
      role = good and 0 or 1
    elseif not good or found[1] == me then
      call('HSET', wake, 'sentry', me, 'heard', string.format('%.0f', us))
      call('PEXPIRE', wake, 60000)
    else
      role = 2
    end
  end
  return { -4 - look, us, tonumber(arrived), role, spread, window and 1 or 0 }
end
