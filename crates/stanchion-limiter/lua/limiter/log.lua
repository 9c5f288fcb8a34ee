-- limiter/log, in front of the other scripts. `value` + the permits of all entries = the rate. Redisson relies on this, too.
local call = redis.call

-- The most entries that a script reads to compare the counter with them.
local EXACT = 1024

-- The longest keep-alive time, in ms: ten years. PEXPIRE refuses some longer times, and the script would end with keys that have no TTL.
local LONGEST = 315360000000

-- Returns the permits of an entry: a byte with the length of its id, the id, 32 bits of permits, little endian (Redisson's layout).
local function permits_in(entry)
  local at = (string.byte(entry) or 0) + 2
  local a, b, c, d = string.byte(entry, at, at + 3)
  -- Not an entry of a limiter. It counts as one permit, for as long as any entry.
  if not d then return 1 end
  return a + b * 256 + c * 65536 + d * 16777216
end

local function whole(text)
  if #text < 16 and string.find(text, '^-?%d+$') then return text + 0 end
  error({ err = 'WRONGTYPE the key holds a text where a rate limiter has a number' })
end

-- Returns whether an entry was written by this library, with the server's clock.
local function is_ours(entry)
  return string.sub(entry, 2, 5) == 'stn0'
end

-- Returns the stored rate, interval, type and keep-alive time, each nil if it is missing. Called before any write, so that a foreign key
-- stays unchanged (R16).
local function stored_in(key)
  local text = call('HMGET', key, 'rate', 'interval', 'type', 'keepAliveTime')
  if not text[1] and not text[2] and not text[3] and call('EXISTS', key) == 1 then
    error({ err = 'WRONGTYPE the key holds a hash that is no rate limiter' })
  end
  for i = 1, 4 do text[i] = text[i] and whole(text[i]) or nil end
  return text[1], text[2], text[3], text[4]
end

-- Returns the number under a key, which is the free permits minus the booked permits; nil if the key is missing.
local function value_in(key)
  local text = call('GET', key)
  return text and whole(text)
end

-- Returns the score of the entry with which `need` permits have ended, counted from the oldest. If all entries have fewer permits, returns
-- nil and their sum.
local function ends_with(log, need)
  local from, sum = 0, 0
  repeat
    local part = call('ZRANGE', log, from, from + 127, 'WITHSCORES')
    for i = 1, #part, 2 do
      sum = sum + permits_in(part[i])
      if sum >= need then return part[i + 1] + 0 end
    end
    from = from + 128
  until #part < 256
  return nil, sum
end

local function total(log)
  local _, sum = ends_with(log, 1 / 0)
  return sum
end

-- Sets the TTLs that Redisson would set. A counter that outlives its log, or ends before it, is an error to Redisson.
local function keep(config, value, log, time)
  local ttl = time
  if ttl > 0 then call('PEXPIRE', config, ttl) else ttl = call('PTTL', config) end
  if ttl > 0 then
    call('PEXPIRE', value, ttl)
    call('PEXPIRE', log, ttl)
  end
end

