-- rwlock/read_acquire
-- Join the readers, or read inside the write hold of the same owner.
--
-- KEYS[1]  rwlock     hash    mode, reader -> hold count, writer -> hold count (Redisson's layout)
-- KEYS[2]  hold key   string  "1" for as long as this reader's lease; a release by anybody looks for it
-- KEYS[3]  mark       string  a writer that waits, for its grace; the rwlock's own key again: writers have no preference
-- ARGV[1]  owner      "<client uuid>:<number>", used for one outermost hold only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  writer     the field of the write hold that this reader is inside of; empty: none
--
-- Returns  0 acquired, -1 late, -4 - ms busy: ask again after so long (-3: the writer has no TTL)
-- Replay   grants again; the count stays (P6)
-- Wakes    nobody
-- Cost     O(1)
local call = redis.call
local ttl = call('PTTL', KEYS[1])
local mode, held, writer
if ttl ~= -2 then
  -- Reading the type first leaves a foreign key untouched (R16); a hash without a mode is a lock's.
  local found = call('HMGET', KEYS[1], 'mode', ARGV[1], ARGV[4])
  mode, held, writer = found[1], found[2], found[3]
  if not mode then return redis.error_reply('WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode') end
  if mode == 'write' and not held and not writer then return -4 - ttl end
end
if KEYS[3] ~= KEYS[1] and not held and not writer then
  local grace = call('PTTL', KEYS[3])
  if grace ~= -2 then return -4 - grace end
end

-- P3: a request that outlived its caller takes nothing.
local time = call('TIME')
if time[1] * 1000000 + time[2] > ARGV[3] + 0 then return -1 end

-- The hold key first: a field without it is a dead reader to whoever looks (R10). Never shorten (R3).
if not held or call('PTTL', KEYS[2]) < ARGV[2] + 0 then call('SET', KEYS[2], '1', 'PX', ARGV[2]) end
if not mode then
  call('HSET', KEYS[1], 'mode', 'read', ARGV[1], '1')
elseif not held then
  call('HSET', KEYS[1], ARGV[1], '1')
end
-- A hold without a TTL must not stay behind, whatever the server's rights say (R9).
if ttl < ARGV[2] + 0 then
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if set ~= 1 then
    call('HDEL', KEYS[1], ARGV[1])
    if not mode then call('DEL', KEYS[1]) end
    call('DEL', KEYS[2])
    return set
  end
end
return 0
