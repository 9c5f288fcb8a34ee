-- core/adopt
-- Take over a detached hold that is a field of a hash: from the owner of the ticket to a new one, with a new token.
--
-- KEYS[1]  lock       hash    owner -> hold count
-- KEYS[2]  fence      string  the last fencing token; the lock's own key again: mint none
-- ARGV[1]  from       the owner of the ticket
-- ARGV[2]  to         the owner that gets it
-- ARGV[3]  lease      milliseconds, of the new owner
-- ARGV[4]  not_after  server time in microseconds; later the script refuses
--
-- Returns  > 0 the token, 0 adopted without a token, -1 late, -3 the hold has ended, or was adopted
-- Replay   finds the new owner, and grants again with a larger token; the second of two with one ticket finds nothing (P1)
-- Wakes    nobody
-- Cost     O(1)
local call, fence = redis.call, KEYS[2]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[4] + 0 then return -1 end
local held = call('HEXISTS', KEYS[1], ARGV[2]) == 1
if not held and call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -3 end
-- P2: what the former process still sends is refused where tokens are checked.
-- @mint.lua
-- First, because HDEL and PEXPIRE never fail at maxmemory, and then there is no hold without a holder (R8).
if not held then
  call('HSET', KEYS[1], ARGV[2], '1')
  call('HDEL', KEYS[1], ARGV[1])
end
call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
return token
