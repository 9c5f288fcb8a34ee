-- semaphore/line, for the scripts that ask for permits, give up asking, or free some.
--
-- The line is a list of "<owner> <permits>": waiting requests in order of arrival, at most one for each process, its first waiter.
-- Permits are kept back for the first in line. Without it, small requests take each permit as it becomes free, and a big one never
-- finds enough. A request for one permit joins only when there is a line. Redisson's requests ignore the line.
--
-- The TTL of the line, PATIENCE, bounds the wait for a first that is silent: a living first asks every BEAT and renews the TTL. When
-- the first is dead the whole line expires, and living requests join again: all the dead together cost the others one PATIENCE.
--
-- The turn of a first that asked for more than one permit is bounded, too: "<owner> <permits> <ms>" is a first whose turn ends at ms.
-- Holders that kept permits through the whole turn may never release them: they are marked as slow, the first leaves the line, and a
-- request that needs their permits cannot join it. The next turn lasts twice as long, enough for holders that are only slow.
--
-- The slow: a hash, owner or permit id -> 1; turn -> length of the next turn in ms; * -> 1 when there were too many holders to mark.
local PATIENCE = 3000
local BEAT = 1000
local PLACES = 16
local TURN = 3000
-- The marks expire, because a slow holder may release: a leaked permit costs the others one TURN in so many ms.
local MEMORY = 300000
-- The most holders that a script looks at.
local LOOKED_AT = 256

local function first_in(line)
  local text = redis.call('LINDEX', line, 0)
  if not text then return nil end
  local place, permits, ends = string.match(text, '^(%S+ (%d+)) ?(%d*)$')
  return { text = text, place = place, permits = tonumber(permits) or 0, ends = tonumber(ends) or math.huge }
end

-- Returns the number of permits that are kept back from the request with this place.
local function kept_back(first, place, ms)
  if not first or first.place == place or ms >= first.ends then return 0 end
  return first.permits
end

-- Gives up a place, and returns how many there were. The next in line gets a whole PATIENCE.
local function leave(line, place, first)
  if not first then return 0 end
  if first.place ~= place then return redis.call('LREM', line, 0, place) end
  redis.call('LPOP', line)
  redis.call('PEXPIRE', line, PATIENCE, 'GT')
  return 1
end

