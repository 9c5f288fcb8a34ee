-- semaphore/acquire
-- Take permits if so many are free and not kept back, or find that this owner has them already.
--
-- KEYS[1]  free       string  the permits that nobody holds (Redisson's layout); missing: none
-- KEYS[2]  ledger     hash    owner -> permits; no TTL, because it exists exactly while permits are held
-- KEYS[3]  line       list    see line.lua
-- ARGV[1]  owner      "<client uuid>:<number>", used for one acquire only (R1)
-- ARGV[2]  wanted     permits, at least 1
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  waits      1: when refused it may stand in line
--
-- Returns  >= 0 acquired, and so many more could be; -1 late, -4 - ms busy: ask again after so long (-3: when there is a message); when it stands in line
--          { -4 - ms, server time in microseconds, 1 }
-- Replay   the ledger has the owner: granted, and nothing is taken again (P6)
-- Wakes    nobody
-- Cost     O(1); refused: O(places in line), at most 16, and O(holders) if the line is not empty, up to 256
local call = redis.call
local free = free_in(KEYS[1])
local wanted, place = ARGV[2] + 0, ARGV[1] .. ' ' .. ARGV[2]
local kept, first = kept_back(KEYS[3], place, ARGV[4])

-- Whether so many can come together when everybody has released. Nothing is kept back for a request that cannot be served.
local function possible(permits)
  local holders = call('HLEN', KEYS[2])
  if free + holders >= permits then return true end
  if holders > 256 then return false end
  local total = free
  for _, held in ipairs(call('HVALS', KEYS[2])) do total = total + held end
  return total >= permits
end

local short = free < wanted
if short or (free < wanted + kept and possible(kept)) then
  if call('HGET', KEYS[2], ARGV[1]) then return math.max(free, 0) end
  -- Kept back for somebody who may be dead: that ends without a message.
  local again = short and -1 or math.max(call('PTTL', KEYS[3]), 0)
  if ARGV[4] == '1' and (first or wanted > 1) then
    local time = call('TIME')
    local now = time[1] * 1000000 + time[2]
    if now > ARGV[3] + 0 then return -1 end
    if not possible(wanted) then
      leave(KEYS[3], place, first)
    elseif stand(KEYS[3], place, first) then
      return { -4 - BEAT, now, 1 }
    end
  end
  return -4 - again
end

-- P3: a request that outlived its caller takes nothing.
local time = call('TIME')
if time[1] * 1000000 + time[2] > ARGV[3] + 0 then return -1 end
if call('HSET', KEYS[2], ARGV[1], ARGV[2]) == 0 then return free end
local left = redis.pcall('DECRBY', KEYS[1], ARGV[2])
if type(left) ~= 'number' then
  call('HDEL', KEYS[2], ARGV[1])
  return left
end
if first then
  leave(KEYS[3], place, first)
  left = left - kept_back(KEYS[3], place, ARGV[4])
end
return math.max(left, 0)
