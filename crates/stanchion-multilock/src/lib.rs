//! Several distributed locks as one, all or nothing, on Redis and Valkey.
