-- The queue of the processes that wait for a name, for every script that may free or take a hold.
--
-- A process has one entry for all its waiters that want the same: an owner "<client uuid>:<number>" and a suffix. No suffix: to be the only
-- holder; "=<n>": n permits; "+": several names, so the process is notified to try and is not granted. "?" at the end: the client polls
-- and receives no messages. The client chooses the number and uses it for one entry (P6). The functions need the locals `call`, `line`,
-- `wake` (keys), `base` (Redisson's channel of the name; with ":<client uuid>" the channel of one process) and `publish`. The part for the
-- kind, like `line_of_lock.lua`, needs `lock` and `fence` (keys) and defines `granted_ms`, `shares`, `confirms`, and the functions
-- `released`, `candidate`, `fits`, `mints`, `enter` and `leave`. It may replace `spare`, `was_taken` and `foreign`.
--
-- Messages to a process, each with the owner of its entry: "G owner token us ms fence" granted at `us` for `ms`, with a token of that
-- counter ("-": none); "N owner ms" poll in `ms`, when a holder's time may end; "P owner ms" try in `ms`.

-- Milliseconds: longest TTL of the queue; TTL of the notes, and without a queue; longest poll pause of the head; poll pause of the others for each entry, and
-- its maximum; first length of a turn of clients outside the queue; head start of a process that was notified to try; silence after which
-- a client that polls counts as dead.
local line_ms, wake_ms, alone_ms, poll_ms, each_ms, most_ms = 150000, 60000, 3000, 5000, 7500, 120000
local yield_ms, try_ms, polled_ms = 2, 25, 1000
-- Numbers of unused turns of clients outside the queue, each turn twice as long as the one before: after which a turn has its greatest length
-- (128 ms), and after which turns are rare, one in nine times that length.
local longest, rare = 6, 10
-- P11: the most entries that one run serves or removes, and the most that it notifies after a silent holder.
local sweep, roll = 16, 64

local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- L16: after the server's clock was stepped back, the notes have moments that are far ahead. They count as past.

-- Returns whether `moment` was less than `ms` ago.
local function recent(moment, us, ms) return math.abs(us - (moment or 0)) < ms * 1000 end

-- Returns the ms until `moment`, which was `most` ms ahead when it was stored, or less; 0 if it has passed.
local function ms_until(moment, us, most)
  local left = math.max(0, math.ceil((moment - us) / 1000))
  return left <= most and left or 0
end

-- @mint_function.lua
local function owner_of(entry) return string.match(entry, '^[%x:-]+') end
local function polls(entry) return string.sub(entry, -1) == '?' end

-- Sends a message. Returns the number of receivers, 1 for a live client that polls; -1 without the right to publish.
local function tell(entry, word, rest)
  local owner = owner_of(entry)
  if polls(entry) then return recent(call('HGET', wake, owner), clock(), polled_ms) and 1 or 0 end
  local told = redis.pcall(publish, base .. ':' .. string.sub(owner, 1, 36), word .. ' ' .. owner .. ' ' .. rest)
  return type(told) == 'number' and told or -1
end

-- Returns whether the process of `entry` is subscribed, or has polled recently.
local function alive(entry)
  if polls(entry) then return tell(entry) > 0 end
  local counted = redis.pcall('PUBSUB', publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', base .. ':' .. string.sub(entry, 1, 36))
  return counted.err ~= nil or counted[2] > 0
end

local function first() return call('ZRANGE', line, 0, 0)[1] end

-- L16: returns an arrival behind all others.
local function behind_all(us)
  local last = redis.pcall('ZRANGE', line, -1, -1, 'WITHSCORES')[2]
  return string.format('%.0f', math.max(us, (last or 0) + 1))
end

-- Returns whether `entry` was in the queue.
local function remove(entry)
  local owner = owner_of(entry)
  -- R16: a foreign key in the place of the notes does not stop a release.
  redis.pcall('HDEL', wake, owner, owner .. ':lease')
  return call('ZREM', line, entry) == 1
end

-- Removes `entry`, also with the mark of a client that polls. Returns whether it was in the queue, and whether as the head.
local function quit(entry)
  local head = first()
  return remove(entry) or remove(entry .. '?'), head == entry or head == entry .. '?'
end

-- Returns the number of Redisson's clients that wait. They subscribe to `base` only, the relay to a second channel as well (L7).
local function others()
  local counted = redis.pcall('PUBSUB', publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', base, base .. ':stanchion')
  -- Without the right to count the result is 1, because Redisson's clients must not starve.
  if counted.err then return 1 end
  -- A relay ends its two subscriptions one after the other.
  return math.max(0, counted[2] - counted[4])
end

-- Ends the notes of an empty queue. R16: a foreign key stays untouched. L5: those about turns stay while clients of Redisson's wait, and for
-- a moment after a turn: a client that releases subscribes again at its next request.
local function forget()
  local fields, kept = { 'turn', 'until', 'unused', 'ended' }, {}
  local known = redis.pcall('HMGET', wake, unpack(fields))
  if known.err then return end
  for i, field in ipairs(fields) do
    if known[i] then
      kept[#kept + 1] = field
      kept[#kept + 1] = known[i]
    end
  end
  call('DEL', wake)
  if #kept == 0 then return end
  local last = math.max(known[2] or 0, known[4] or 0)
  if not recent(last, clock(), alone_ms) and others() <= 0 then return end
  redis.pcall('HSET', wake, unpack(kept))
  if redis.pcall('PEXPIRE', wake, alone_ms) ~= 1 then call('DEL', wake) end
end

-- The ms for which a free name, or one permit, is left to Redisson's clients, as `read_turn` has found. `read_turn` returns an error if a
-- foreign key is in the place of the notes.
local left_ms = 0
local function read_turn(us)
  local ends = redis.pcall('HGET', wake, 'until')
  left_ms = type(ends) == 'string' and ms_until(ends, us, yield_ms * 2 ^ longest) or 0
  return type(ends) == 'table' and ends or nil
end

-- Ends a turn that a client of Redisson's has used. The next turn is as long, because that client may need as long again.
local function turn_used()
  left_ms = 0
  local unused = call('HGET', wake, 'unused')
  if unused then call('HSET', wake, 'unused', math.min(unused, longest), 'ended', string.format('%.0f', clock())) end
  call('HDEL', wake, 'until')
end

-- R9: no note without a TTL. A longer TTL stays: a request for several permits may rest for longer than `wake_ms`.
local function note(...)
  if type(redis.pcall('HSET', wake, ...)) ~= 'number' or call('PTTL', wake) >= wake_ms / 2 then return end
  if redis.pcall('PEXPIRE', wake, wake_ms) ~= 1 then call('DEL', wake) end
end

-- Adds an entry to the queue, or keeps it. Returns an error, or the number of entries. R9, R16: no key without a TTL; a foreign key stays
-- untouched.
local function put(entry, arrived)
  local added = redis.pcall('ZADD', line, 'NX', arrived, entry)
  if type(added) ~= 'number' then return added end
  -- The TTL exceeds the poll pause of every entry. A TTL is never shortened, because some polls were planned when the queue was longer.
  local entries = call('ZCARD', line)
  local ttl = math.min(line_ms, 2 * each_ms + each_ms * entries)
  if call('PTTL', line) >= ttl - poll_ms then return entries end
  local set = redis.pcall('PEXPIRE', line, ttl)
  if set == 1 then return entries end
  call('ZREM', line, entry)
  return set
end

-- Returns whether the name is still free after a run of `serve` that has reached so many receivers.
local function spare(told) return told == 0 end

-- Returns whether a client of Redisson's took a permit before the present release.
local function was_taken() return false end

-- Returns whether a client of Redisson's holds: client uuids are of version 8 in stanchion, of version 4 in Redisson.
local function foreign()
  for _, holder in ipairs(call('HRANDFIELD', lock, 4)) do
    if #holder > 36 and string.sub(holder, 15, 15) ~= '8' then return true end
  end
  return false
end

-- Semaphores set this function. The function limits the ms until the head polls to the ms until the first hold ends.
local soonest
-- @kind.lua

-- Returns the ms of a grant by message to `entry`. A lease that is shorter is in the notes.
local function term_of(entry)
  local lease = redis.pcall('HGET', wake, owner_of(entry) .. ':lease')
  return type(lease) == 'string' and lease + 0 or granted_ms
end

-- Notifies the process of `entry` of its grant for `ms`, or lets the process confirm the grant.
local function tell_granted(entry, us, ms, token, counter)
  if confirms then return tell(entry, 'P', 0) end
  return tell(entry, 'G', string.format('%.0f %.0f %d %s', token, us, ms, counter))
end

-- L4: an expiry sends no message, so the first live process must poll when a holder's time ends. Its client polls within its usual pause,
-- too, because later messages may be lost. Returns the head.
local function tell_next(ms)
  local head = first()
  if head and soonest then ms = soonest(ms) end
  if not head or ms < 0 then return head end
  ms = string.format('%.0f', ms)
  for i = 0, sweep - 1 do
    local entry = i == 0 and head or call('ZRANGE', line, i, i)[1]
    if not entry or tell(entry, 'N', ms) ~= 0 then break end
  end
  return head
end

-- Plans polls after grants by message at `us`, the last of them to `owner` for `ms`. The head polls when that grant ends. The head may be silent,
-- too, so at most once in `granted_ms` the newest entry polls after the head: its process was alive most recently.
local function watch(us, owner, ms)
  local head, known = tell_next(ms), redis.pcall('HMGET', wake, 'turn', 'watched')
  -- R16.
  if known.err then return end
  if not head then
    -- The count of releases until the turn of Redisson's clients goes on.
    if not known[1] then call('DEL', wake) end
    return
  end
  note('granted', owner)
  if recent(known[2], us, granted_ms) then return end
  local last = call('ZRANGE', line, -1, -1)[1]
  if last == head then return end
  note('watched', string.format('%.0f', us), 'watcher', owner_of(last))
  tell(last, 'N', ms + 50)
end

-- Notifies the first live process to try in `ms`, and removes the dead entries in front of it (L2). Returns the number of receivers, and
-- whether entries are left to check.
local function tell_first(ms)
  for _ = 1, sweep do
    local head = first()
    if not head then return 0 end
    local told = tell(head, 'P', ms)
    if told ~= 0 then return told end
    remove(head)
  end
  return 0, first() ~= nil
end

-- Grants to the head of the queue, and to the entries behind it while the next one fits. `me` is the entry of this request, with `lease`,
-- and its grant needs no message. Returns the number of receivers (-1: no right to publish), the token if `me` was granted, and, if entries
-- are left to check, the ms until the next run is due.
local function serve(us, me, lease)
  local heard, own, granted, left, ms = 0, nil, nil, sweep, nil
  while left > 0 do
    local head, _, unfinished = candidate(us, me)
    if unfinished then return heard, own, 0 end
    if not head then
      forget()
      return heard, own
    end
    if not fits(head) then break end
    -- A process that waits for several names is only notified. If that process does not try, the next live one does.
    local asks = string.find(head, '+', 1, true)
    -- Minting comes first, because it may fail.
    local minted = not asks and mints(head)
    local token = minted and mint(us) or 0
    -- The entry leaves the queue after its owner holds, so that an error keeps its place.
    if asks then
      call('ZREM', line, head)
      local told = tell(head, 'P', 0)
      if told > 0 then
        local _, dead = tell_first(try_ms)
        return told, own, dead and try_ms
      end
      if told < 0 then return told end
    elseif head == me then
      enter(head, us, lease)
      call('ZREM', line, head)
      own = token
    else
      -- L13: a short grant, because the process may have just died, and must not cost a lease. L11: dated by the server's clock, because
      -- a paused process may read the message late.
      ms = term_of(head)
      enter(head, us, ms)
      call('ZREM', line, head)
      if ms < granted_ms then call('HDEL', wake, owner_of(head) .. ':lease') end
      local told = tell_granted(head, us, ms, token, minted and fence or '-')
      if told > 0 then
        heard, granted = heard + told, owner_of(head)
      else
        -- L2: without a receiver the process is dead. Without the right to publish no entry can be granted (L14).
        leave(head)
        if told < 0 then return told, own end
      end
    end
    left = left - 1
    if not shares and (own or granted) then break end
  end
  if granted then watch(us, granted, ms) elseif own then tell_next(lease or -1) end
  return heard, own, left == 0 and first() and 0 or nil
end

-- Leaves a free name, or one permit, to Redisson's clients if it is their turn. They get one turn after as many releases as the queue has
-- processes for each of them, 16 at most. `me`: the queue has an entry of the process that releases. Returns the number of receivers, or nil
-- if no turn begins.
local function make_public(us, me)
  left_ms = 0
  local outside = others()
  if outside <= 0 then return nil end
  read_turn(us)
  -- Redisson reads the payload as a release. By the zero in front the relay knows that Redisson did not send it.
  local payload = '0' .. released()
  if left_ms > 0 then
    -- The turn goes on after a hold that did not wait in the queue. A permit that was returned is not the one that was left to them.
    if was_taken() then
      turn_used()
      return nil
    end
    local told = redis.pcall(publish, base, payload)
    return type(told) == 'number' and told or -1
  end
  local turns = math.ceil((call('ZCARD', line) + (me and 0 or 1)) / outside)
  local passed = call('HINCRBY', wake, 'turn', 1)
  if call('PTTL', wake) < wake_ms then call('PEXPIRE', wake, wake_ms) end
  if passed < math.min(16, turns) then return nil end
  local unused, ended, before = unpack(call('HMGET', wake, 'unused', 'ended', 'until'))
  unused = (unused or 0) + 0
  -- The last turn has ended in another script, and is not known to be used.
  if before then
    unused, ended = unused + 1, before
    call('HSET', wake, 'unused', unused, 'ended', ended)
  end
  local ms = yield_ms * 2 ^ math.min(unused, longest)
  -- A client that is stopped, or lingers, must not cost more than a tenth of the time.
  if unused >= rare and recent(ended, us, 8 * ms) then return nil end
  call('HSET', wake, 'turn', '0', 'until', string.format('%.0f', us + 1000 * ms))
  left_ms = ms
  local told = redis.pcall(publish, base, payload)
  return type(told) == 'number' and told or -1
end

-- Passes a freed hold on to the queue, or announces it to Redisson's clients. Errors do not undo the release (R15). Returns as `serve`.
local function pass(us, me, lease)
  local done, told, token, more = pcall(function()
    local public = make_public(us, me)
    if not me and not first() then
      if public then
        call('PEXPIRE', wake, alone_ms)
        return public
      end
      forget()
      return call(publish, base, released())
    end
    local told, token, more = serve(us, me, lease)
    if public then
      -- L5: the head must try, because the clients outside the queue may be gone by now.
      local heard, left = tell_first(yield_ms)
      return math.max(public, told > 0 and told or -1, heard), token, more or left and left_ms
    end
    -- All processes of the queue are dead, so the name is free for all.
    if not token and not more and spare(told) and not first() then return call(publish, base, '0' .. released()) end
    return told, token, more
  end)
  if done then return told, token, more end
  redis.pcall(publish, base, released())
  local _, _, left = pcall(tell_first, 0)
  return -1, nil, left and 0
end

-- L5: begins a turn of Redisson's clients after a release without a queue, which was published to `told` subscribers. Otherwise this process
-- takes the name again before their requests. Errors do not undo the release (R15). Returns `told`.
local function begin_alone(us, told)
  pcall(function()
    if others() <= 0 then return end
    note('turn', '0', 'until', string.format('%.0f', us + 1000 * yield_ms))
    call('PEXPIRE', wake, alone_ms)
  end)
  return told
end

-- Updates the queue after a request of `entry` that took a free hold for `lease`. If `shares`, returns as `serve`.
local function took(entry, us, ask, lease)
  remove(entry)
  if ask == 'look' then
    -- L3: the hold was free without a grant, so a holder or a grantee was silent, and others may be. The live processes send a request
    -- again, the last grantee, too: its message may be lost.
    local grantee = call('HGET', wake, 'granted')
    if grantee and grantee ~= owner_of(entry) then tell(grantee, 'P', 0) end
    local asked = call('ZRANGE', line, 0, roll - 1)
    for _, other in ipairs(asked) do
      if not polls(other) then
        call('ZREM', line, other)
        tell(other, 'P', 0)
      end
    end
  elseif left_ms == 0 and call('HEXISTS', wake, 'until') == 1 then
    -- Clients outside the queue need more time, or do not wait any more. The key keeps a field, and with it its TTL.
    call('HINCRBY', wake, 'unused', 1)
    call('HSET', wake, 'ended', string.format('%.0f', us))
    call('HDEL', wake, 'until')
  end
  if not shares then return tell_next(lease) end
  local heard, _, more = serve(us)
  if heard == 0 then tell_next(lease or -1) end
  return heard, nil, more
end

-- P4: returns whether a due poll of `entry` finds that the queue has lost the entry, as after FLUSHALL. Otherwise a message precedes the
-- removal of an entry. Clients that poll notice a loss by themselves.
local function is_lost(entry, ask, arrived)
  return ask == 'look' and arrived ~= '' and not polls(entry) and not call('ZSCORE', line, entry)
end

-- Lets all processes of a queue that was lost send requests, which take their places again by arrival: once in the time in which a head polls.
local function call_all(us)
  local called = call('HGET', wake, 'called')
  if recent(called, us, poll_ms) then return end
  note('called', string.format('%.0f', us))
  redis.pcall(publish, base .. ':all:stanchion', '0')
end

-- Returns the reply of a script. With `more` the script has not finished, so its client runs `tend` after that many ms.
local function unless_unfinished(reply, more)
  if more then return { 'tend', more, reply } end
  return reply
end

-- Returns the role of the process of `entry`: 1 become the relay, which subscribes to Redisson's releases for the queue, 2 stop, 0 no
-- change. `hears`: the process is subscribed. `leads`: the process must be the relay. A relay without a proof for `silent_ms` is replaced.
local function role_of(entry, us, hears, leads, silent_ms)
  local found = call('HMGET', wake, 'sentry', 'heard')
  local good = not leads and found[1] and recent(found[2], us, silent_ms) and alive(found[1])
  if not hears then return good and 0 or 1 end
  if good and string.sub(found[1], 1, 36) ~= string.sub(entry, 1, 36) then return 2 end
  note('sentry', owner_of(entry), 'heard', string.format('%.0f', us))
  return 0
end

-- L9: a release of Redisson's proves that Redisson's clients use their turns, and that the relay receives their releases. Reads the turn.
local function heard_by(sentry, us)
  if sentry ~= '' then
    turn_used()
    if string.sub(call('HGET', wake, 'sentry') or '', 1, 36) == sentry then
      redis.pcall('HSET', wake, 'heard', string.format('%.0f', us))
    end
  end
  read_turn(us)
end

-- Adds `entry` to the queue, or keeps it, and returns the reply: { -4 - ms to the next poll, now, its arrival, its role (see `role_of`), 1
-- to poll at a random moment of that time, 1 to poll then with the word `ask` }. `ttl`: ms until a holder's time ends. `window`: the name
-- is free, but reserved for others. `hears`: this client is subscribed to Redisson's releases. `ask`: see lock/acquire. An empty
-- `arrived` makes a new entry the last one. `lease`: of a hold.
local function stand(entry, us, ttl, arrived, window, hears, ask, lease)
  -- R16: read before the first write.
  local foreign_notes = read_turn(us)
  if foreign_notes then return foreign_notes end
  if arrived == '' then arrived = behind_all(us) end
  local entries = put(entry, arrived)
  if type(entries) == 'table' then
    -- R8: at maxmemory the process waits without an entry, and polls.
    if ttl == -2 or not string.find(entries.err or '', 'OOM', 1, true) then return entries end
    return -4 - ttl
  end
  if lease and lease < granted_ms then note(owner_of(entry) .. ':lease', string.format('%.0f', lease)) end
  if polls(entry) then
    note(owner_of(entry), string.format('%.0f', us))
    -- P4: an expiry does not serve the queue, and the head may be dead or stopped. So if the name is still free at this client's next
    -- request, the word `look` lets that request take the name.
    if ttl == -2 then return { -4 - 2 * try_ms, us, tonumber(arrived), 0, 0, 0 } end
    return { -4 - ttl, us, tonumber(arrived), 0, 0, 1 }
  end
  local look, spread = ttl, 0
  -- L4: a dead head does not poll when a holder's time ends.
  local ahead, left = first(), sweep
  while left > 0 and ahead ~= entry and not alive(ahead) do
    remove(ahead)
    ahead, left = first(), left - 1
  end
  local head = ahead == entry
  window = window and head
  if window then
    -- The name is left to Redisson's clients, or to a process that was notified and is about to try. That process may die before it does.
    look = left_ms > 0 and left_ms or try_ms
  elseif head and ttl ~= -2 then
    if look < 0 or look > poll_ms then look = poll_ms end
  elseif ask == 'look' and ttl >= 0 and ttl <= granted_ms and call('HGET', wake, 'watcher') == owner_of(entry) then
    -- This process watches a grant by message that has not ended.
    look = ttl + 50
  elseif left == 0 then
    -- More dead entries may be in front.
    look = try_ms
  else
    -- L8: at random, so that a queue without messages does not poll all at once. The queue as a whole polls once in a few seconds.
    spread, look = 1, math.min(most_ms, each_ms * entries)
  end
  local role = 0
  local foreigner = foreign()
  -- During a turn of Redisson's clients the relay is needed, too: its end is a release of theirs.
  if foreigner or left_ms > 0 then
    if foreigner == true then
      turn_used()
      -- The relay may be dead (L9), so the head polls.
      if head and look > 1000 then look, spread = 1000, 1 end
    end
    -- If a client of Redisson's may always hold, the head is the relay, and needs no additional polls.
    local always = foreigner == 'perhaps'
    role = role_of(entry, us, hears, always and head, always and 2 * poll_ms or 1000)
  end
  return { -4 - look, us, tonumber(arrived), role, spread, window and 1 or 0 }
end
