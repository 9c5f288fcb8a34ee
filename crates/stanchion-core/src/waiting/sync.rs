//! The mutex of the queues. A thread model has a file of the same name with another one: see [`super::shared`].

pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
