-- cli/scan
-- Returns, of the keys given, those that look like a hold and those that are derived from a name. Reads only.
--
-- Sent as a plain EVAL to each server in turn: it has no KEYS, and reads only keys that this server has just listed.
--
-- ARGV  keys
--
-- Returns  { found, ... }
--          found: { 'hold', key, ttl in ms, fields, field mode or '', field, value, field, value } at most two fields
--                 { 'limiter', key, ttl in ms, fields }
--                 `{ 'beside', key, ttl in ms, members }`
-- Replay   harmless
-- Wakes    none
-- Cost     O(keys): about 2 microseconds a key
local result = {}
local of_limiter = { rate = true, interval = true, type = true, keepAliveTime = true }
local sizes = { list = 'LLEN', zset = 'ZCARD', hash = 'HLEN' }
-- A user without the right to a key sees it listed but may not read it: the key is skipped.
local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return nil end
  return reply
end
local function kind_of(key)
  local reply = ask('TYPE', key)
  return reply and reply.ok
end
for i = 1, #ARGV do
  local key = ARGV[i]
  local first = key:byte(1)
  -- One byte decides for most keys: 'r', 's', '{', and the end of the keys with the leases of permits.
  if (first == 114 or first == 115) and (key:find('^redisson_') or key:find('^stanchion_')) or key:sub(-8) == ':timeout' then
    local size = sizes[kind_of(key) or '']
    size = size and ask(size, key) or 1
    result[#result + 1] = { 'beside', key, ask('PTTL', key) or -2, size }
  elseif kind_of(key) == 'hash' then
    local fields = ask('HRANDFIELD', key, 2, 'WITHVALUES') or {}
    local field = fields[1] == 'mode' and fields[3] or fields[1]
    if field and field:find('^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:') then
      -- A lock has one field, so that this is all of it.
      local many = #fields > 2
      local hold = { 'hold', key, ask('PTTL', key) or -2, many and ask('HLEN', key) or 1, many and ask('HGET', key, 'mode') or '' }
      for j = 1, #fields do hold[#hold + 1] = fields[j] end
      result[#result + 1] = hold
    elseif of_limiter[field] and tonumber(ask('HGET', key, 'rate')) and tonumber(ask('HGET', key, 'interval')) and tonumber(ask('HGET', key, 'type')) then
      result[#result + 1] = { 'limiter', key, ask('PTTL', key) or -2, ask('HLEN', key) or 0 }
    end
  end
end
return result
