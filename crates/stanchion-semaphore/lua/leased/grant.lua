-- leased/grant, for the scripts that give leased permits back; behind crowd.lua.

-- Grants one free permit to a process that waits, by message: "G owner 0 us ms name", of a new owner of that client, held from `us` for `ms`
-- unless it is renewed. The number of the owner is the server's time: clients count theirs from 1, so no two are the same (R1).
-- Returns how many heard it: if nobody did, nothing is granted; nil: it must be told to ask instead.
local function grant(to, client, us)
  local owner = string.format('%s:%.0f', client, us)
  -- The id that the client derives from this owner.
  local id = string.gsub(string.sub(redis.sha1hex(owner .. ':0'), 1, 32), '%x%x', function(byte) return string.char(tonumber(byte, 16)) end)
  redis.call('DECRBY', to.free, 1)
  local added = redis.pcall('ZADD', to.leases, 'NX', string.format('%.0f', math.floor(us / 1000) + GRANTED), id)
  if added ~= 1 then
    redis.call('INCRBY', to.free, 1)
    return nil
  end
  -- The key is a new one if nobody else holds.
  local ttl = redis.call('PTTL', to.free)
  if ttl > 0 then redis.call('PEXPIRE', to.leases, ttl) end
  local told = say(to, client, string.format('G %s 0 %.0f %d %s', owner, us, GRANTED, to.free))
  if told <= 0 then
    redis.call('ZREM', to.leases, id)
    redis.call('INCRBY', to.free, 1)
  end
  return told
end
