-- The functions for the queue, for every script of the fair lock that may free the lock or find it taken. They follow
-- the script's own header and common case, in the same text; all keys and the arguments 1 to 3 are the same everywhere.
local lock, queue, timeouts, waiters, heard, fence = unpack(KEYS)
local channel, publish, wait = ARGV[1], ARGV[2], ARGV[3] + 0
-- Milliseconds. The same for all clients of a name, because each decides by them which others are dead.
local grace, beat, skew = 2000, 500, 1000
-- P11: the most waiters looked at in one run.
local sweep = 64

local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- The lock's TTL and its holder, as found or set; the token of a grant to the requesting owner.
local left, holder, granted

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

-- `heard` is ordered by time. Besides the clients it has `look`, the last check by a script without a heartbeat; `watch`, the
-- start of the current period without gaps; and `return`, the last return of a client that was cut off.
local function note(what)
  local new = call('ZADD', heard, now, what)
  call('PEXPIRE', heard, 4 * grace)
  return new == 1
end

-- F2: restarts the watch after a gap without heartbeats, because then no heartbeat could arrive: the server was stalled, down,
-- or cut off from all clients. Also when the clock has gone back, because silence cannot be measured then.
local function watch()
  local last = call('ZRANGE', heard, -1, -1, 'WITHSCORES')[2]
  if last and now >= last + 0 and now - last <= 3 * beat then return end
  if last and now < last + 0 then
    call('ZREM', heard, unpack(call('ZRANGEBYSCORE', heard, '(' .. now, '+inf', 'LIMIT', 0, 100)))
  end
  note('watch')
end

-- Records a heartbeat. `waited`: the client has sent some before.
local marked, last_of = false, {}
local function mark(client, waited)
  local before = call('ZSCORE', heard, client)
  local ago = before and now - before
  marked = true
  -- The last heartbeat is so recent that a new one would change no decision.
  if ago and ago >= 0 and ago < beat / 5 then
    last_of[client] = before + 0
    return
  end
  last_of[client] = now
  watch()
  if waited and ago and ago > 2 * beat then note('return') end
  if note(client) then
    -- A client that has been silent for two graces counts as unknown, alive or not. Its member is removed, to make room.
    local ended = call('ZRANGEBYSCORE', heard, '-inf', now - 2 * grace, 'LIMIT', 0, 16)
    if #ended > 0 then call('ZREM', heard, unpack(ended)) end
  end
end

-- Returns the ms for which a client has been silent, and the part that counts against it (F2): since its last heartbeat or
-- the start of the watch. A client that returns from a cut shows that others may still be cut off, so the count begins at
-- its return; but at most one grace later than otherwise, however often clients return.
local function silence(client)
  local last = last_of[client] or (call('ZSCORE', heard, client) or 0) + 0
  if last <= now and now - last < 2 * beat then return now - last, 0 end
  watch()
  if not marked then note('look') end
  if last > now then last = 0 end
  local since = math.max(last, (call('ZSCORE', heard, 'watch') or 0) + 0)
  local returned = (call('ZSCORE', heard, 'return') or 0) + 0
  return now - last, now - math.max(since, math.min(returned, since + grace))
end

local function drop_head(owner)
  call('LPOP', queue)
  call('ZREM', timeouts, owner)
  call('ZREM', waiters, owner)
end

local function grant(owner, lease, queued)
  -- Minting comes first, because it may fail.
  local token = mint(us)
  if queued then drop_head(owner) end
  call('HSET', lock, owner, '1')
  local set = redis.pcall('PEXPIRE', lock, lease)
  if set ~= 1 then
    -- R9.
    call('DEL', lock)
    error(set)
  end
  holder, left = owner, lease
  return token
end

-- The client that reads this run's reply, if the reply may contain a grant to its waiters; and such a grant.
local reader, own = nil, ''

local function send(to, payload)
  if to == reader then
    own = payload
    return 1
  end
  local told = redis.pcall(publish, channel .. ':' .. to, payload)
  return type(told) == 'number' and told or -1
end

-- Removes dead waiters from the head of the queue. If the lock is free, grants it to a stanchion waiter at the head, or
-- wakes a Redisson waiter there. `me` is the requesting owner and `lease` its lease: a grant to `me` needs no message.
-- `free`: the lock is known to be free. Returns the ms until the queue of a free lock must be settled again (-1: not needed), and
-- the number of receivers.
local function settle(me, lease, free)
  local head = call('LINDEX', queue, 0)
  -- A Redisson client that purges a stanchion waiter leaves it in `waiters` (F8).
  local oldest = call('ZRANGE', waiters, 0, 0)[1]
  if oldest and oldest ~= head and not call('ZSCORE', timeouts, oldest) then call('ZREM', waiters, oldest) end

  left = free and -2 or call('PTTL', lock)
  local dead = {}
  for _ = 1, sweep do
    if not head then
      call('DEL', timeouts, waiters, heard)
      return -1, 0
    end
    free = left == -2
    if head == oldest or call('ZSCORE', waiters, head) then
      local client = process(head)
      if not dead[client] then
        local silent, unexcused = silence(client)
        if free and silent < 2 * beat then
          -- F3: the last heartbeat is within half the grace. The grant lasts three quarters of the grace unless renewed (F4).
          if head == me then
            granted = grant(head, lease, true)
            return -1, 0
          end
          local token = grant(head, grace - beat, true)
          return -1, send(client, string.format('%s %.0f %.0f %d', head, token, us, left))
        end
        -- At least beat / 25 later, so that one or two checks find all that died together.
        if unexcused < grace then return free and math.max(beat / 25, math.min(beat, grace - unexcused)) or -1, 0 end
        dead[client] = true
      end
    else
      local deadline = (call('ZSCORE', timeouts, head) or 0) + 0
      if deadline + skew > now then
        -- F7: Redisson's deadlines grow with the queue; at the head one wait is enough.
        local latest = now + math.max(0, left) + wait
        if deadline > latest then
          call('ZADD', timeouts, latest, head)
          deadline = latest
        end
        if not free then return -1, 0 end
        -- A Redisson waiter acquires for itself, because Redisson manages its own hold counts.
        return deadline + skew - now, send(head, '0')
      end
    end
    drop_head(head)
    head = call('LINDEX', queue, 0)
  end
  return left == -2 and 0 or -1, 0
end

-- The reply to a waiter, see fair/acquire. `alone`: no Redisson client queues.
local function busy(owner, look, forgotten, alone)
  local here = holder and process(holder) == process(owner)
  -- Client uuids are of version 8 in stanchion, of version 4 in Redisson.
  local foreign = holder and string.sub(holder, 15, 15) ~= '8' or not alone and call('LLEN', queue) > call('ZCARD', waiters)
  return { -4 - math.max(-1, look), us, here and holder or '', forgotten and 1 or 0, foreign and 1 or 0 }
end

-- Settles for an owner that has left the lock and the queue: an error does not change that (R15). A grant to a waiter of its client
-- is in the reply. If the queue must be settled again soon, the reply lets its client do that: there may be no other (F6).
local function farewell(owner, found)
  reader = process(owner)
  local settled, look, told = pcall(settle)
  if not settled then return found and -1 or -2 end
  local code = found and told or -2
  if look > beat then look = -1 end
  if look < 0 and own == '' then return code end
  return { code, us, look, own }
end
