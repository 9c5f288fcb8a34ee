-- semaphore/line, in front of the scripts that ask for permits and of those that give up asking.
--
-- The line is a list of "<owner> <permits>": requests that wait and would be overtaken for ever, in order of arrival. Permits
-- are kept back for the first of them; a request for one permit joins only when there is a line. Without it, small requests
-- take each permit as it comes free, and a big one never finds enough. Redisson's requests ignore the line.
--
-- Nothing is kept back from waiters of the same process: they ask in the order of their own queue, and whoever asks there comes
-- before the first in line or is itself.
--
-- Its TTL is the patience with the first, who asks again in time to lengthen it. When the first is dead the whole line goes, and
-- those who live join again: the dead cost the others one patience together, however many they are.
local PATIENCE = 3000
local BEAT = 1000
local PLACES = 16

-- How many permits are kept back from the request with this place, and who is first.
local function kept_back(line, place, waits)
  local first = redis.call('LINDEX', line, 0)
  if not first or first == place then return 0, first end
  -- An owner begins with the UUID of its process.
  if waits == '1' and string.sub(first, 1, 36) == string.sub(place, 1, 36) then return 0, first end
  return tonumber(string.match(first, ' (%d+)$')) or 0, first
end

-- Gives a place up. The next in line gets a patience of its own.
local function leave(line, place, first)
  local left = redis.call('LREM', line, 0, place)
  if left > 0 and place == first then redis.call('PEXPIRE', line, PATIENCE, 'GT') end
  return left
end

-- Keeps the place in line, or takes the last one; false when there is none.
local function stand(line, place, first)
  if place == first then
    redis.call('PEXPIRE', line, PATIENCE, 'GT')
    return true
  end
  local places = redis.call('LRANGE', line, 0, -1)
  for _, taken in ipairs(places) do
    if taken == place then return true end
  end
  -- A server without memory or rights for it has no line (R9).
  if #places >= PLACES or type(redis.pcall('RPUSH', line, place)) ~= 'number' then return false end
  if #places == 0 and redis.pcall('PEXPIRE', line, PATIENCE) ~= 1 then
    redis.pcall('LREM', line, 0, place)
    return false
  end
  return true
end

