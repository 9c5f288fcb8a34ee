-- core/adopt
-- Pass a hold that is a field of a hash to an owner that was never used: from its holder to a ticket (detach), or from a ticket to the
-- one that adopts it, with a new token.
--
-- KEYS[1]  lock       hash    owner -> hold count
-- KEYS[2]  fence      string  the last fencing token; the lock's own key again: mint none
-- ARGV[1]  from       the holder, or the owner of the ticket
-- ARGV[2]  to         the owner of the ticket, or the one that adopts it
-- ARGV[3]  lease      milliseconds, of the new owner
-- ARGV[4]  not_after  server time in microseconds; later the script refuses
--
-- Returns  > 0 the token, 0 passed on without a token, -1 late, -3 the hold has ended, or was adopted
-- Replay   finds the new owner, and grants again with a larger token; a second adopter with the same ticket finds no hold (P1)
-- Wakes    no waiter
-- Cost     O(1)
local call, fence = redis.call, KEYS[2]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[4] + 0 then return -1 end
local held = call('HEXISTS', KEYS[1], ARGV[2]) == 1
if not held and call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -3 end
-- P2: later requests of the former process have an older token, so they are refused where tokens are checked.
-- @mint.lua
if held then
  call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
  return token
end
-- HSET comes first: it may fail at maxmemory, and then nothing has changed. HDEL and PEXPIRE never fail there (R8).
call('HSET', KEYS[1], ARGV[2], '1')
call('HDEL', KEYS[1], ARGV[1])
-- This may shorten the TTL: no other request of the new owner has run, and requests of the old owner find no field (R3).
call('PEXPIRE', KEYS[1], ARGV[3])
return token
