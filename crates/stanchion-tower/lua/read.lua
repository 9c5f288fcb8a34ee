-- tower/read
-- Read the stored response of an idempotency key. Reads only.
--
-- KEYS[1]  done  hash  see docs/protocol.md
--
-- Returns  { fingerprint, status, headers, body }; each is nil if it is not stored
-- Replay   harmless
-- Wakes    none
-- Cost     O(1)
return redis.call('HMGET', KEYS[1], 'fingerprint', 'status', 'headers', 'body')
