//! Several distributed locks as one.
