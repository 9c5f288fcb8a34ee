-- fair/acquire
-- Take a free lock without a queue; otherwise take, or keep, a place in the queue.
--
-- KEYS[1]  lock      hash    owner -> hold count; its TTL is the lease (Redisson's layout)
-- KEYS[2]  queue     list    owners in order of arrival (Redisson's)
-- KEYS[3]  timeouts  zset    owner -> deadline, server ms (Redisson's); the same members as the queue
-- KEYS[4]  waiters   zset    owner -> arrival, us: stanchion's in the queue, and the holder that was granted by message
-- KEYS[5]  wake      zset    notes about the queue: see `note`
-- KEYS[6]  fence     string  the last fencing token, no TTL; the lock's own key again: mint none
-- ARGV[1]  channel   with ":<client uuid>" the channel of a client, with ":<owner>" that of a Redisson waiter
-- ARGV[2]  publish   PUBLISH or SPUBLISH
-- ARGV[3]  wait      milliseconds: no Redisson client waits longer for this name
-- ARGV[4]  owner     "<client uuid>:<number>", used for one outermost hold only (R1)
-- ARGV[5]  lease     milliseconds
-- ARGV[6]  not_after server time in microseconds; later the script refuses
-- ARGV[7]  arrived   of its place in the queue; 0 joins the queue, empty only tries
-- ARGV[8]  hears     1: the client is subscribed to its channel; 2: and its poll is due; 0: it is not
--
-- Returns  > 0 the token, 0 acquired without a token, -1 late; busy: see `busy`
-- Replay   grants again with a new, larger token; keeps the one place (P6)
-- Wakes    as a release does, when it finds the lock free; all subscribed processes after the loss of the queue
-- Cost     O(log n) for n waiters; for a place that was removed before one LINSERT
local call = redis.call
-- The common case, without functions: no holder and no queue. P4: a due poll expects a queue.
if call('EXISTS', KEYS[1], KEYS[2]) == 0 and ARGV[8] ~= '2' then
  -- P3: a request that outlived its caller takes nothing.
  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  if now > ARGV[6] + 0 then return -1 end

  local fence = KEYS[6]
  -- @mint.lua

  call('HSET', KEYS[1], ARGV[4], '1')
  -- A lock without a TTL must not stay behind, even where PEXPIRE is not permitted (R9).
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[5])
  if set ~= 1 then
    call('DEL', KEYS[1])
    return set
  end
  return token
end
