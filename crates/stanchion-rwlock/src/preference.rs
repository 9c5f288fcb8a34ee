//! The order between readers and a writer that waits.

/// The order between readers and a writer that waits. All users of a name should agree on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preference {
    /// Redisson's order: readers of other processes join the current readers, even while a writer waits. Under a
    /// steady stream of readers a writer may wait indefinitely.
    #[default]
    Redisson,
    /// A waiting writer holds new readers off, in every process that has this preference. It gets the lock when the
    /// current readers have finished, unless another writer is faster. Waiting readers let one writer pass; then it is
    /// their turn, before the next writer.
    ///
    /// A waiter announces itself in a key of stanchion's own that lasts 2 s, and repeats its request every second. If
    /// its process dies, the others wait for those 2 s at most. Redisson does not read these keys: the lock still
    /// excludes its clients, but its readers may still starve writers.
    Writer,
}
