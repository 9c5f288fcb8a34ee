-- semaphore/refused, for the scripts that ask for permits, behind line.lua.

-- Returns whether enough permits are free once every holder that is not slow has released, and the length of a turn in ms. `count`
-- returns the number of holders; `list` returns up to so many of them, and the permits of each.
local function possible(slow, wanted, free, count, list)
  local known = redis.call('HMGET', slow, 'turn', '*')
  local holders = count()
  if not known[1] and free + holders >= wanted then return true, TURN end
  if known[2] then return free >= wanted, known[1] + 0 end
  local ids, permits = list(LOOKED_AT)
  local is_slow = known[1] and #ids > 0 and redis.call('HMGET', slow, unpack(ids)) or {}
  for i, held in ipairs(permits) do
    if not is_slow[i] then free = free + held end
  end
  return free >= wanted, tonumber(known[1]) or TURN
end

-- Marks the holders that kept permits through a turn.
local function remember(slow, turn, count, list)
  local marks = { 'turn', string.format('%.0f', turn * 2) }
  if count() > LOOKED_AT then
    marks[3], marks[4] = '*', '1'
  else
    for i, id in ipairs(list(LOOKED_AT)) do marks[2 * i + 1], marks[2 * i + 2] = id, '1' end
  end
  -- First, because it passes at maxmemory and lets the rest pass (R8).
  redis.call('DEL', slow)
  redis.pcall('HSET', slow, unpack(marks))
  -- R9: no mark without a TTL.
  if redis.pcall('PEXPIRE', slow, MEMORY) ~= 1 then redis.pcall('DEL', slow) end
end

-- Takes the last place in line, or keeps the one it has; returns false when no place is free.
local function stand(line, place, first)
  local places = first and redis.call('LRANGE', line, 0, -1) or {}
  for _, taken in ipairs(places) do
    if taken == place then return true end
  end
  -- Without memory or rights for the list there is no line (R9).
  if #places >= PLACES or type(redis.pcall('RPUSH', line, place)) ~= 'number' then return false end
  if #places == 0 and redis.pcall('PEXPIRE', line, PATIENCE) ~= 1 then
    redis.pcall('LREM', line, 0, place)
    return false
  end
  return true
end

-- Renews the TTL of the line, and begins the turn of the first; returns false when that fails.
local function begin(line, first, turn, ms)
  redis.call('PEXPIRE', line, PATIENCE, 'GT')
  if first.permits == 1 or first.ends < math.huge then return true end
  first.ends = ms + turn
  local text = string.format('%s %.0f', first.place, first.ends)
  if type(redis.pcall('LPUSH', line, text)) ~= 'number' then return false end
  redis.call('LREM', line, -1, first.text)
  first.text = text
  return true
end

-- Joins, keeps or leaves the line for a refused request. Returns the ms after which to ask again (math.huge: on a message); 1 when it
-- is in line, 2 when it is passed over because it cannot be served at present; and whether permits are no longer kept back for it.
--
-- waits  0 it does not; 1 behind another of its process; 2 as the first of its process
local function refused(line, slow, first, place, wanted, free, ms, waits, count, list)
  local again = math.huge
  -- Kept back for a first that may be dead: that ends without a message.
  if free >= wanted then again = math.max(0, math.min(redis.call('PTTL', line), first.ends - ms)) end
  if waits == '0' or (wanted == 1 and (not first or waits == '1')) then return again end
  local mine = first and first.place == place
  local can, turn = possible(slow, wanted, free, count, list)
  local over = mine and ms >= first.ends
  if over and can then remember(slow, turn, count, list) end
  if over or not can then
    leave(line, place, first)
    return again, wanted > 1 and 2, mine
  end
  if waits == '1' then return again end
  if not mine then
    if not stand(line, place, first) then return again end
    if first then return BEAT, 1 end
    first = first_in(line)
  end
  if not begin(line, first, turn, ms) then
    leave(line, place, first)
    return again, false, true
  end
  return math.max(0, math.min(BEAT, first.ends - ms)), 1
end

