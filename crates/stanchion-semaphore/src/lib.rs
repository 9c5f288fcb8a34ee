//! Distributed semaphores on Redis and Valkey, plain and with leased permits, wire-compatible with Redisson.
