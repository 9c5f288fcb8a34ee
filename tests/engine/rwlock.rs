//! The rwlock.
