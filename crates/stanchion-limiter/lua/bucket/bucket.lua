-- bucket/bucket, in front of the other scripts: one string `<id>@<now> <t> <t> …`: the last grant, the server's time of the last write,
-- and, for each limit, the moment at which its bucket is full, all in microseconds since 2024. Earlier versions write no `@<now>`.
local call = redis.call
local EPOCH = 1704067200000000

-- The longest horizon of any client, in microseconds. A request for several permits may be booked half of it further ahead.
local FURTHEST = 60000000

-- Returns the id, the moments, and whether the server's clock was stepped back since they were written. Called before any write, so that a
-- foreign key stays unchanged (R16).
local function read(key, now)
  local text = call('GET', key)
  if not text then return '', {}, false end
  local id, rest = string.match(text, '^(%S*) ([%d%. -]+)$')
  if not id then error({ err = 'WRONGTYPE the key holds a text that is no token bucket' }) end
  local plain, written = string.match(id, '^(.*)@(-?%d+)$')
  -- A clock that is behind the last write was stepped back. The moments move back by the same step, so that they do not count for less time.
  local step = written and math.max(written - now, 0) or 0
  local full = {}
  for moment in string.gmatch(rest, '%S+') do full[#full + 1] = moment - step end
  return plain or id, full, step > 0
end

-- Returns the limits of an argument: for each { microseconds of one permit, microseconds of a whole bucket, burst }.
local function limits_of(text)
  local limits = {}
  for interval, rate, burst in string.gmatch(text, '(%d+)/(%d+)/(%d+)') do
    local each = interval / rate
    limits[#limits + 1] = { each, each * burst, burst + 0 }
  end
  return limits
end

-- Returns the moments at which the buckets are full: now, if no request has ever taken from a limit. The moments of further limits, which only
-- other handles know, stay until they have passed.
local function filled(full, limits, now)
  for i, limit in ipairs(limits) do
    local at = math.max(full[i] or now, now)
    -- Further ahead than any booking: the limit was another one, or the clock was stepped back before versions that write `@<now>`.
    if at > now + limit[2] + FURTHEST * 1.5 then at = now + limit[2] end
    full[i] = at
  end
  for i = #full, #limits + 1, -1 do
    if full[i] > now then break end
    full[i] = nil
  end
  return full
end

-- Returns the permits that are free now, and the milliseconds until all are free.
local function left(full, limits, now)
  local least, reset = nil, 0
  for i, limit in ipairs(limits) do
    local free = math.max(math.floor((limit[2] - (full[i] - now)) / limit[1] + 0.001), 0)
    least = math.min(least or free, free)
    reset = math.max(reset, math.ceil((full[i] - now) / 1000))
  end
  return least, reset
end

local function write(key, id, full, now)
  local text, last = { id .. '@' .. string.format('%.0f', now) }, now
  for i, moment in ipairs(full) do
    text[i + 1] = string.format('%.3f', moment)
    last = math.max(last, moment)
  end
  call('SET', key, table.concat(text, ' '), 'PX', string.format('%.0f', math.ceil((last - now) / 1000) + 1000))
end

