-- What the line of a lock needs to know of it: a hold is one field, and each process has a place of its own.

-- Redisson's message of a release.
local released = '0'
local tell = send
local function enter(place) call('HSET', lock, place, '1') end
local function leave(place) call('HDEL', lock, place) end
local function first() return call('ZRANGE', line, 0, 0)[1] end
local function is_first(place) return first() == place end
local function waiting() return call('ZCARD', line) end
-- Returns what an order other than that of arrival puts at the head, 'outside' for those outside the line.
local function due() return nil end
local give_way

local function put(place, arrived) return place_in(line, place, arrived) end
