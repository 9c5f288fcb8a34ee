-- semaphore/crowd, for the scripts that free permits or refuse them; behind line.lua.
--
-- The crowd is a sorted set, client uuid -> arrival in server us: the processes that wait, each once. Permits that become free are announced
-- to as many of them as there are permits, each on its own channel, "<base>:<uuid>": "n", so many may be free; "P ms", ask in ms, because
-- those that were told may be dead; "H", hear Redisson's releases from now on. Who is told leaves the crowd, and is in it again with its
-- next refusal. Redisson's clients hear `base` alone; their releases are heard by one process for all. The hash `wake` has notes: that process, when permits were
-- announced last and how many of these are not asked for yet, and when a client polled.
--
-- A "=" behind the uuid: the waiter that was refused wants one permit and can be granted it, and no other of its process waited. Where
-- `to.grant` is set, such a process is not told but granted: see leased/grant.lua. Not beside clients of Redisson that wait: they would never find a free permit. Nor where it may have more than one: it asks
-- for as many as it has waiters.
--
-- Milliseconds: of a crowd in which nobody asks; of the notes; in which those who were told ask, and nobody who comes anew takes what is theirs;
-- until the next in the crowd asks; of a grant by message, until its holder renews it. Clients that poll hear nothing: one of them is let to ask again after POLLS, and finds a permit
-- that became free since KEPT; each PERIOD one. A process that cannot be told asks again after POLL. And the most that are told in
-- one run (P11).
local GATHERED = 20000
local NOTED = 10000
local PROMISED = 25
local WATCH = 200
local GRANTED = 1500
local KEPT = 10
local POLLS = 20
local PERIOD = 200
local POLL = 250
local TOLD = 16

-- Returns how many heard it; -1: it could not be said.
local function say(to, client, payload)
  local told = redis.pcall(to.publish, client and to.base .. ':' .. client or to.base, payload)
  return type(told) == 'number' and told or -1
end

