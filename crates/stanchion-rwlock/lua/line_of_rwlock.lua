-- What the line of a read-write lock needs to know of it.
--
-- A process whose first waiter writes has a place of its own, and is granted to. All readers that wait have one place together, with the
-- arrival of the first of them: they may hold together, so whoever lets one in tells all to try. Needs the locals `crowd`, `mark`
-- and `turn` (keys; the last two are the lock's own where writers have no preference), and `released`.
local group = 'readers+'
-- Milliseconds in which the readers that were told have their turn, whatever writer waits.
local join_ms = 250
-- The key in which a place stands.
local row = line

-- The place of the readers, or 'outside' for those without one, when they have let a writer pass and are next.
local function due()
  if turn == lock or string.sub(call('GET', turn) or '', 1, 1) ~= '!' then return nil end
  return call('EXISTS', crowd) == 1 and group or 'outside'
end

-- Leaves the free lock to the reader outside the line whose turn it is: for so long, because it may have died. Returns these ms.
local function give_way()
  call('PEXPIRE', turn, join_ms, 'LT')
  return math.max(1, call('PTTL', turn))
end

-- Tells the readers' place: to try, 16 of them at most, of which each that joins tells more; or the first of them to look.
local function tell(place, payload)
  if place ~= group then return send(place, payload) end
  local looks, heard = string.sub(payload, 1, 1) == 'N', 0
  for _, reader in ipairs(call('ZRANGE', crowd, 0, sweep - 1)) do
    local told = send(reader, payload)
    if told < 0 then return told end
    if told == 0 or not looks then call('ZREM', crowd, reader) end
    -- It died: the turn that it waited for is no other's.
    if told == 0 and turn ~= lock and string.sub(call('GET', turn) or '', 2) == reader then call('DEL', turn) end
    heard = heard + told
    if looks and told > 0 then return told end
  end
  if heard == 0 then
    if call('EXISTS', crowd) == 1 then call('ZADD', line, '0', group) end
  elseif string.sub(payload, 1, 1) == 'P' and turn ~= lock and call('EXISTS', mark) == 1 then
    redis.pcall('SET', turn, '+', 'PX', join_ms)
  end
  return heard
end

-- Records that a writer passes: it waits no longer, and the readers that let it pass let no other.
local function passes(field)
  if mark == lock then return end
  if call('GET', mark) == field then call('DEL', mark) end
  local turned = call('GET', turn) or ''
  if string.sub(turned, 1, 1) == '.' then
    call('SET', turn, '!' .. string.sub(turned, 2), 'KEEPTTL')
  elseif turned ~= '' then
    call('DEL', turn)
  end
end

local function enter(place)
  call('HSET', lock, 'mode', 'write', place .. ':write', '1')
  passes(place .. ':write')
end
local function leave() call('DEL', lock) end

local function first()
  return call('ZRANGE', line, 0, 0)[1] or call('EXISTS', crowd) == 1 and group or nil
end

local function is_first(place)
  local head = first()
  return head == place or head == group and call('ZRANGE', crowd, 0, 0)[1] == place
end

local function waiting() return call('ZCARD', line) + call('ZCARD', crowd) end

local function put(place, arrived)
  local added = place_in(row, place, arrived)
  if row == line or type(added) ~= 'number' then return added end
  -- With the arrival of the first of them.
  added = place_in(line, group, arrived)
  if type(added) == 'number' then call('ZADD', line, 'LT', arrived, group) end
  return added
end

-- Readers hold, or may: those that wait are told, unless a writer that waits holds them off. `ms`: the time that the hold has.
-- Returns how many heard it, and as `serve` if there are more to look at.
local function join(ms)
  if mark ~= lock and call('EXISTS', mark) == 1 and not string.find(call('GET', turn) or '', '^[+!]') then return 0 end
  local head = first() == group
  call('ZREM', line, group)
  local told = tell(group, 'P 0')
  local next = head and first()
  if next then tell(next, string.format('N %d', ms)) end
  return told, nil, told == 0 and call('EXISTS', crowd) == 1 and 0 or nil
end
