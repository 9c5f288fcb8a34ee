-- The holds of a semaphore, for its queue: many holders, each with some of the permits.
--
-- The functions need the locals `it` (see idle.lua), `free`, which they keep current, and `granted`, a key: owner -> deadline in server ms
-- of plain permits that were granted by message and not confirmed. The key has no TTL, because permits are given back by it.
--
-- The head may want more permits than are free. The entries behind it wait for one turn only: permits that never come back must not block
-- the queue. Then the head moves to the end of the queue, and big requests rest for ten times as long: requests with enough free permits
-- pass. The next turn is twice as long, for holders that are only slow.
local granted_ms, shares, confirms = it.plain and 500 or 1500, true, it.plain
local lock, fence = it.free, it.free
local turn_ms, longest_ms = 3000, 300000
-- The number of entries behind the head that poll at the end of its turn, one after the other: the head may be silent.
local watchers = 4
-- R15: a foreign key in place of `idle` stops requests, and no release.
local sound, idle = pcall(idle_of, it)
local refused = not sound
if refused then idle = nil end

local function released() return string.format('%.0f', free) end
local function spare() return free > 0 end
local function mints() return false end
-- Redisson's holders cannot be recognised.
local function foreign() return 'perhaps' end
local function wants(entry) return string.match(entry, '=(%d+)') + 0 end
-- In a turn of Redisson's clients, one permit is left to them.
local function fits(entry) return free - (left_ms > 0 and 1 or 0) >= wants(entry) end
-- The free permits before a release. In a turn of theirs the queue leaves one.
local before
local function was_taken() return before and before <= 0 end

-- Returns the ids of leased permits. The client derives the same ids from the owner.
local function ids_of(owner, count)
  local ids = {}
  for i = 1, count do
    local hash = string.sub(redis.sha1hex(owner .. ':' .. i - 1), 1, 32)
    ids[i] = string.gsub(hash, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end)
  end
  return ids
end

