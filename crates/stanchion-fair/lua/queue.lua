-- The functions for the queue, for every script of the fair lock that may free the lock or find it taken. They follow
-- the script's own header and common case, in the same text; all keys and the arguments 1 to 3 are the same everywhere.
-- The messages to processes are those of line.lua.
local lock, queue, timeouts, waiters, wake, fence = unpack(KEYS)
local channel, publish, wait = ARGV[1], ARGV[2], ARGV[3] + 0
-- Milliseconds: a grant by message, until its holder renews it (F4); the time in which processes answer a call; the time after its last
-- request in which a process without a subscription counts as alive; TTL of `waiters`, longer than any poll pause; TTL of the notes; longest
-- poll pause of the first waiter; poll pause of the others for each waiter; margin for the clocks of Redisson's clients.
local granted_ms, call_ms, recent_ms = 1500, 100, 1000
local waiters_ms, wake_ms, poll_ms, each_ms, skew = 150000, 10000, 5000, 7500, 1000
-- P11: the most waiters looked at in one run.
local sweep = 64

local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- The lock's TTL and its holder, as found or set; the token of a grant to the requesting owner; the ms after which the requesting client polls,
-- if this run demands it; true: waiters are left to check.
local left, holder, granted, due, more

-- @mint_function.lua
-- Another kind of value is an error (R16), and so is a hash with more than one field. The hash may be large; two fields are enough.
local function read_holder()
  local holders = call('HRANDFIELD', lock, 2)
  if #holders > 1 then
    error(redis.error_reply('WRONGTYPE this name is in use as another kind of synchronizer'))
  end
  holder = holders[1]
end

local function process(owner) return string.sub(owner, 1, 36) end

-- Client uuids are of version 8 in stanchion, of version 4 in Redisson.
local function is_ours(owner) return string.sub(owner, 15, 15) == '8' end

-- Notes are times in us: of the last request of a client without a subscription, `watched` of the last poll that was planned for the newest
-- waiter, `called` of the last call.
local function note(what)
  call('ZREMRANGEBYSCORE', wake, '-inf', us - wake_ms * 1000)
  call('ZADD', wake, us, what)
  -- R9.
  if redis.pcall('PEXPIRE', wake, wake_ms) ~= 1 then call('DEL', wake) end
end

-- Returns the age of a note in ms; math.huge without a note.
local function age(what)
  local ago = us - (call('ZSCORE', wake, what) or 0)
  return ago >= 0 and ago <= wake_ms * 1000 and ago / 1000 or math.huge
end

local function is_recent(client) return age(client) < recent_ms end

-- Sends a message. Returns the number of receivers; -1 without the right to publish.
local function tell(owner, word, rest)
  local told = redis.pcall(publish, channel .. ':' .. process(owner), word .. ' ' .. owner .. ' ' .. rest)
  return type(told) == 'number' and told or -1
end

