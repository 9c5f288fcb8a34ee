//! The multilock.
