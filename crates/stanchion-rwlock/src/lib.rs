//! A distributed read-write lock on Redis and Valkey, wire-compatible with Redisson.
