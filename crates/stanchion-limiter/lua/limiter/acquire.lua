-- limiter/acquire
-- Take permits, book them for a later moment, or return when they are available. Creates the limiter if it is missing.
--
-- KEYS[1]  config     hash        rate, interval, type, keepAliveTime (Redisson's layout)
-- KEYS[2]  value      string      free permits minus booked permits
-- KEYS[3]  own value  string      the same for this client alone; used if type is 1
-- KEYS[4]  log        sorted set  entry -> the moment from which it counts, server ms; a booking is an entry in the future
-- KEYS[5]  own log    sorted set  the same for this client alone; used if type is 1
-- KEYS[6]  written    string      the server's time in ms of the last write to the log; TTL as long as its entries may count
-- KEYS[7]  own written  string    the same for this client alone; used if type is 1
-- ARGV[1]  entry      of this request, see log.lua; derived from its owner, which is used for one acquire only (R1)
-- ARGV[2]  wanted     permits, at least 1
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  until      server time in microseconds at which they must count at the latest; 0: now
-- ARGV[5]  horizon    the furthest that one permit can be booked ahead, in ms; 0: no bookings
-- ARGV[6]  rate       for a new limiter, as the next three
-- ARGV[7]  interval   ms
-- ARGV[8]  type       0 for all clients together, 1 for each client
-- ARGV[9]  keep       ms, at most ten years; 0: no limit
-- ARGV[10] refused    the number of times that this request has been refused
--
-- Returns  { n >= 0 granted, and n more can be booked; server time in microseconds, ms until it counts, ms until the next can be
--          booked or -1, free permits, ms until all are free, rate, interval, type }; -1 late;
--          { -4 - ms refused: retry after ms, server time, 1 if it cannot count by `until`, ms until it could, free permits, ms until
--          all are free, rate, interval, type }
-- Replay   if the log has the entry: granted, and nothing is taken twice (P6). If its moment has passed, it gets a new moment; or it is refused,
--          and the entry stays until the next request
-- Wakes    none
-- Cost     O(log n + ended), at most 512 ended entries in a run. Booked or refused while there are entries for several permits: O(entries)
--          up to 1024, above that O(permits booked). The first after the clock was stepped back: the newest 4096 entries
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local wanted = ARGV[2] + 0
local rate, interval, kind, keeps = stored_in(KEYS[1])
local complete = rate and interval and kind and keeps
rate, interval, kind, keeps = rate or ARGV[6] + 0, interval or ARGV[7] + 0, kind or ARGV[8] + 0, math.min(keeps or ARGV[9] + 0, LONGEST)
local value_key, log, written = KEYS[2 + kind], KEYS[4 + kind], KEYS[6 + kind]
if not log then error({ err = 'WRONGTYPE the key holds a rate limiter of an unknown type' }) end
local mine = call('ZSCORE', log, ARGV[1])
local value, last = value_in(value_key), value_in(written)
-- P3: a request that outlived its caller takes nothing.
if not mine and us > ARGV[3] + 0 then return -1 end
if rate < wanted then return redis.error_reply(string.format('ERR %.0f permits at once: the limit is %.0f', wanted, rate)) end
if not complete then
  call('HSET', KEYS[1], 'rate', rate, 'interval', interval, 'type', kind, 'keepAliveTime', keeps)
  if keeps > 0 then call('PEXPIRE', KEYS[1], keeps) end
end

local function note()
  return redis.pcall('SET', written, now, 'PX', 2 * interval + 60000).ok
end

-- A clock that is behind the last grant was stepped back. The entries move back by the same step, so that they count for at least an interval
-- of steady time; the time since that grant counts as zero. Entries of Redisson's clients stay, because these clients use their own clocks.
-- Entries beyond the newest 4096 also stay, and count for longer.
local step = last and last - math.ceil(us / 1000) or 0
-- note() comes first: if Redis refuses it at maxmemory, the entries stay. Without note(), the next request would find the same step again.
if step > 0 and note() then
  local newest = call('ZRANGE', log, '+inf', '(' .. string.format('%.0f', now - interval), 'BYSCORE', 'REV', 'LIMIT', 0, 4096, 'WITHSCORES')
  for i = 1, #newest, 2 do
    if is_ours(newest[i]) then call('ZADD', log, 'XX', newest[i + 1] - step, newest[i]) end
  end
  mine = mine and call('ZSCORE', log, ARGV[1])
end

-- Ended entries give their permits back: a bounded number now, and the rest with the next request (P11).
local back = 0
-- The moment of the replayed grant has passed. Others may have booked the end of its interval, so the request gets a new turn.
local missed = mine and mine * 1000 < us and mine or nil
if missed then
  call('ZREM', log, ARGV[1])
  back, mine = wanted, nil
end
for _ = 1, 2 do
  local ended = call('ZRANGEBYSCORE', log, '-inf', now - interval, 'LIMIT', 0, 256)
  if #ended == 0 then break end
  for i = 1, #ended do back = back + permits_in(ended[i]) end
  call('ZREM', log, unpack(ended))
  if #ended < 256 then break end
end
local before = value
-- A missing counter, or one that drifted upwards, is computed from the log. Redisson does this for the latter.
value = value and value + back
if not value or value > rate then value = rate - total(log) end
local count = call('ZCARD', log)

-- The horizon is limited, because the log must outlive its entries. A request for several permits may book behind all those for one, which
-- would otherwise starve it.
local horizon = ARGV[5] + 0
if keeps > 0 then horizon = math.max(math.min(horizon, keeps - 2 * interval), 0) end
local reach = horizon > 0 and wanted > 1 and horizon + interval or horizon

-- Redisson's clients retry 3 ms after the moment, and their timer fires up to 100 ms later. Without bookings this client does the same, or
-- Redisson's would always come too late. But their timer fires every 100 ms. Permits that come back at such moments, as with an interval that
-- is a multiple of 100 ms, go to Redisson's clients every time. Therefore a request that was refused often retries sooner.
local late = math.floor((2 + us % 100) / 2 ^ math.max(0, ARGV[10] - 6))

-- Returns when `more` permits are available, in ms of server time. `account`: the counter, computed from the log.
local function date(more, account, single)
  local score
  if single then
    score = call('ZRANGE', log, more - account - 1, more - account - 1, 'WITHSCORES')[2]
  else
    score = ends_with(log, more - account)
  end
  return score and score + interval or now
end

local function reset()
  local last = call('ZRANGE', log, -1, -1, 'WITHSCORES')[2]
  return last and math.max(last + interval - now, 0) or 0
end

-- Returns the reply to a grant that counts from `at`.
local function granted(at)
  local left, again = math.max(value, 0), -1
  if horizon > 0 then
    left = math.max(rate - call('ZCOUNT', log, '(' .. string.format('%.0f', now + horizon - interval), '+inf'), 0)
  end
  if left == 0 then
    again = math.max(date(1, value, call('ZCARD', log) == rate - value) - now - horizon, 0)
    if horizon == 0 then again = again + late end
  end
  return { left, us, math.max(at - now, 0), again, math.max(value, 0), reset(), rate, interval, kind }
end

local function store()
  call('SET', value_key, string.format('%.0f', value))
  note()
  keep(KEYS[1], value_key, log, keeps)
end

if mine then
  if value ~= before then store() end
  return granted(mine + 0)
end

-- The server time in ms, rounded up, so that the permit counts for at least an interval.
local at, counts = math.ceil(us / 1000), now
if value < wanted then
  -- Entries beyond all possible bookings: the server's clock was stepped back, or the clock of a Redisson client is ahead. They now count from now.
  local ahead = call('ZRANGEBYSCORE', log, '(' .. string.format('%.0f', now + 2 * interval + 60000), '+inf', 'LIMIT', 0, 256)
  for i = 1, #ahead do call('ZADD', log, 'XX', now, ahead[i]) end
  local account, single = value, count == rate - value
  if not single and count <= EXACT then
    -- The log has entries for several permits, or the counter has drifted: Redisson subtracts a resent request twice.
    account = rate - total(log)
    value = math.max(value, account)
  end
  local moment = value >= wanted and now or date(wanted, account, single)
  local wait = moment - now
  local never = wait > 0 and moment * 1000 > ARGV[4] + 0
  if never or wait > reach then
    if missed then
      -- The request may be a late duplicate, and the permits may be in use. Therefore the old entry stays.
      call('ZADD', log, missed, ARGV[1])
      value = value - wanted
    end
    if value ~= before then store() end
    local again = wait - reach
    if horizon == 0 then again = again + late end
    return { -4 - math.max(again, 0), us, never and 1 or 0, wait, math.max(value, 0), reset(), rate, interval, kind }
  end
  if wait > 0 then at, counts = moment, moment end
end

call('ZADD', log, at, ARGV[1])
value = value - wanted
store()

-- A long interval keeps many entries. Those of a thousandth of the interval are merged into one, which ends with the last of them. The newest
-- are not merged, because their requests may be sent again (R13).
if interval >= 60000 and count > EXACT then
  local pick = call('ZRANGE', log, us % count, us % count, 'WITHSCORES')[2] + 0
  if pick <= now - 15000 then
    local width = math.floor(interval / 1000)
    local from = pick - pick % width
    local part = call('ZRANGEBYSCORE', log, from, math.min(from + width - 1, now - 15000), 'WITHSCORES', 'LIMIT', 0, 64)
    local sum, gone, heir = 0, {}, nil
    for i = 1, #part, 2 do
      sum = sum + permits_in(part[i])
      gone[#gone + 1] = part[i]
      -- A merged entry with a part from Redisson counts as an entry of Redisson.
      if not heir or not is_ours(part[i]) then heir = part[i] end
    end
    if #gone > 1 and sum < 4294967296 then
      local head = string.sub(heir, 1, string.byte(heir) + 1)
      local bytes = {}
      local rest = sum
      for i = 1, 4 do
        bytes[i] = string.char(rest % 256)
        rest = math.floor(rest / 256)
      end
      call('ZREM', log, unpack(gone))
      call('ZADD', log, part[#part], head .. table.concat(bytes))
    end
  end
end
return granted(counts)
