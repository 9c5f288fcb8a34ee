//! The leased.
