-- tower/store
-- Store the response of the request that holds the claim of an idempotency key. A request that has lost its claim stores nothing.
--
-- KEYS[1]  lock         hash  owner -> hold count: the claim
-- KEYS[2]  done         hash  see docs/protocol.md
-- ARGV[1]  owner        "<client uuid>:<number>", used for one claim only (R1)
-- ARGV[2]  keep         milliseconds for which the response is kept
-- ARGV[3]  fingerprint  of the request
-- ARGV[4]  status       three digits, or '': the response is not stored, only that the request was processed
-- ARGV[5]  headers      lines "name: value"
-- ARGV[6]  body
--
-- Returns  1 stored, -2 the owner holds nothing
-- Replay   stores the same values again (P6). After the release of the claim, the owner gets -2
-- Wakes    none
-- Cost     O(1)
local call, lock, done = redis.call, KEYS[1], KEYS[2]
-- The successor of a paused process may have stored its response already.
if call('HEXISTS', lock, ARGV[1]) == 0 then return -2 end
local record = { 'fingerprint', ARGV[3] }
if ARGV[4] ~= '' then
  for _, it in ipairs({ 'status', ARGV[4], 'headers', ARGV[5], 'body', ARGV[6] }) do record[#record + 1] = it end
end
call('HSET', done, unpack(record))
local set = redis.pcall('PEXPIRE', done, ARGV[2])
if set ~= 1 then
  -- R9: nothing may stay without a TTL.
  call('DEL', done)
  return set
end
return 1
