//! A distributed count-down latch on Redis and Valkey, wire-compatible with Redisson.
