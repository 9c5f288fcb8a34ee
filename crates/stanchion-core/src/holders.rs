//! Where the server keeps who holds: what a synchronizer tells those who look who waits for whom.

use std::borrow::Cow;

/// Where the server keeps who holds a name, and so who is in the way of whom: for those who look who waits for whom.
///
/// Processes tell it in their records, so that it is read by those that know nothing of the synchronizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holders {
    /// Nowhere that tells owners: the processes' own words are all there is.
    #[default]
    Untold,
    /// The same, of permits: of several holders some may be enough.
    Permits,
    /// The one field of the hash `name`.
    One,
    /// The same; and those who will hold next, in a list whose key is made with this prefix by Redisson's rule ([`Name::prefixed`](crate::Name::prefixed)).
    Queue(Cow<'static, str>),
    /// Fields of the hash `name` of a read-write lock. This is its side that reads.
    Readers,
    /// The same for the side that writes.
    Writer,
}
