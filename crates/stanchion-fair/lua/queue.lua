-- What every script of the fair lock does that may free the lock or finds it taken. It follows the script's own header
-- and common case, in the same text; the arguments 1 to 3 and all keys are the same everywhere.
local lock, queue, timeouts, waiters, live, fence = unpack(KEYS)
local channel, publish, wait = ARGV[1], ARGV[2], ARGV[3] + 0
-- Milliseconds. The same for all clients of a name: they judge each other by these.
local grace, trial, skew = 2000, 500, 1000
-- P11: so many waiters are looked at in one run.
local sweep = 16

local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- What settling found or did: the lock's TTL, its holder, and the token that the asking owner was granted.
local left, holder, granted

-- P2, as in the common case of an acquire.
local function mint()
  if fence == lock then return 0 end
  local token = math.max((call('GET', fence) or 0) + 1, us)
  call('SET', fence, string.format('%.0f', token))
  return token
end

-- Another kind of value is an error (R16): a hash with more than one field is somebody else's, too.
local function read_holder()
  local holders = call('HKEYS', lock)
  if #holders > 1 then
    error(redis.error_reply('WRONGTYPE this name is in use as another kind of synchronizer'))
  end
  holder = holders[1]
end

local function process(owner) return string.sub(owner, 1, 36) end

local function mark(client, value)
  call('HSET', live, client, value)
  call('PEXPIRE', live, 4 * grace)
end

-- All that are silent are on trial together, so that the dead delay the living once, however many they are (P7).
local function try_silent()
  local marks = call('HRANDFIELD', live, 64, 'WITHVALUES')
  for i = 1, #marks, 2 do
    local good = marks[i + 1] + 0
    if good >= 0 and good <= now then mark(marks[i], -(now + trial)) end
  end
end

-- > 0: alive for so many ms; < 0: on trial for so many; 0: dead (F2).
-- A mark that ran out proves nothing, the server may have stood still itself: the first look only starts a trial.
local function alive(client)
  local good = (call('HGET', live, client) or 0) + 0
  if good > now then return good - now end
  if good < 0 then return math.min(0, good + now) end
  mark(client, -(now + trial))
  try_silent()
  return -trial
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
  for _ = 1, sweep do
    local head = call('LINDEX', queue, 0)
    if not head then
      call('DEL', timeouts, waiters, live)
      return -1, 0
    end
    local free = left == -2
    if call('ZSCORE', waiters, head) then
      local sure = head == me and grace or alive(process(head))
      if free and sure >= trial then
        -- F3: heard from within half the grace. It keeps the lock for three quarters of it unless it renews (F4).
        if head == me then
          granted = grant(head, lease)
          return -1, 0
        end
        local token = grant(head, grace - trial)
        return -1, send(process(head), string.format('%s %.0f %.0f %d', head, token, us, left))
      end
      if sure ~= 0 then return free and math.abs(sure) or -1, 0 end
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
  if look < 0 or look > trial then return code end
  return { code, us, look }
end