local function lease_of(ids, ends)
  local scored = {}
  for _, id in ipairs(ids) do
    scored[#scored + 1] = ends
    scored[#scored + 1] = id
  end
  call('ZADD', it.held, unpack(scored))
  -- The key is new if there was no other holder.
  local ttl = call('PTTL', it.free)
  if ttl > 0 then call('PEXPIRE', it.held, ttl) end
end

-- L9: true once the relay's entry has left the queue. The head then polls within `relay_ms`, and becomes the relay.
local relay_left, relay_ms = false, 100
local function leaves_queue(owner)
  if redis.pcall('HGET', wake, 'sentry') ~= owner then return end
  call('HDEL', wake, 'sentry')
  relay_left = true
end

-- Takes the permits that `entry` wants, for `ms`; without `ms`, plain permits until they are released.
local function enter(entry, us, ms, ids)
  local owner, count = owner_of(entry), wants(entry)
  ids = it.plain or ids or ids_of(owner, count)
  if idle and it.plain then holds(it, idle) elseif idle then used(it, idle, free, idle.ms + ms) end
  local ends, taken = ms and string.format('%.0f', math.floor(us / 1000) + ms), false
  local done, failed = pcall(function()
    -- First: without it, an owner without permits would stay, and returning them would create permits.
    free, taken = call('DECRBY', it.free, count), true
    if not it.plain then return lease_of(ids, ends) end
    call('HSET', it.held, owner, count)
    -- An earlier grant of this owner, with a ledger that was deleted since, must not take these permits back.
    if ms then call('ZADD', granted, ends, owner) else call('ZREM', granted, owner) end
  end)
  if not done then
    -- R15: a refused write leaves nothing, and not the TTL of years that `holds` has set.
    if it.plain then
      redis.pcall('HDEL', it.held, owner)
      redis.pcall('ZREM', granted, owner)
    else
      redis.pcall('ZREM', it.held, unpack(ids))
    end
    if taken then free = call('INCRBY', it.free, count) end
    if idle and it.plain then used(it, idle, free, 0) end
    error(failed, 0)
  end
  leaves_queue(owner)
end

-- Returns `count` permits of `owner`, or the leased permits `ids`.
local function give_back(owner, count, ids)
  local removed = false
  local done, left = pcall(function()
    if it.plain then
      call('ZREM', granted, owner)
      call('HDEL', it.held, owner)
    else
      call('ZREM', it.held, unpack(ids))
    end
    removed = true
    return call('INCRBY', it.free, count)
  end)
  if not done then
    -- R15: no permit is lost. The time of these has ended, so that a request with more rights returns them.
    if it.plain then
      if removed then redis.pcall('HSET', it.held, owner, count) end
      redis.pcall('ZADD', granted, '0', owner)
    elseif removed then
      for i = 1, count do redis.pcall('ZADD', it.held, '0', ids[i]) end
    end
    error(left, 0)
  end
  free = left
  -- The TTL of years ends with the last plain permit, also if its grant is undone.
  if idle and it.plain then used(it, idle, free, 0) end
end

local function leave(entry)
  local owner, count = owner_of(entry), wants(entry)
  give_back(owner, count, it.plain or ids_of(owner, count))
end

-- Gives back at most `most` grants of plain permits that were not confirmed in time, or leases that have ended.
local function reclaim(us, most)
  local ended = call('ZRANGEBYSCORE', it.plain and granted or it.held, '-inf', string.format('%.0f', math.floor(us / 1000)), 'LIMIT', 0, most)
  if #ended == 0 then return end
  if it.plain then
    for _, owner in ipairs(ended) do
      local count = call('HGET', it.held, owner)
      if count then
        give_back(owner, count)
        -- The message of the grant may be lost.
        tell(owner, 'P', 0)
      else
        call('ZREM', granted, owner)
      end
    end
  else
    give_back(nil, #ended, ended)
  end
end

-- Returns the ms until a permit is given back without a release, -1: none is. Redisson's "no lease" never ends.
local function next_end(us)
  local key = it.plain and granted or it.held
  local score = call('ZRANGEBYSCORE', key, '-inf', '(922337203685477', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return score and math.max(score - math.floor(us / 1000), 0) or -1
end

soonest = function(ms)
  local left = next_end(clock())
  if relay_left and (left < 0 or left > relay_ms) then left = relay_ms end
  if ms < 0 or left < 0 then return math.max(ms, left) end
  return math.min(ms, left)
end

-- Returns the entry that is served next, and whether it rests: then it holds no other entry up. `me` is the entry of this request.
local function candidate(us, me)
  for _ = 1, sweep do
    local head = first()
    if not head or fits(head) or wants(head) == 1 then return head end
    local waits, ends, turn, rests = unpack(call('HMGET', wake, 'waits', 'ends', 'turns', 'rests'))
    turn = tonumber(turn or turn_ms)
    local resting = ms_until(rests or 0, us, 10 * turn) > 0
    local begins = not resting and (waits ~= head or ends - us > 1000 * turn)
    if begins then
      waits, ends = head, us + turn * 1000
      note('waits', head, 'ends', string.format('%.0f', ends))
      for rank, entry in ipairs(call('ZRANGE', line, 1, watchers)) do
        if entry ~= me then tell(entry, 'N', string.format('%.0f', turn + rank * try_ms)) end
      end
    elseif not resting and us >= ends + 0 then
      call('ZADD', line, 'XX', behind_all(us), head)
      note('waits', '', 'turns', math.min(2 * turn, longest_ms), 'rests', string.format('%.0f', us + 10000 * turn))
      call('PEXPIRE', wake, 10 * turn + line_ms)
      head, resting = first(), true
    end
    if not resting then
      -- The head polls when its turn ends. A dead process has no turn.
      if head == me then return head end
      if begins and tell(head, 'N', string.format('%.0f', math.ceil((ends - us) / 1000))) ~= 0 then return head end
      if not begins and alive(head) then return head end
      remove(head)
    else
      -- P11: the first 512 entries.
      for from = 0, free > 0 and 7 * roll or -1, roll do
        local entries = call('ZRANGE', line, from, from + roll - 1)
        for _, entry in ipairs(entries) do
          if fits(entry) or wants(entry) == 1 then return entry end
        end
        if #entries < roll then break end
      end
      return head, true
    end
  end
  return nil, nil, true
end
