-- What every script of the fair lock does that may free the lock or finds it taken. It follows the script's own header
-- and common case, in the same text; the arguments 1 to 3 and all keys are the same everywhere.
local lock, queue, timeouts, waiters, heard, fence = unpack(KEYS)
local channel, publish, wait = ARGV[1], ARGV[2], ARGV[3] + 0
-- Milliseconds. The same for all clients of a name: they judge each other by these.
local grace, beat, skew = 2000, 500, 1000
-- P11: so many waiters are looked at in one run.
local sweep = 64

local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- What settling found or did: the lock's TTL, its holder, and the token that the asking owner was granted.
local left, holder, granted

-- P2, R17, as in the common case of an acquire.
local function mint()
  if fence == lock then return 0 end
  local n = tonumber(call('GET', fence) or 0)
  if not n or n % 1 ~= 0 or n >= 9007199254740991 then
    error(redis.error_reply('WRONGTYPE the fencing counter ' .. fence .. ' is not a whole number below 2^53 - 1'))
  end
  local token = math.max(n + 1, us)
  call('SET', fence, string.format('%.0f', token))
  return token
end

-- Another kind of value is an error (R16): a hash with more than one field is somebody else's, however large.
local function read_holder()
  local holders = call('HRANDFIELD', lock, 2)
  if #holders > 1 then
    error(redis.error_reply('WRONGTYPE this name is in use as another kind of synchronizer'))
  end
  holder = holders[1]
end

local function process(owner) return string.sub(owner, 1, 36) end

-- `heard` is ordered by time. Beside the clients it has `look`, the last look by somebody who gave no sign of life;
-- `watch`, since when there has been no gap; and `return`, when a client was last heard that had been cut off.
local function note(what)
  local new = call('ZADD', heard, now, what)
  call('PEXPIRE', heard, 4 * grace)
  return new == 1
end

-- F2: while nobody was heard, nobody could be: a server that stood still, was away, or was cut off from all. Nor can it
-- be told who was silent when the clock has gone back.
local function watch()
  local last = call('ZRANGE', heard, -1, -1, 'WITHSCORES')[2]
  if last and now >= last + 0 and now - last <= 3 * beat then return end
  if last and now < last + 0 then
    call('ZREM', heard, unpack(call('ZRANGEBYSCORE', heard, '(' .. now, '+inf', 'LIMIT', 0, 100)))
  end
  note('watch')
end

-- A sign of life; `waited`: of a client that has been giving them.
local marked = false
local function mark(client, waited)
  watch()
  local before = waited and call('ZSCORE', heard, client)
  if before and now - before > 2 * beat then note('return') end
  marked = true
  if note(client) then
    -- Whoever has been silent for so long counts as never heard, alive or not: what has ended makes room.
    local ended = call('ZRANGEBYSCORE', heard, '-inf', now - 2 * grace, 'LIMIT', 0, 16)
    if #ended > 0 then call('ZREM', heard, unpack(ended)) end
  end
end

-- For how long a client has been silent, and for how long although it could have been heard (F2): since it was, or since
-- the watch began. One that comes back from a cut shows that others may still be cut off, but for those the others
-- that come and go for ever count only once.
local function silence(client)
  local last = (call('ZSCORE', heard, client) or 0) + 0
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

local function grant(owner, lease)
  -- First, because it is what may be refused.
  local token = mint()
  drop_head(owner)
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

local function send(to, payload)
  local told = redis.pcall(publish, channel .. ':' .. to, payload)
  return type(told) == 'number' and told or -1
end

-- Takes the dead off the head of the queue. If the lock is free, grants it to a head of ours or wakes one of Redisson's.
-- `me` is the owner that asks and `lease` its lease: it needs no message.
-- Returns in how many ms a free lock needs another look (-1: it needs none), and how many were told.
local function settle(me, lease)
  -- A Redisson client that purges one of ours leaves it here (F8).
  local oldest = call('ZRANGE', waiters, 0, 0)[1]
  if oldest and not call('ZSCORE', timeouts, oldest) then call('ZREM', waiters, oldest) end

  left = call('PTTL', lock)
  local dead = {}
  for _ = 1, sweep do
    local head = call('LINDEX', queue, 0)
    if not head then
      call('DEL', timeouts, waiters, heard)
      return -1, 0
    end
    local free = left == -2
    if call('ZSCORE', waiters, head) then
      local client = process(head)
      if not dead[client] then
        local silent, unexcused = silence(client)
        if free and silent < 2 * beat then
          -- F3: heard from within half the grace. It keeps the lock for three quarters of it unless it renews (F4).
          if head == me then
            granted = grant(head, lease)
            return -1, 0
          end
          local token = grant(head, grace - beat)
          return -1, send(client, string.format('%s %.0f %.0f %d', head, token, us, left))
        end
        -- Those that died together are found in one look, or nearly.
        if unexcused < grace then return free and math.max(beat / 25, math.min(beat, grace - unexcused)) or -1, 0 end
        dead[client] = true
      end
    else
      local deadline = (call('ZSCORE', timeouts, head) or 0) + 0
      if deadline + skew > now then
        -- F7: Redisson's deadlines grow with the queue; at the head there is one wait left.
        local latest = now + math.max(0, left) + wait
        if deadline > latest then
          call('ZADD', timeouts, latest, head)
          deadline = latest
        end
        if not free then return -1, 0 end
        -- It acquires for itself: its hold counts are its own business.
        return deadline + skew - now, send(head, '0')
      end
    end
    drop_head(head)
  end
  return left == -2 and 0 or -1, 0
end

-- The reply to a waiter, see fair/acquire.
local function busy(owner, look, forgotten)
  local here = holder and process(holder) == process(owner)
  -- Our client uuids are of version 8, Redisson's of version 4.
  local foreign = holder and string.sub(holder, 15, 15) ~= '8' or call('LLEN', queue) > call('ZCARD', waiters)
  return { -4 - math.max(-1, look), us, here and holder or '', forgotten and 1 or 0, foreign and 1 or 0 }
end

-- F6: the reply of who leaves. If nobody else may be there to look at the queue again soon, it is told to.
local function farewell(code, look)
  if look < 0 or look > beat then return code end
  return { code, us, look }
end
