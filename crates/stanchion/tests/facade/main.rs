//! What the facade adds to its parts: the blocking API, one error type, error texts, bounds of its types; and the programs of the book.

#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "embedded")]
mod book;
mod bounds;
mod errors;
mod messages;