-- Whether a process is subscribed or has sent a request recently, as far as this run knows.
local known = {}
local function is_alive(client)
  if known[client] == nil then
    local counted =
      redis.pcall('PUBSUB', publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', channel .. ':' .. client)
    known[client] = counted.err ~= nil or counted[2] > 0 or is_recent(client)
  end
  return known[client]
end

-- Returns the first waiter of stanchion's. The holder may be in front of it.
local function first()
  local two = call('ZRANGE', waiters, 0, 1)
  return two[two[1] == holder and 2 or 1]
end

local function drop_head(owner)
  call('LPOP', queue)
  call('ZREM', timeouts, owner)
  call('ZREM', waiters, owner)
end

local function enter(owner, lease)
  call('HSET', lock, owner, '1')
  local set = redis.pcall('PEXPIRE', lock, lease)
  if set ~= 1 then
    -- R9.
    call('DEL', lock)
    error(set)
  end
  holder, left = owner, lease
end

-- The client that reads this run's reply, if the reply may contain a grant to its waiters; and such a grant.
local reader, own = nil, ''

-- Plans polls for the end of a hold of `ms`, because an expiry sends no message (L4): of the first waiter and, at the end of a grant by
-- message, of the newest, whose process was alive most recently. At most once in that time, so that the newest of a busy queue rarely polls.
local function watch(ms)
  local head = first()
  if not head then return end
  -- A process that finds the grant in its reply also knows when that hold ends.
  if own == '' or process(head) ~= reader then tell(head, 'N', string.format('%.0f', math.min(ms, poll_ms))) end
  local last = call('ZRANGE', waiters, -1, -1)[1]
  if ms > granted_ms or process(last) == process(head) or age('watched') < granted_ms then return end
  note('watched')
  tell(last, 'N', ms + 50)
end

-- Calls all processes: each sends a request, and takes its places again if they were removed. A process did not use a grant by message, so others
-- may be stopped or cut off, too, and only those that answer are granted the lock; or the queue was lost, as after FLUSHALL (L15).
local function call_all()
  note('called')
  redis.pcall(publish, channel .. ':all:stanchion', '0')
end

-- Returns the ms of a grant by message, by the score in `timeouts`. Its fraction, if there is one, is a shorter lease in units of 2048 ms.
local function term_of(score)
  local fraction = (score or 0) % 1
  return fraction > 0 and math.floor(fraction * 2048 + 0.5) or granted_ms
end

-- Grants to the head by message. Returns the number of receivers; nil if its process is dead, and the grant is undone.
local function grant_by_message(head, token)
  local client = process(head)
  local ms = term_of(call('ZSCORE', timeouts, head))
  call('LPOP', queue)
  call('ZREM', timeouts, head)
  enter(head, ms)
  local rest = string.format('%.0f %.0f %d %s', token, us, ms, fence ~= lock and fence or '-')
  local told = 1
  if client == reader then own = 'G ' .. head .. ' ' .. rest else told = tell(head, 'G', rest) end
  -- A process without a subscription finds the grant with its next request.
  if told ~= 0 or is_recent(client) then
    watch(ms)
    due = ms + 50
    return told
  end
  known[client] = false
  call('HDEL', lock, head)
  call('ZREM', waiters, head)
  holder, left = nil, -2
end

-- Removes dead waiters from the head of the queue of a free lock, and grants the lock to a stanchion waiter there, or wakes a Redisson waiter.
-- `me` is the requesting owner and `lease` its lease: a grant to `me` needs no message. `freed`: this script has freed the lock. Otherwise
-- `holder` has been read. Returns the number of receivers.
local function settle(me, lease, freed)
  left = holder and call('PTTL', lock) or -2
  local gone = call('ZRANGE', waiters, 0, 0)[1]
  if gone and gone ~= holder and not call('ZSCORE', timeouts, gone) then
    -- Its grant by message has ended, or a Redisson client has removed its place (F8). A live process takes the place again.
    call('ZREM', waiters, gone)
    tell(gone, 'P', 0)
    if left == -2 and not freed then call_all() end
  end
  local called, token = age('called'), nil
  if left == -2 and called < call_ms then
    -- P7: live processes take their places again before the next grant. Without `me` this client may not poll, so the newest waiter does.
    due = call_ms - called
    local last = not me and call('ZRANGE', waiters, -1, -1)[1]
    if last then tell(last, 'N', math.ceil(due)) end
    return 0
  end
  for _ = 1, sweep do
    local head = call('LINDEX', queue, 0)
    if not head then
      call('DEL', timeouts, waiters, wake)
      return 0
    end
    if not is_ours(head) then
      local deadline = (call('ZSCORE', timeouts, head) or 0) + 0
      if deadline + skew > now then
        -- F7: Redisson's deadlines grow with the queue; at the head one wait is enough.
        local latest = now + math.max(0, left) + wait
        if deadline > latest then call('ZADD', timeouts, latest, head) end
        if left ~= -2 then return 0 end
        -- A Redisson waiter acquires for itself, because Redisson manages its own hold counts.
        local told = redis.pcall(publish, channel .. ':' .. head, '0')
        return type(told) == 'number' and told or -1
      end
      drop_head(head)
    elseif left ~= -2 then
      return 0
    elseif head == me then
      -- Minting comes first, because it may fail.
      granted = mint(us)
      drop_head(head)
      enter(head, lease)
      watch(lease)
      return 0
    elseif called < math.huge and age(process(head)) > called then
      -- No answer to the call. A live process takes its place again.
      tell(head, 'P', 0)
      drop_head(head)
    elseif known[process(head)] ~= false then
      token = token or mint(us)
      local told = grant_by_message(head, token)
      if told then return told end
    else
      drop_head(head)
    end
  end
  more = true
  -- This client may not finish.
  local last = left == -2 and call('ZRANGE', waiters, -1, -1)[1]
  if last then tell(last, 'N', 50) end
  return 0
end

-- Returns the reply to the waiter `owner`: { -4 - ms to the next poll, now in us, its arrival, 0, 1 to poll at a random moment of a longer time,
-- 0, the holder if it is another waiter of this client or '', 1 if the place of the waiter had been removed, 1 if a client of Redisson's
-- holds or queues }. `others`: the number of Redisson's waiters. `old`: the waiter has had a place; `queued`: it has it still.
local function busy(owner, arrived, others, old, queued)
  local client = process(owner)
  local here = holder and process(holder) == client and holder or ''
  local foreign = holder and not is_ours(holder) or others > 0
  left = left or call('PTTL', lock)
  -- L4: a dead waiter in front does not poll when the hold ends.
  local head, dead = first(), 16
  while head and dead > 0 and process(head) ~= client and not is_alive(process(head)) do
    call('LREM', queue, 1, head)
    call('ZREM', timeouts, head)
    call('ZREM', waiters, head)
    head, dead = first(), dead - 1
  end
  local look, spread = due, 0
  if not look and (not head or process(head) == client) then
    look = left
    if look < 0 or look > poll_ms then look = poll_ms end
    if foreign then look = math.min(look, 1000) end
  elseif not look and dead == 0 then
    look = 25
  elseif not look and old and left <= granted_ms and process(call('ZRANGE', waiters, -1, -1)[1]) == client then
    -- See `watch`: its message may have been missed.
    look = math.max(0, left) + 50
  elseif not look then
    -- At random, so that the queue as a whole polls once in a few seconds. The client divides by the number of its waiters.
    look, spread = each_ms * call('ZCARD', waiters), 1
  end
  local lost = old and not queued
  return { -4 - math.ceil(look), us, arrived, 0, spread, 0, old and here or '', lost and 1 or 0, foreign and 1 or 0 }
end

-- Settles for an owner that has left the lock and the queue: an error does not change that (R15). A grant to a waiter of its client
-- is in the reply. `found`: it was in one of them; `freed`: it had the lock.
local function farewell(owner, found, freed)
  reader = process(owner)
  local settled, told = pcall(function()
    call('ZREM', waiters, owner)
    if not freed then read_holder() end
    return settle(nil, nil, freed)
  end)
  if not settled then
    -- If the error lasts, the next waiter gets it as the reply to its own request.
    pcall(function()
      local head = first()
      if head then tell(head, 'N', 500) end
    end)
  end
  local code = found and (settled and told or -1) or -2
  return own == '' and code or { code, us, own }
end

-- Returns the reply of a script. If waiters are left to check, its client runs `tend` at once.
local function unless_unfinished(reply)
  if more then return { 'tend', 0, reply } end
  return reply
end
