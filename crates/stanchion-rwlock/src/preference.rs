//! The order between readers and a writer that waits.

/// The order between readers and a writer that waits. All users of a name should agree on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preference {
    /// Redisson's order: readers of other processes join the current readers, even while a writer waits. Under a
    /// steady stream of readers a writer may wait indefinitely.
    #[default]
    Redisson,
    /// Readers and writers of different processes acquire in order of arrival. A waiting writer holds new readers off, in every
    /// process that has this preference. It acquires when the readers that came before it have released.
    ///
    /// A waiting writer whose process was killed holds no reader off. One whose process has stopped does so for 2 s at most.
    /// Redisson does not read the queue: the lock still excludes its clients, but its readers may still starve writers.
    Writer,
}
