//! Requests to a holder to give a hold back.

/// A request to give a hold back. The holder decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseRequest {
    /// The reason from the sender: at most 200 bytes, without control characters. Any client that may publish can send one.
    pub reason: String,
}
