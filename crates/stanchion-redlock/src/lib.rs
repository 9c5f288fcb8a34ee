//! RedLock: one lock on a quorum of independent Redis or Valkey servers.
