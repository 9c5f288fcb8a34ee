//! The semaphore.
