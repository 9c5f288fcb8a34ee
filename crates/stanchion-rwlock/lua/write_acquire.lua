-- rwlock/write_acquire
-- Take a free lock for writing, or find that this writer has it already.
--
-- KEYS[1]  rwlock     hash    mode, reader -> hold count, writer -> hold count (Redisson's layout)
-- KEYS[2]  fence      string  the last fencing token, no TTL; the rwlock's own key again: mint none
-- KEYS[3]  readers    zset    reader -> end of its lease, server ms
-- KEYS[4]  mark       string  a waiting writer's mark, for its grace; the rwlock's own key again: writers have no preference
-- KEYS[5]  turn       string  ".<reader>" while it waits, "!<reader>" when its turn is next, "+" when the turn has begun
-- ARGV[1]  writer     "<client uuid>:<number>:write", used for one outermost hold only (R1)
-- ARGV[2]  lease      milliseconds
-- ARGV[3]  not_after  server time in microseconds; later the script refuses
-- ARGV[4]  grace      milliseconds for which new readers are held off if it is busy; 0: they are not
-- ARGV[5]  prefix     the prefix of all readers' hold keys, which are in the slot of KEYS[1]
--
-- Returns  > 0 the token, 0 acquired without a token, -1 late, -4 - ms busy: ask again after so long (-3: the holder has no TTL)
-- Replay   grants again with a new, larger token; the count stays (P6)
-- Wakes    nobody
-- Cost     O(1); with readers as for their release
local call = redis.call
local main, readers, prefix = KEYS[1], KEYS[3], ARGV[5]
