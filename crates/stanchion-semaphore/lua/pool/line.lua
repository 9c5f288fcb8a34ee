-- semaphore/line, in front of the scripts that ask for permits and of those that give up asking.
--
-- The line is a list of "<owner> <permits>": requests that wait and would be overtaken for ever, in order of arrival, the first waiter
-- of a process only. Permits are kept back for the first of them; a request for one permit joins only when there is a line. Without
-- it, small requests take each permit as it comes free, and a big one never finds enough. Redisson's requests ignore the line.
--
-- The TTL of the line is the patience with a first that is silent: it asks every BEAT and lengthens it. When the first is dead the
-- whole line goes, and those who live join again: the dead cost the others one patience together, however many they are.
--
-- The turn of a first ends, too: "<owner> <permits> <ms>" is a first whose turn ends then, if it asked for more than one. Who held
-- permits all the time may never release them: they are written down as slow, the first gives up its place, and no request gets one
-- again that cannot be served without theirs. The next turn lasts twice as long, so that holders who are slow but finite are waited for.
--
-- The slow: a hash, owner or permit id -> 1; turn -> ms that the next turn lasts; * -> 1 when there were too many to write down.
local PATIENCE = 3000
local BEAT = 1000
local PLACES = 16
local TURN = 3000
-- The slow are forgotten, so that a guess can be wrong: a leaked permit costs the others one TURN in so many ms.
local MEMORY = 300000
-- So many holders are looked at, at most.
local LOOKED_AT = 256

local function first_in(line)
  local text = redis.call('LINDEX', line, 0)
  if not text then return nil end
  local place, permits, ends = string.match(text, '^(%S+ (%d+)) ?(%d*)$')
  return { text = text, place = place, permits = tonumber(permits) or 0, ends = tonumber(ends) or math.huge }
end

-- How many permits are kept back from the request with this place.
local function kept_back(first, place, ms)
  if not first or first.place == place or ms >= first.ends then return 0 end
  return first.permits
end

-- Gives a place up. The next in line gets a patience of its own.
local function leave(line, place, first)
  if not first then return 0 end
  if first.place ~= place then return redis.call('LREM', line, 0, place) end
  redis.call('LPOP', line)
  redis.call('PEXPIRE', line, PATIENCE, 'GT')
  return 1
end