local function subscribers(to, ...)
  local counted = redis.pcall('PUBSUB', to.publish == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', ...)
  -- Without the right to count there may be some.
  if counted.err then return 1, 0 end
  return counted[2], counted[4]
end

-- Returns how many clients of Redisson's hear `base`. Those of stanchion hear a second channel as well.
local function outside(to)
  local all, ours = subscribers(to, to.base, to.base .. ':stanchion')
  return all - ours
end

-- R8, R9: without memory or rights there are no notes.
local function note(to, ...)
  if type(redis.pcall('HSET', to.wake, ...)) == 'number' and redis.pcall('PEXPIRE', to.wake, NOTED) ~= 1 then redis.call('DEL', to.wake) end
end

-- Returns the first process in the crowd, and its member there.
local function head(to)
  local member = redis.call('ZRANGE', to.crowd, 0, 0)[1]
  if member then return string.sub(member, 1, 36), member end
end

-- Returns how many were there.
local function remove(to, client) return redis.call('ZREM', to.crowd, client, client .. '=') end

-- Returns whether permits of this name are granted by message, which is text.
local function can_be_granted(name) return not string.find(name, '[%z\128-\255]') end

-- Lets another of the crowd hear Redisson's releases for all if `client`, which has left it, did: the last, which will be in it for longest.
local function relieve(to, client)
  if redis.call('HGET', to.wake, 'sentry') ~= client then return end
  local member = redis.call('ZRANGE', to.crowd, -1, -1)[1]
  local last = member and string.sub(member, 1, 36)
  if last and say(to, last, 'H') > 0 then
    note(to, 'sentry', last)
  else
    -- The next that is refused will.
    redis.call('HDEL', to.wake, 'sentry')
  end
end

-- The reply of a script that has freed permits, or was to. If it has met more dead processes than it removes in one run, it has not
-- finished: its client runs semaphore/tend.
local function unless_unfinished(to, reply)
  if to.more then return { 'tend', 0, reply } end
  return reply
end

-- Lets the first living process in the crowd ask when nobody else may have done so.
local function watch(to, ms)
  for _ = 1, TOLD do
    local client, member = head(to)
    if not client or say(to, client, string.format('P %d', ms)) ~= 0 then return end
    redis.call('ZREM', to.crowd, member)
  end
  to.more = head(to) ~= nil
end

-- Returns the number of permits that were announced a moment ago and not asked for yet: they belong to those who were told. Also when that
-- was, if it was a moment ago, and when a client polled.
local function promised(to, us)
  local told, due, polled = unpack(redis.call('HMGET', to.wake, 'told', 'due', 'polled'))
  if us - (told or 0) >= 1000 * PROMISED then return 0, nil, polled or 0 end
  return due + 0, told, polled or 0
end

-- Returns whether a permit is kept for a client that polls.
local function is_kept(us, polled)
  local since = (us - polled) / 1000
  return since >= KEPT and since < PROMISED
end

local function tell_crowd(to, free)
  if redis.call('EXISTS', to.crowd, to.wake) == 0 then return say(to, nil, free) end
  local time = redis.call('TIME')
  local us, heard = time[1] * 1000000 + time[2], 0
  local foreign = outside(to) > 0
  -- Redisson reads it as a number; the client that hears for the crowd knows by the zero that it is none of Redisson's.
  if foreign then heard = math.max(0, say(to, nil, '0' .. string.format('%.0f', free))) end
  -- Some of what is free was announced a moment ago, to others that are about to ask.
  local due, recent, polled = promised(to, us)
  if not head(to) then
    -- Those who were told a moment ago will find this, too.
    if not recent then redis.call('DEL', to.wake) end
    return heard
  end
  local all = free
  free = free - due
  if is_kept(us, polled) then free = free - 1 end
  local first = first_in(to.line)
  if first and us / 1000 < first.ends then
    if all < first.permits then
      -- All that is free is kept back. Should it be for the dead, the line ends without a message.
      watch(to, math.max(1, redis.call('PTTL', to.line)))
      return heard
    end
    local client = string.sub(first.place, 1, 36)
    remove(to, client)
    heard = heard + math.max(0, say(to, client, string.format('%.0f', first.permits)))
    free = free - first.permits
  end
  local had, granted, dead = free, 0, false
  for _ = 1, TOLD do
    local client, member = head(to)
    if free <= 0 or not client then break end
    redis.call('ZREM', to.crowd, member)
    local share = math.ceil(free / (redis.call('ZCARD', to.crowd) + 1))
    local told = share == 1 and member ~= client and to.grant and not foreign and to.grant(to, client, us)
    if told then
      if told > 0 then
        granted = granted + 1
        relieve(to, client)
      end
    else
      told = say(to, client, string.format('%.0f', share))
    end
    if told < 0 then return -1 end
    if told > 0 then heard, free = heard + told, free - share end
    dead = dead or told == 0
  end
  if dead and free > 0 and head(to) then to.more = true end
  local announced = had - free - granted
  if announced > 0 then note(to, 'told', recent or string.format('%.0f', us), 'due', string.format('%.0f', due + announced)) end
  -- Those who were granted one may be dead, too, and that one has an end.
  watch(to, granted > 0 and announced == 0 and GRANTED or WATCH)
  return heard
end

-- Takes a process out of the crowd. Returns 1 if it was there.
local function part(to, client)
  local first = head(to)
  local gone = remove(to, client)
  if redis.call('EXISTS', to.crowd) == 0 then
    redis.call('DEL', to.wake)
  else
    relieve(to, client)
    if first == client then watch(to, WATCH) end
  end
  return gone
end

-- Announces that permits are free. Returns how many heard it; -1: it could not be said. Errors do not undo a release (R15).
local function announce(to, free)
  if free <= 0 then return 0 end
  local done, heard = pcall(tell_crowd, to, free)
  if done then return heard end
  say(to, nil, free)
  return -1
end

-- Returns whether no process waits but that of `client`, and none was told a moment ago: then its waiters are told by a reply, as many as
-- permits are free. Not where permits are kept for somebody, who may not come: an announcement lets the crowd look after these.
local function is_alone(to, client, us)
  if redis.call('ZCARD', to.crowd) ~= 1 or head(to) ~= client or redis.call('EXISTS', to.line) == 1 then return false end
  local due, _, polled = promised(to, us)
  return due == 0 and not is_kept(us, polled)
end

-- Returns whether permits of `client` may stay in its process: nobody waits, was told a moment ago or polls, but its own waiters.
local function is_nobody_else(to, client, us)
  return redis.call('EXISTS', to.line, to.crowd, to.wake) == 0 or is_alone(to, client, us)
end

-- The reply to a release by `client`: as `announce`, or { that number, permits that its own waiters may ask for }.
local function give_back(to, free, client)
  local done, own = pcall(function()
    local time = redis.call('TIME')
    local us = time[1] * 1000000 + time[2]
    if free <= 0 or not is_alone(to, client, us) then return nil end
    return { outside(to) > 0 and math.max(0, say(to, nil, '0' .. string.format('%.0f', free))) or 0, free }
  end)
  return done and own or unless_unfinished(to, announce(to, free))
end

-- Puts a process that waits into the crowd. Returns its part in hearing Redisson's releases: 1 to hear them, 2 to stop, 0 as before;
-- nil: without memory, or with a foreign key, nobody can tell it (R8, R9). `told`: it was told in vain, and is the first again.
local function gather(to, client, us, hears, told)
  local first = told and redis.call('ZRANGE', to.crowd, 0, 0, 'WITHSCORES')[2]
  local arrived = first and math.min(us, first - 1) or us
  local member, other = client, client .. '='
  if to.single then
    member, other = other, member
  end
  -- Its first waiter may be another by now; its arrival stays.
  local former = redis.pcall('ZSCORE', to.crowd, other)
  if type(former) == 'string' then
    redis.call('ZREM', to.crowd, other)
    arrived = math.min(arrived, former + 0)
  end
  local added = redis.pcall('ZADD', to.crowd, 'NX', string.format('%.0f', arrived), member)
  if type(added) ~= 'number' then return nil end
  if redis.pcall('PEXPIRE', to.crowd, GATHERED) ~= 1 then
    redis.call('ZREM', to.crowd, member)
    return nil
  end
  local sentry = redis.call('HGET', to.wake, 'sentry')
  if sentry and sentry ~= client and subscribers(to, to.base .. ':' .. sentry) > 0 then return hears and 2 or 0 end
  if not hears then return 1 end
  note(to, 'sentry', client)
  return 0
end

-- After a hand-off inside the process of `client`, beside which nobody waits: it is in the crowd if, and only if, others of it wait.
local function keep(to, client, us, hears, others)
  if not others then
    part(to, client)
  elseif not head(to) then
    gather(to, client, us, hears)
  end
end

-- After a grant: keeps the process in the crowd if others of it wait, and takes it out if not.
local function stay(to, client, us, hears, more)
  if more then
    to.single = false
    gather(to, client, us, hears)
    -- Nobody was there to look after what others were told of.
    if head(to) == client and promised(to, us) > 0 then watch(to, PROMISED) end
  elseif client ~= '' then
    part(to, client)
  end
end

-- The flags of a request: whether it was told to ask, by message; whether its client hears Redisson's releases; whether others of its
-- process wait; whether it need not wait behind those who were told; and how many more its process was told of than it has use for.
local function flags_of(flags)
  local told = flags % 2 == 1
  return told, math.floor(flags / 2) % 2 == 1, math.floor(flags / 4) % 2 == 1, told or flags % 16 >= 8, math.floor(flags / 16)
end

-- The reply to a refused request: see the headers of the scripts. `again`: ms, or math.huge. `ends`: ms until a lease ends, if one does: of
-- those in the crowd only the first asks then, because an end sends no message.
local function busy(to, again, us, sign, client, hears, told, polls, ends)
  if polls and redis.call('EXISTS', to.crowd) == 1 and us - (redis.call('HGET', to.wake, 'polled') or 0) >= 1000 * PERIOD then
    note(to, 'polled', string.format('%.0f', us))
    again = math.min(again, POLLS)
  end
  local role = client == '' or gather(to, client, us, hears, told)
  if not role then again = math.min(again, POLL) end
  if ends and (client == '' or not role or head(to) == client) then again = math.min(again, ends) end
  local code = again == math.huge and -3 or -4 - again
  if client == '' then return unless_unfinished(to, sign and { code, us, sign } or code) end
  return unless_unfinished(to, { code, us, sign or 0, role or 0 })
end

-- Records that one who was told of `wanted` permits asks, or has no use for them.
local function asked(to, wanted)
  local due = redis.call('HGET', to.wake, 'due')
  if due then redis.pcall('HSET', to.wake, 'due', string.format('%.0f', math.max(0, due - wanted))) end
end

-- Returns the reply to one who comes anew meanwhile. The first in the crowd asks in a moment, and lets the others know of what is left.
local function behind(to, us, client, hears)
  local reply = busy(to, math.huge, us, false, client, hears)
  if head(to) == client then reply[1] = -4 - PROMISED end
  return reply
end

-- After a grant that leaves permits free: announces them, unless that was done a moment ago. Returns those that are nobody's.
local function leftover(to, client, left, us, reserved)
  left = math.max(left - reserved, 0)
  if left == 0 or redis.call('EXISTS', to.crowd) == 0 or is_alone(to, client, us) then return left end
  local due = promised(to, us)
  if due > 0 then return math.max(0, left - due) end
  announce(to, left)
  return 0
end

-- Ends an acquire that has taken its permits. `found`: how many it made free itself. Returns the number of permits that others can still
-- have. Errors do not undo it.
local function granted(to, client, us, hears, more, left, reserved, found)
  local done, others = pcall(function()
    stay(to, client, us, hears, more)
    -- Its own process has left by now if it has no use for them.
    if found > 0 then announce(to, left) end
    return leftover(to, client, left, us, reserved)
  end)
  return unless_unfinished(to, done and others or 0)
end

