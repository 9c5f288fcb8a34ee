//! The redlock.
