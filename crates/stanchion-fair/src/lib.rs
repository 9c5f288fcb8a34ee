//! A distributed fair lock on Redis and Valkey: first come, first served across processes, wire-compatible with Redisson.
