//! The latch.
