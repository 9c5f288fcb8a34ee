-- The holds of a lock, for its queue: one holder, which is one field.

local granted_ms, shares, confirms = 1500, false, false
-- Redisson's payload of a release.
local function released() return '0' end
local candidate = first
-- The queue is served only while the lock is free, one entry at a time, and not in a turn of Redisson's clients.
local function fits() return left_ms == 0 end
local function mints() return fence ~= lock end
local function leave(entry) call('HDEL', lock, owner_of(entry)) end

local function enter(entry, _, ms)
  call('HSET', lock, owner_of(entry), '1')
  local set = redis.pcall('PEXPIRE', lock, ms)
  if set == 1 then return end
  -- R9.
  leave(entry)
  error(set)
end
