local owner, lease, not_after = ARGV[5], ARGV[6] + 0, ARGV[7] + 0
local code = found and 0 or -2
redis.pcall('ZREM', waiters, ARGV[4])
-- A grant to another waiter of this client is in the reply.
reader = process(owner)
local stood, asked = pcall(stand, owner, lease, not_after, '0', ARGV[8])
-- Late (P3), or failed. The first owner has left the lock, and neither changes that (R15).
if not stood or asked == -1 then return unless_unfinished({ farewell(ARGV[4], found, found), stood and asked }) end
return unless_unfinished({ own == '' and code or { code, us, own }, asked })
