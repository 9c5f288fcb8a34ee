-- The holds of a read-write lock, for its queue: one writer, or many readers.
--
-- The entry of a writer has no suffix. The entry of a reader ends with "r" or, where writers have preference, "R". An "R" reader waits
-- behind a writer that came before it; an "r" reader joins readers that hold. The functions need the locals `readers` and `prefix` (see
-- dead.lua), `announces`, and `mode`, which they keep current: 'write', 'read' or nil.
local granted_ms, shares, confirms = 1500, true, false
-- Milliseconds after which a writer that holds readers off counts as silent, unless it sends a request.
local silent_ms = 2000
-- Redisson's payload of a release: 0 of a reader; 1 of a writer, because readers can hold together.
local function released() return announces end

local function reads(entry) return string.find(entry, '[rR]') end
local function overtakes(entry) return string.find(entry, 'r', 1, true) end
local function mints(entry) return fence ~= lock and not reads(entry) end
-- A free lock is not served in a turn of Redisson's clients.
local function fits(entry) return not mode and left_ms == 0 or mode == 'read' and reads(entry) end
local function hold_key(owner) return prefix .. owner .. ':rwlock_timeout:1' end

local function leave(entry)
  local owner = owner_of(entry)
  if not reads(entry) then
    call('DEL', lock)
    mode = nil
    return
  end
  call('HDEL', lock, owner)
  call('DEL', hold_key(owner))
  call('ZREM', readers, owner)
  if call('HLEN', lock) > 1 then return end
  call('DEL', lock, readers)
  mode = nil
end

local function enter(entry, us, ms)
  local owner = owner_of(entry)
  if reads(entry) then
    -- The hold key first: a field without one looks like a dead reader (R10).
    call('SET', hold_key(owner), '1', 'PX', ms)
    -- Before the field: a foreign key is an error, and then this reader does not hold (R16).
    call('ZADD', readers, 'GT', string.format('%.0f', math.floor(us / 1000) + ms), owner)
    call('HSET', lock, 'mode', 'read', owner, '1')
    mode = 'read'
  else
    call('HSET', lock, 'mode', 'write', owner .. ':write', '1')
    mode = 'write'
  end
  -- A hold without a TTL must not stay behind, even where PEXPIRE is not permitted (R9). Never shorten (R3).
  local set = call('PTTL', lock) < ms and redis.pcall('PEXPIRE', lock, ms) or 1
  if set ~= 1 then
    leave(entry)
    error(set)
  end
  if mode == 'read' then call('PEXPIRE', readers, call('PTTL', lock)) end
end

-- Returns a reader that may overtake the writers in front of it; or nil, and the first reader that may not (true: there may be one, behind
-- more writers than are checked).
local function reader_behind()
  for from = 1, 8 * roll, roll do
    local entries = call('ZRANGE', line, from, from + roll - 1)
    for _, entry in ipairs(entries) do
      if reads(entry) then
        if overtakes(entry) then return entry end
        return nil, entry
      end
    end
    if #entries < roll then return end
  end
  return nil, true
end

-- Returns the entry that is served next. In mode `read`, a reader that may overtake comes before the writer at the head. That writer holds
-- the other readers off only while it lives. `me` is the entry of this request. The third result: entries are left to check.
local function candidate(us, me)
  for _ = 1, sweep do
    local head = first()
    if mode ~= 'read' or not head or reads(head) then return head end
    local overtaking, held_off = reader_behind()
    if overtaking or not held_off then return overtaking or head end
    local waits, ends = unpack(call('HMGET', wake, 'waits', 'ends'))
    if head == me or waits ~= head or ends - us > 1000 * silent_ms then
      ends, me = us + 1000 * silent_ms, nil
      note('waits', head, 'ends', string.format('%.0f', ends))
    end
    local left = math.ceil((ends - us) / 1000)
    if left <= 0 then
      -- The writer is silent, so the others pass. At the head again, it has the same time again.
      call('HDEL', wake, 'waits')
      call('ZADD', line, 'XX', behind_all(us), head)
    else
      -- The writer's next request proves that it lives. Every message names the same moment, so a stream of readers delays neither poll.
      if tell(head, 'N', math.max(0, left - silent_ms / 2)) ~= 0 then
        if held_off ~= true then tell(held_off, 'N', left) end
        return head
      end
      remove(head)
    end
  end
  return nil, nil, true
end
